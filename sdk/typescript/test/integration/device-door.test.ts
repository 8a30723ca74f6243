/** `HermesClient` on the real device door with the scripted agent. */
import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { AgentMessage } from "../../src/events.ts";
import type { HermesClientOptions } from "../../src/options.ts";
import { Conversation } from "../support/conversation.ts";
import { startDoor, type Door } from "../support/programs.ts";
import { Relay } from "../support/relay.ts";

const MIB = 1024 * 1024;

let door: Door;
let relay: Relay;
const open: Conversation[] = [];
const stops: (() => Promise<void>)[] = [];

beforeAll(async () => {
  door = await startDoor();
  stops.push(door.stop);
  relay = await Relay.to(door.port);
  stops.push(() => relay.stop());
});

afterEach(() => {
  for (const conversation of open.splice(0)) conversation.close();
});

afterAll(async () => {
  for (const stop of stops.reverse()) await stop();
});

function talk(options: Partial<HermesClientOptions> = {}, url = door.url): Promise<Conversation> {
  const conversation = new Conversation(url, options);
  open.push(conversation);
  return conversation.connected();
}

const throughRelay = (options: Partial<HermesClientOptions> = {}): Promise<Conversation> =>
  talk(options, `ws://127.0.0.1:${relay.port}/ws`);

function noise(size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  let state = 1;
  for (let at = 0; at < size; at += 1) {
    state = (state * 48_271) % 2_147_483_647;
    bytes[at] = state;
  }
  return bytes;
}

const sha256 = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

test.each([
  ["with every extension", undefined],
  ["without `accepted`", ["partial_edits"]],
  ["without `partial_edits`", ["accepted"]],
  ["as an old client", []],
])("A talk %s: echo, a long answer, a stream of edits.", async (_name, supports) => {
  const talking = await talk(supports === undefined ? {} : { supports });
  expect([...(talking.client.ready?.extensions ?? [])]).toEqual(
    supports ?? ["accepted", "partial_edits"],
  );

  expect((await talking.ask("Привет 😀")).text).toBe("echo: Привет 😀");

  const long = await talking.ask("long 20000");
  expect(long.text).toHaveLength(20_000);
  expect(long.complete).toBe(true);

  talking.revisions.length = 0;
  const streamed = await talking.ask("stream 30 5");
  const grown = talking.revisions.filter(({ id }) => id === streamed.id).map(({ text }) => text);
  expect(streamed.text.split(" ")).toHaveLength(30);
  expect(grown.length).toBeGreaterThan(2);
  for (const [index, text] of grown.entries())
    expect(text.startsWith(grown[index - 1] ?? "")).toBe(true);
  expect(talking.messages.size).toBe(3);
  expect(talking.warnings).toEqual([]);
  expect(talking.client.pending()).toEqual([]);
});

test("Typing and avatar end with the turn.", async () => {
  const talking = await talk();
  const thinking = talking.next("avatar", (state) => state === "thinking");
  const idle = talking.next("typing", (active) => !active);
  await talking.ask("hello");
  await Promise.all([thinking, idle]);
});

test("All three cards are answered and take effect.", async () => {
  const talking = await talk();
  const approval = await talking.askForCard("approve rm -rf build");
  expect(approval).toMatchObject({ kind: "exec_approval", command: "rm -rf build" });
  const approved = talking.next("message", ({ text }) => text.startsWith("approval:"));
  expect(await talking.client.answer(approval.id, "once")).toEqual({
    id: approval.id,
    optionId: "once",
    expired: false,
  });
  expect((await approved).text).toBe("approval: once");

  const question = await talking.askForCard("clarify Tea or coffee?|tea|coffee");
  const clarified = talking.next("message", ({ text }) => text.startsWith("clarify:"));
  await talking.client.answer(question.id, { optionId: "other", text: "water" });
  expect((await clarified).text).toBe("clarify: water");

  const confirmation = await talking.askForCard("confirm");
  const confirmed = talking.next("message", ({ text }) => text.startsWith("confirm:"));
  expect(await talking.client.answer(confirmation.id, "nonsense")).toMatchObject({
    optionId: "cancel",
  });
  expect((await confirmed).text).toBe("confirm: cancel");
  expect(talking.client.cards()).toEqual([]);

  expect(await talking.client.answer("no-such-card", "once")).toMatchObject({ expired: true });
});

test("A file of every kind comes down whole, as a Blob or as bytes.", async () => {
  for (const media of ["blob", "bytes"] as const) {
    const talking = await talk({ media });
    for (const kind of ["image", "voice", "video", "document", "animation"]) {
      const file = talking.next("media");
      await talking.client.sendText(kind).accepted;
      const { size, blob, bytes, ...told } = await file;
      expect(told.kind).toBe(kind);
      expect(told.mime).toMatch(/^\w+\/[\w.+-]+$/);
      expect(media === "blob" ? blob?.size : bytes?.length).toBe(size);
      expect(size).toBeGreaterThan(0);
    }
  }
});

test("A file of 8 MiB goes up whole, with progress to its end.", async () => {
  const talking = await talk();
  const bytes = noise(8 * MIB);
  const progress: number[] = [];
  const described = talking.next("message", ({ text }) => text.startsWith("received"));
  await talking.client.sendFile(bytes, {
    filename: "noise.bin",
    mime: "application/octet-stream",
    onProgress: ({ sent }) => progress.push(sent),
  }).accepted;

  expect((await described).text).toContain(sha256(bytes));
  expect((await described).text).toContain("noise.bin");
  expect(progress[0]).toBe(0);
  expect(progress.at(-1)).toBe(8 * MIB);
  expect([...progress].sort((one, other) => one - other)).toEqual(progress);
});

test("A recording goes up with its transcript.", async () => {
  const talking = await talk();
  const wav = new Uint8Array(100);
  wav.set(Buffer.from("RIFF\x5c\x00\x00\x00WAVEfmt "));
  const described = talking.next("message", ({ text }) => text.startsWith("received"));
  await talking.client.sendVoice(wav, { transcript: "good morning" }).accepted;

  expect((await described).text).toContain("good morning");
  expect((await described).text).toContain(sha256(wav));
});

test("Aborted uploads leave no room taken at the door.", async () => {
  const talking = await throughRelay({ uploadPartBytes: 64 * 1024 });
  // More of them than the door lets a device hold open, each cut off half-way.
  for (let round = 0; round < 10; round += 1) {
    const abort = new AbortController();
    const sent = talking.client.sendFile(noise(4 * MIB), {
      signal: abort.signal,
      onProgress: ({ sent: bytes }) => {
        if (bytes > 1 * MIB) abort.abort();
      },
    });
    await expect(sent.accepted).rejects.toMatchObject({ code: "aborted" });
  }
  const errors: unknown[] = [];
  talking.client.on("error", (error) => errors.push(error));
  const bytes = noise(8 * MIB);
  const described = talking.next("message", ({ text }) => text.startsWith("received"));
  await talking.client.sendFile(bytes).accepted;

  expect((await described).text).toContain(sha256(bytes));
  expect(errors).toEqual([]);
  expect(talking.texts()).toHaveLength(1);
});

test("A line that breaks again and again loses no text and doubles none.", async () => {
  const talking = await throughRelay();
  const sent = [];
  for (let round = 0; round < 6; round += 1) {
    const again = talking.next("ready");
    for (let index = 0; index < 10; index += 1) {
      sent.push(talking.client.sendText(`line ${round}.${index}`).accepted);
      if (index === 5) relay.cut();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await again; // what is not connected cannot be cut off
  }
  await Promise.all(sent);
  await talking.ask("the end", ({ text }) => text === "echo: the end");
  const echoes = talking.texts();

  // The agent took each text once: no echo came under two ids.
  expect(new Set(echoes).size).toBe(echoes.length);
  expect(talking.client.pending()).toEqual([]);
  expect(talking.states.filter(({ phase }) => phase === "ready").length).toBeGreaterThan(3);
});

test("An upload that is cut off starts again and arrives once, whole.", async () => {
  const talking = await throughRelay();
  const bytes = noise(8 * MIB);
  const cut = relay.cutAfter(6 * MIB);
  const described = talking.next("message", ({ text }) => text.startsWith("received"));
  const sent = talking.client.sendFile(bytes);
  await cut;
  await sent.accepted;

  expect((await described).text).toContain(sha256(bytes));
  await talking.ask("the end", ({ text }) => text === "echo: the end");
  expect(talking.texts().filter((text) => text.startsWith("received"))).toHaveLength(1);
});

test("An answer that was cut off in the middle is whole after the reconnect, under one id.", async () => {
  const talking = await throughRelay();
  let atTheCut: AgentMessage | undefined;
  const stop = talking.client.on("message", (message) => {
    stop();
    atTheCut = message;
    relay.cut(); // here and now: a busy machine may come to the next line when all is said
  });
  const again = talking.next("ready");
  await talking.client.sendText("stream 60 50").accepted;
  await again;
  const done = await talking.message(({ final }) => final);

  expect(atTheCut?.final).toBe(false);
  expect(done.id).toBe(atTheCut?.id);
  expect(done.text.split(" ")).toHaveLength(60);
  expect(talking.messages.size).toBe(1);
});

test("A card survives a reconnect and its answer takes effect.", async () => {
  const talking = await throughRelay();
  const card = await talking.askForCard("approve ls");
  const again = talking.next("prompt");
  relay.cut();
  const outcome = talking.client.answer(card.id, "once");

  expect(await outcome).toMatchObject({ optionId: "once" });
  expect((await again).id).toBe(card.id);
  expect(talking.client.cards()).toEqual([]);
});

test("A wrong token stops with the reason.", async () => {
  const stranger = new Conversation(door.url, { token: "not-the-token-of-this-door" });
  open.push(stranger);
  stranger.client.connect();
  await expect(stranger.client.whenReady()).rejects.toMatchObject({ code: "auth_failed" });

  expect(stranger.client.state).toMatchObject({
    phase: "stopped",
    reason: { code: "auth_failed" },
  });
});

test("The same device elsewhere replaces this one, which does not fight.", async () => {
  const device = { id: "the-same-device" };
  const first = await talk({ device });
  const stopped = first.next("state", ({ phase }) => phase === "stopped");
  const second = await talk({ device });

  expect(await stopped).toMatchObject({ reason: { code: "replaced" } });
  expect((await second.ask("here")).text).toBe("echo: here");
});

test("A hand-over that fails is tried again and keeps its place in the outbox.", async () => {
  const talking = await talk();
  talking.client.sendText("fail");
  const failed = await talking.next("outbox", ({ state }) => state === "queued");

  expect(failed.text).toBe("fail");
  expect(talking.client.pending()).toHaveLength(1);
  expect((await talking.ask("after")).text).toBe("echo: after");
});

test("A door that restarts gets what was written meanwhile.", async () => {
  let own = await startDoor();
  // The new door takes a port of its own: anybody may have taken the old one meanwhile.
  const line = await Relay.to(own.port);
  try {
    const talking = await talk({}, `ws://127.0.0.1:${line.port}/ws`);
    await talking.ask("before");
    await own.stop();
    const sent = talking.client.sendText("meanwhile");
    own = await startDoor();
    line.leadTo(own.port);
    await sent.accepted;
    await talking.message(({ text }) => text === "echo: meanwhile");
  } finally {
    await line.stop();
    await own.stop();
  }
});
