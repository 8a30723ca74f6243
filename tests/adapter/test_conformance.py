"""The conformance kit: the real door passes, and every broken one is named."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console
from websockets.asyncio.server import ServerConnection, serve

from hermes_mobile import tokens
from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.conformance import contract, report, silence
from hermes_mobile.conformance.contract import load
from hermes_mobile.conformance.suite import (
    FAILED,
    NOT_RUN,
    SECTIONS,
    Result,
    Suite,
    look,
    reference,
    summary,
)
from hermes_mobile.conformance.target import Needs, Target, TargetError
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

from .broken_doors import FAULTS
from .man_in_the_middle import Faithful, between

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = load("door.json")["settings"]
# A deadline tells what never comes from a busy machine; nothing is measured with it.
PATIENCE = 60.0


@contextlib.asynccontextmanager
async def door(settings: dict[str, str] | None = None) -> AsyncIterator[int]:
    """The real door with the scripted agent; its port."""
    agent = ScriptedAgent()
    opened = Door(
        Settings.from_sources({**SETTINGS, "MOBILE_PORT": "0", **(settings or {})}), agent
    )
    agent.attach(opened)
    await opened.start()
    try:
        yield opened.port
    finally:
        await agent.close()
        await opened.stop()


async def conform(
    target: Target, *, only: Collection[str] = (), quick: bool = False
) -> list[Result]:
    """What the kit finds."""
    found = await look(target)
    assert found.problem is None
    return await Suite(
        dataclasses.replace(target, offers=found.offers), only=only, quick=quick
    ).run()


def at(port: int, **options: Any) -> Target:
    """A door with the contract's settings."""
    return dataclasses.replace(Target.of_contract(f"ws://127.0.0.1:{port}/ws"), **options)


@pytest.fixture
def unpunished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed hellos are answered at once: what they are answered with is looked at here."""
    monkeypatch.setattr(tokens, "FREE_FAILURES", 100_000)


def failures(results: list[Result]) -> dict[str, str]:
    return {r.check.title: r.reason for r in results if r.status == FAILED}


# --------------------------------------------------------------------------------------------------
# The healthy door


async def test_real_door_passes_every_check() -> None:
    """Everything that this door's settings allow is run and passes."""
    async with door() as port:
        results = await conform(at(port, patience=PATIENCE))

    assert failures(results) == {}
    assert summary(results)["passed"] > 480
    left = [result for result in results if result.status == NOT_RUN]
    assert left
    assert all("--setting" in result.reason for result in left)


OVERLAYS = [
    dict(found)
    for found in {
        tuple(sorted(scenario["settings"].items()))
        for _, scenario in contract.scenarios()
        if "settings" in scenario
    }
]


@pytest.mark.parametrize("overlay", OVERLAYS, ids=[" ".join(sorted(o)) for o in OVERLAYS])
async def test_real_door_with_other_settings_passes_their_checks(overlay: dict[str, str]) -> None:
    """With --setting the checks that were written for it are run, and only those."""
    async with door(overlay) as port:
        results = await conform(at(port, settings=overlay, patience=PATIENCE))

    assert failures(results) == {}
    assert 1 <= summary(results)["passed"] <= 5


async def test_man_in_the_middle_changes_nothing(unpunished: None) -> None:
    """What the broken doors are made with is itself no fault."""
    titles = {title for _, title in FAULTS} - {
        "hello: no hello within 15 seconds",
        "crowds: after 20 failed hellos a minute the answers come later",  # unpunished here
    }
    async with door() as port, between(Faithful(), port) as middle:
        results = await conform(at(middle, patience=PATIENCE), only=titles)

    assert failures(results) == {}
    assert len(results) == len(titles)


# --------------------------------------------------------------------------------------------------
# The broken ones


@pytest.mark.parametrize(("fault", "title"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
async def test_kit_names_the_fault(unpunished: None, fault: type[Faithful], title: str) -> None:
    """A door with one fault fails the check of that fault, with a reason and a section."""
    for _ in range(3):  # an answer that comes too early can be late once, on a busy machine
        async with door() as port, between(fault(), port) as middle:
            target = dataclasses.replace(at(middle), patience=2.0)
            results = await Suite(
                dataclasses.replace(target, offers=frozenset({"accepted", "partial_edits"})),
                only=[title],
            ).run()
        named = failures(results)
        if title in named:
            break

    assert title in named, summary(results)
    assert len(named[title]) > 20
    checks = {result.check.title: result.check for result in results}
    assert reference(checks[title].section).startswith("docs/protocol.md#")


async def test_a_machine_that_was_busy_once_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client waits longer than the check allows, the next does not."""
    from hermes_mobile.conformance import floods

    class HeldUpOnce(Faithful):
        held = False

        async def inward(self, talk: Any, frame: dict[str, Any], raw: Any) -> Any:
            if frame.get("t") == "hello" and not self.held:
                self.held = True
                await asyncio.sleep(floods.SERVED_WITHIN + 0.5)
            return (raw,)

    monkeypatch.setattr(floods, "STRANGERS", 3)
    title = "crowds: a client is let in within 2 s beside 300 strangers"
    busy = HeldUpOnce()
    async with door() as port, between(busy, port) as middle:
        target = dataclasses.replace(at(middle, patience=PATIENCE), offers=frozenset())
        results = await Suite(target, only=[title]).run()

    assert busy.held and failures(results) == {}


async def test_one_fault_that_every_check_meets_is_told_as_one(unpunished: None) -> None:
    """Hundreds of failures have one line that says what they have in common."""

    class AnotherVersion(Faithful):
        async def outward(self, talk: Any, frame: dict[str, Any], raw: Any) -> Any:
            return ({**frame, "v": 2},) if frame.get("t") == "ready" else (raw,)

    async with door() as port, between(AnotherVersion(), port) as middle:
        target = dataclasses.replace(at(middle, patience=PATIENCE), offers=frozenset())
        results = await Suite(target, only=["turns: *", "other: *"], quick=True).run()

    failed = [result for result in results if result.status == FAILED]
    ((why, number), *_) = report.shared_reasons(failed)
    assert number == len(failed) > 10
    assert "$.v" in why and "step" not in why
    shown = io.StringIO()
    report.conclude(Console(file=shown, width=200), results, 1.0, scripted=True)
    assert f"{number} of them for one reason:" in shown.getvalue()


# What no man in the middle can be: it answers pings by itself, and reads for itself.


@contextlib.asynccontextmanager
async def small_door(**options: Any) -> AsyncIterator[int]:
    """Answers hello, `long N` and pings of the protocol, bounds nothing; its port."""

    async def handle(socket: ServerConnection) -> None:
        waiting: asyncio.Queue[str] = asyncio.Queue()

        async def write() -> None:
            while True:
                await socket.send(await waiting.get())

        writer = asyncio.create_task(write())
        try:
            async for raw in socket:
                frame = json.loads(raw)
                if frame["t"] == "hello":
                    waiting.put_nowait(
                        json.dumps({**READY, "device": {**frame["device"], "name": ""}})
                    )
                elif frame["t"] == "text":
                    text = "x" * 200_000 if frame["text"].startswith("long") else frame["text"]
                    chunk = {"index": 0, "total": 1}
                    told = {"t": "message", "id": frame["id"], "text": text, "chunk": chunk}
                    waiting.put_nowait(json.dumps({**told, "final": True}))
                elif frame["t"] == "ping":
                    waiting.put_nowait(json.dumps({"t": "pong", "ts": frame["ts"]}))
        finally:
            writer.cancel()

    async with serve(handle, "127.0.0.1", 0, compression=None, **options) as server:
        yield next(iter(server.sockets)).getsockname()[1]


READY = {
    "t": "ready",
    "v": 1,
    "session": "mobile:x",
    "avatar_url": "",
    "capabilities": {
        "text": True,
        "voice": True,
        "typing": True,
        "avatar_states": ["idle", "thinking", "speaking"],
        "media_in": ["image", "video", "document", "audio"],
        "media_out": ["image", "voice", "video", "document", "animation"],
        "prompts": ["exec_approval", "slash_confirm", "clarify"],
        "edit": True,
        "max_media_bytes": 8388608,
        "max_text_chars": 12000,
    },
}


@pytest.mark.parametrize(
    ("options", "alive", "dead"),
    [
        ({"ping_interval": 0.8, "ping_timeout": 2.2}, "", ""),
        ({"ping_interval": None}, "no WebSocket ping came", "still kept"),
        ({"ping_interval": 0.2, "ping_timeout": 0.7}, "", "given up after"),
    ],
    ids=["as promised", "asks for no sign of life", "gives up too soon"],
)
async def test_silence(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], alive: str, dead: str
) -> None:
    """A silent client is asked for a sign of life, and given up without one, not sooner."""
    monkeypatch.setattr(silence, "GIVEN_UP", 3.0)
    monkeypatch.setattr(silence, "EARLY", 1.5)
    monkeypatch.setattr(silence, "LATE", 3.0)
    titles = (
        "connection: a silent client that answers pings is kept",
        "connection: a client without a sign of life is given up",
    )
    async with small_door(**options) as port:
        target = dataclasses.replace(at(port, patience=PATIENCE), offers=frozenset())
        results = await Suite(target, only=titles).run()

    named = failures(results)
    for title, reason in zip(titles, (alive, dead), strict=True):
        assert reason in named[title] if reason else title not in named, named


async def test_a_door_that_keeps_everything_for_who_reads_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It must cut such a client off."""
    monkeypatch.setattr(silence, "MANY_ANSWERS", 30)
    title = "crowds: who reads nothing is cut off, and holds nobody up"
    async with small_door(ping_interval=None) as port:
        target = dataclasses.replace(at(port, patience=1.0), offers=frozenset())
        results = await Suite(target, only=[title]).run()

    assert "was not cut off" in failures(results)[title]


def test_faults_are_many_and_differ() -> None:
    """Every part of the contract has a door that breaks it."""
    assert len(FAULTS) >= 50
    assert len({fault for fault, _ in FAULTS}) == len(FAULTS)
    assert {title.partition(":")[0] for _, title in FAULTS} >= {
        "audio",
        "cards",
        "connection",
        "crowds",
        "deliver",
        "deliveries",
        "envelope",
        "handshake",
        "hello",
        "media",
        "other",
        "text",
        "texts",
        "turns",
        "uploads",
    }


# --------------------------------------------------------------------------------------------------
# What the kit is told


async def test_without_an_agent_its_checks_are_not_run() -> None:
    """--no-agent leaves out what needs the words, and says so."""
    target = at(1, agent=False)

    checks = Suite(target).checks

    missing = [check for check in checks if check.missing == "needs the scripted agent"]
    assert {"text: a text", "cards: an approval", "texts: a long answer is cut between words"} <= {
        check.title for check in missing
    }
    assert "hello: a wrong token" not in {check.title for check in missing}
    assert "deliveries: a deliver token delivers to a device" not in {
        check.title for check in missing
    }


async def test_what_hermes_does_otherwise_is_left_out_with_its_reason() -> None:
    """--hermes leaves out the few checks that the contract says so of, and nothing else."""
    plain = {check.title: check.missing for check in Suite(at(1)).checks}
    hermes = {check.title: check.missing for check in Suite(at(1, hermes=True)).checks}

    left = {title: reason for title, reason in hermes.items() if reason != plain[title]}
    assert 1 <= len(left) <= 10
    assert all(str(reason).startswith("not with a real Hermes Agent: ") for reason in left.values())


async def test_a_quick_run_leaves_crowds_out() -> None:
    """They take their time, and a door that others use would feel them."""
    reasons = {check.title: check.missing for check in Suite(at(1), quick=True).checks}

    crowds = [reason for title, reason in reasons.items() if title.startswith("crowds: ")]
    assert len(crowds) == 4
    assert all("--quick" in str(reason) for reason in crowds)


async def test_without_other_tokens_their_checks_are_not_run() -> None:
    """With nothing but a token the rest is left out with the option that would let it run."""
    target = Target.of("ws://127.0.0.1:1/ws", "a-token-of-a-door")

    reasons = {check.title: check.missing for check in Suite(target).checks}

    assert "--extra DEVICE=TOKEN" in str(reasons["handshake: a bound token opens its own device"])
    assert "--deliver TOKEN" in str(reasons["text: from a deliver token"])
    assert reasons["text: a text"] is None


async def test_additions_that_are_not_offered_are_not_missed() -> None:
    """A door without additions is a door of protocol v1."""
    target = at(1, offers=frozenset())

    reasons = {check.title: check.missing for check in Suite(target).checks}

    assert reasons["turns: accepted comes once the agent has the message"] == (
        "the door does not offer accepted"
    )
    assert reasons["text: a client that did not name accepted hears nothing"] is None
    assert reasons["hello: no addition named"] is None


def test_devices_are_fresh_in_every_check() -> None:
    """Two checks never speak as the same device, unless the door knows it by name."""
    target = at(1)
    hello = {"frame": {"t": "hello", "token": "contract-main-token", "device": {"id": "tel-1"}}}

    first, second = target.fit(hello, 1).item, target.fit(hello, 2).item

    assert first["frame"]["device"] != second["frame"]["device"]
    assert first["frame"]["token"] == target.token
    bound = target.fit({"frame": {"t": "hello", "device": {"id": "tel-2"}}}, 1)
    assert bound.item["frame"]["device"]["id"] == "tel-2"
    assert bound.locks == {"bound"}
    with pytest.raises(Needs):
        dataclasses.replace(target, bound=None).fit({"id": "tel-2"}, 1)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("http://h/ws", "t"),
        ("ws://", "t"),
        ("ws://h:0/ws", "t"),
        ("ws://h/ws?token=t", "t"),
        ("ws://u:p@h/ws", "t"),
        ("ws://h/ws", ""),
    ],
)
def test_target_that_cannot_be(url: str, token: str) -> None:
    """What cannot be checked is told before anything is sent."""
    with pytest.raises(TargetError):
        Target.of(url, token)


def test_target_shows_no_secret() -> None:
    """A target may be logged."""
    assert "contract-" not in repr(at(1))


def test_every_section_leads_to_a_heading() -> None:
    """What a failure refers to is there."""
    text = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    headings = {
        line.lstrip("# ").lower().replace("`", "").replace(",", "").replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert set(SECTIONS.values()) <= headings
    named = {check.section for check in Suite(at(1)).checks}
    assert named <= set(SECTIONS)


def test_packaged_contract_is_the_contract() -> None:
    """One truth: the kit's files are those of contracts/mobile-v1."""
    source = ROOT / "contracts" / "mobile-v1"
    files = sorted(p.relative_to(source) for p in source.rglob("*.json"))
    assert files
    for file in files:
        assert (contract.ROOT / file).read_bytes() == (source / file).read_bytes(), file


def test_kit_imports_nothing_of_the_door() -> None:
    """The kit knows the door by its frames alone."""
    code = (
        "import sys; import hermes_mobile.conformance.report, hermes_mobile.conformance.command; "
        "print([name for name in sys.modules if name.startswith('hermes_mobile.') "
        "and not name.startswith('hermes_mobile.conformance')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --------------------------------------------------------------------------------------------------
# Reports


async def _some(port: int) -> tuple[Target, list[Result]]:
    target = at(port, token="contract-main-token")
    return target, await conform(target, only=["other: ping", "only listed devices"])


async def test_reports_for_programs(tmp_path: Path) -> None:
    """JUnit and JSON hold every check; a reason with odd characters is still XML."""
    async with door() as port:
        target, results = await _some(port)
    spoiled = dataclasses.replace(results[0], status=FAILED, reason="got \x00 and \ud800 <b>")
    results = [spoiled, *results[1:]]

    report.write_junit(tmp_path / "j.xml", target, results, 1.0)

    tree = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert tree.get("failures") == "1"
    assert tree.get("skipped") == "1"
    assert len(list(tree.iter("testcase"))) == len(results)


async def test_screen_says_reason_and_section() -> None:
    """A failed check has its reason and where the protocol tells it; the end sums up."""
    async with door() as port:
        target, results = await _some(port)
    spoiled = dataclasses.replace(results[0], status=FAILED, reason="it said [no]")
    results = [spoiled, *results[1:]]
    console = Console(record=True, width=100, soft_wrap=True, file=io.StringIO())
    suite = Suite(target, only=["other: ping", "only listed devices"])

    with report.Screen(console, suite) as screen:
        for result in results:
            screen.told(result)
    report.conclude(console, results, 1.0, scripted=False)

    text = console.export_text()
    assert "it said [no]" in text
    assert "see docs/protocol.md#ping" in text
    assert "--no-agent" in text


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--token", "contract-main-token", "--only", "other: ping"], 0, "checks passed"),
        (["--token", "contract-wrong-token"], 2, "does not know this token"),
        (["--token", "contract-main-token", "--only", "nothing like it"], 2, "--list"),
        (["--token", "contract-main-token", "--only", "only listed"], 2, "No check was run"),
        (["--token", "contract-main-token", "--list"], 0, "cards: an approval"),
        (["--token", "t", "--setting", "PORT"], 2, "NAME=VALUE"),
    ],
)
async def test_command_line(arguments: list[str], status: int, said: str) -> None:
    """Status and words of the command."""
    async with door() as port:
        done = await _command(port, *arguments)
    assert done[0] == status, done
    assert said in done[1] + done[2]


async def test_command_line_fails_at_a_broken_door(tmp_path: Path) -> None:
    """Status 1, and the JSON report names the check; the token is in no output."""
    spoiler = next(fault for fault, _ in FAULTS if fault.__name__ == "TsReencoded")
    async with door() as port, between(spoiler(), port) as middle:
        status, out, err = await _command(
            middle, "--token", "contract-main-token", "--only", "other: ping", "--json", "-",
            "--junit", str(tmp_path / "j.xml"),
        )  # fmt: skip

    found = json.loads(out)
    assert status == 1
    assert found["summary"]["failed"] >= 1
    assert any(
        check["status"] == "failed" and "another spelling" in check["name"]
        for check in found["checks"]
    )
    assert "contract-main-token" not in out + err
    assert (tmp_path / "j.xml").is_file()


async def test_nobody_there() -> None:
    """A door that is not there is no failed check."""
    status, out, _ = await _command(1, "--token", "contract-main-token")
    assert status == 2
    assert "Nothing can be checked" in out


class _Answers(asyncio.Protocol):
    """Says the same to everyone: `said` (in bytes; none: nothing at all, for ever)."""

    def __init__(self, said: bytes) -> None:
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._said:
            self._transport.write(self._said)
            self._transport.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "answered with HTTP 200"),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: https://a.example/\r\nContent-Length: 0\r\n\r\n",
            "sends on to https://a.example/",
        ),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no connection"),
        (b"", "timed out"),
    ],
    ids=["a web page", "a redirect", "no HTTP", "nothing"],
)
async def test_what_is_no_door(tmp_path: Path, said: bytes, told: str) -> None:
    """Status 2 with its reason in every report; the token goes nowhere else."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Answers(said), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        status, out, err = await _command(
            port, "--token", "contract-main-token", "--patience", "60" if said else "1",
            "--json", "-", "--junit", str(tmp_path / "j.xml"),
        )  # fmt: skip

    assert status == 2
    report = json.loads(out)
    assert told in report["problem"] and "Nothing can be checked" in err
    assert report["summary"] == {"passed": 0, "failed": 0, "not_run": 0}
    errors = list(ElementTree.parse(tmp_path / "j.xml").iter("error"))
    assert [error.get("message") for error in errors] == [report["problem"]]


async def _command(port: int, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_mobile.cli", "conform", f"ws://127.0.0.1:{port}/ws",
        *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    out, err = await done.communicate()
    assert done.returncode is not None
    return done.returncode, out.decode(), err.decode()
