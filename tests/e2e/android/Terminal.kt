package com.example.hermes

import java.io.File
import java.security.MessageDigest

/** The sample's connection on a terminal: a command a line comes in, an event a line goes out. */
private object Printing : HermesListener {
    private fun say(vararg parts: Any?) {
        println(parts.joinToString(" ") { it.toString().replace("\n", "\\n") })
    }

    override fun onState(state: String, stopped: Boolean) = say("state", stopped, state)
    override fun onMessage(id: String, text: String, final: Boolean) = say("message", final, text)
    override fun onMedia(id: String, filename: String, mime: String, bytes: ByteArray?, url: String?) {
        val digest = MessageDigest.getInstance("SHA-256").digest(bytes ?: ByteArray(0))
        say("media", filename, mime, bytes?.size, digest.joinToString("") { "%02x".format(it) })
    }
    override fun onPrompt(id: String, text: String, command: String?, options: List<Pair<String, String>>) =
        say("prompt", id, command, options.joinToString(",") { it.first })
    override fun onPromptDone(id: String, optionId: String?, expired: Boolean) =
        say("prompt_done", id, optionId, expired)
    override fun onOutgoing(id: String, error: String?) = say("outgoing", error)
}

/** A file as the app's storage. */
private class FileStore(private val file: File) : OutboxStore {
    override fun load(): String? = if (file.exists()) file.readText() else null
    override fun save(json: String) = file.writeText(json)
}

fun main(args: Array<String>) {
    val (url, token, device, outbox) = args
    val agent = HermesAgent(url, token, device, FileStore(File(outbox)), Printing)
    agent.connect()
    while (true) {
        val line = readLine() ?: break
        val words = line.split(" ", limit = 3)
        when (words[0]) {
            "text" -> agent.sendText(line.removePrefix("text "))
            "file" -> File(words[2]).let {
                agent.sendFile(words[1], "application/octet-stream", it.name, it.readBytes())
            }
            "answer" -> agent.answer(words[1], words[2])
            "network" -> agent.networkChanged()
            "close" -> agent.close()
        }
    }
    System.exit(0) // the sample's own threads live as long as its app
}

/** Debian's Kotlin is older than this function of the standard library. */
internal fun String.lowercase(): String = toLowerCase()
