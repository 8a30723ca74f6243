"""A device door whose scripted agent writes down what it was given, in a process of its own.

    python -m tests.faults.recording_door PORT LOG

prints its port; each message that the agent takes is a line of LOG, and so is each answer that is
written to a connection, in their order. The process ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.server import Door, Incoming
from hermes_mobile.settings import Settings
from hermes_mobile.sockets import Socket

TOKEN = "token-of-the-fault-tests"


class Witness:
    """Writes down what happens, each line at once: a killed door has told everything."""

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, **line: object) -> None:
        os.write(self._log, json.dumps({"pid": os.getpid(), **line}).encode() + b"\n")

    def watch_sockets(self) -> None:
        """Tell of every answer that goes to a connection."""
        write = Socket.write

        def watched(sock: Socket, frames: list[bytes]) -> None:
            for said in map(json.loads, frames):
                if said["t"] == "message" and not sock._closing:
                    self.tell(wrote=said["text"], conn=sock.conn, final=said["final"])
            write(sock, frames)

        Socket.write = watched  # type: ignore[method-assign]


class RecordingAgent(ScriptedAgent):
    """The scripted agent, and a witness."""

    def __init__(self, witness: Witness) -> None:
        super().__init__()
        self._witness = witness

    async def submit(self, incoming: Incoming) -> None:
        await super().submit(incoming)
        self._witness.tell(took=incoming.id, text=incoming.text)


async def main(port: str, log: str) -> None:
    witness = Witness(log)
    witness.watch_sockets()
    agent = RecordingAgent(witness)
    door = Door(Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": port}), agent)
    agent.attach(door)
    await door.start()
    print(door.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await agent.close()
    await door.stop()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
