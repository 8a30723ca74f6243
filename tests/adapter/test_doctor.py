"""The doctor: each finding is shown by a setup that has the fault, and a sound one has none."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from demo.processes import free_port
from hermes_mobile import SETTING_NAMES, doctor, doctor_command, doctor_outside, door_files
from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.doctor import Finding, Level
from hermes_mobile.doctor_outside import Visit, examine
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

from .broken_doors import QueryTokenAccepted
from .man_in_the_middle import Faithful, between

TOKEN = "Vq8sT3kLw0ZrYb5nXe1HcMu7"
PUBLIC = {"MOBILE_PUBLIC_URL": "http://127.0.0.1", "MOBILE_LOOPBACK_DELIVER": "off"}


def bad(found: list[Finding]) -> dict[str, Finding]:
    """What is no good and no mere note, by its text."""
    return {f.what: f for f in found if f.level in (Level.WARNING, Level.PROBLEM)}


def only(found: list[Finding], part: str) -> Finding:
    """The one finding whose text holds this; it says why and what to change."""
    (finding,) = [f for f in found if part in f.what]
    if finding.level is not Level.GOOD:
        assert finding.why
        assert finding.change
    assert TOKEN not in f"{finding}"
    return finding


# --------------------------------------------------------------------------------------------------
# Configuration and tokens


def settings(**environ: str) -> Settings:
    return Settings.from_sources({"MOBILE_TOKEN": TOKEN, **environ})


def test_sound_configuration_has_no_complaint() -> None:
    """Behind a proxy, with the settings of the guide."""
    sound = settings(
        MOBILE_PUBLIC_URL="https://agent.example.com",
        MOBILE_TRUSTED_PROXIES="127.0.0.1",
        MOBILE_HOME_DEVICE="tel-1",
    )

    assert list(doctor.configuration(sound)) == []
    assert bad(list(doctor.tokens(sound))) == {}


@pytest.mark.parametrize(
    ("environ", "level", "part", "change"),
    [
        ({"MOBILE_HOST": "0.0.0.0"}, Level.WARNING, "other machines", "MOBILE_HOST=127.0.0.1"),
        (
            {"MOBILE_PUBLIC_URL": "http://a.example"},
            Level.WARNING,
            "begins with http://",
            "https://a.example",
        ),
        ({}, Level.NOTE, "programs of this machine may deliver", "MOBILE_PUBLIC_URL"),
        (
            {"MOBILE_ALLOWED_ORIGINS": "https://app.example"},
            Level.WARNING,
            "seems to be public",
            "MOBILE_LOOPBACK_DELIVER=off",
        ),
        (
            {"MOBILE_TRUSTED_PROXIES": "0.0.0.0/0"},
            Level.PROBLEM,
            "every address there is",
            "MOBILE_TRUSTED_PROXIES=127.0.0.1",
        ),
        (
            {"MOBILE_ALLOWED_ORIGINS": "http://app.example"},
            Level.WARNING,
            "a page without TLS",
            "https://app.example",
        ),
        (
            {"MOBILE_ALLOWED_DEVICES": "a", "MOBILE_HOME_DEVICE": "b"},
            Level.PROBLEM,
            "the home device b",
            "MOBILE_ALLOWED_DEVICES=a,b",
        ),
        (
            {"MOBILE_ALLOWED_DEVICES": "a", "MOBILE_EXTRA_TOKENS": f"b={TOKEN}x"},
            Level.PROBLEM,
            "b has a token of its own",
            "add b",
        ),
        ({}, Level.NOTE, "no home device", "MOBILE_HOME_DEVICE="),
        ({"MOBILE_PROMPT_TTL": "5"}, Level.WARNING, "a card waits 5 s", "MOBILE_PROMPT_TTL=300"),
    ],
)
def test_configuration(environ: dict[str, str], level: Level, part: str, change: str) -> None:
    """Each fault of the settings, with the line to change."""
    finding = only(list(doctor.configuration(settings(**environ))), part)

    assert finding.level is level
    assert change in finding.change


@pytest.mark.parametrize(
    ("token", "level"),
    [
        ("short", Level.PROBLEM),
        ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", Level.PROBLEM),
        ("12345678901234567890123456789012", Level.PROBLEM),
        ("changeme-hermes-mobile-token-1234", Level.PROBLEM),
        ("Vq8sT3kLw0ZrYb5n", Level.WARNING),
    ],
)
def test_weak_tokens(token: str, level: Level) -> None:
    """A token that can be guessed is named by its setting, not shown."""
    found = bad(list(doctor.tokens(Settings.from_sources({"MOBILE_TOKEN": token}))))

    ((what, finding),) = found.items()
    assert what.startswith("MOBILE_TOKEN: ")
    assert finding.level is level
    assert token not in f"{finding}"


def test_tokens_that_open_too_much() -> None:
    """One token in two lists, and one twice."""
    both = list(doctor.tokens(settings(MOBILE_DELIVER_TOKENS=TOKEN)))
    twice = list(doctor.tokens(settings(MOBILE_EXTRA_TOKENS=f"a={TOKEN}")))

    assert only(both, "both among the apps'").level is Level.WARNING
    assert only(twice, "the same token").level is Level.WARNING


def test_unusable_settings_say_which_line() -> None:
    """What keeps the door closed is the finding."""
    found = doctor.settings_of({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "many"})

    assert found[0] is None
    assert found[1][0].level is Level.PROBLEM
    assert "MOBILE_PORT" in found[1][0].what


def test_misspelled_setting() -> None:
    """A name that is nearly a setting."""
    found = list(
        doctor.misspelled(
            {"MOBILE_DELIVER_TOKEN": "x", "MOBILE_ALLOW_ALL_USERS": "1"}, list(SETTING_NAMES)
        )
    )

    assert only(found, "MOBILE_DELIVER_TOKEN is no setting").change.endswith(
        "MOBILE_DELIVER_TOKENS"
    )
    assert len(found) == 1


def test_config_of_hermes() -> None:
    """The plugin is not enabled, the platform is off, answers do not stream."""
    found = list(doctor.enabled({"platforms": {"mobile": {"enabled": False}}}))

    assert only(found, "plugins.enabled").change == "hermes plugins enable mobile-platform"
    assert only(found, "platforms.mobile.enabled is false")
    assert only(found, "streaming is off").level is Level.NOTE
    sound = {"plugins": {"enabled": ["mobile-platform"]}, "streaming": {"enabled": True}}
    assert list(doctor.enabled(sound)) == []


def test_hooks_that_hermes_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter's own self-check is told; an adapter that cannot be imported as well."""
    monkeypatch.setattr(doctor, "_installed", lambda name: name == "hermes-agent")
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda name: "0.19.0")
    monkeypatch.setattr(doctor, "lacking_hooks", lambda: ["BasePlatformAdapter.send_draft"])

    found = list(doctor.hermes())

    assert only(found, "hermes-agent 0.19.0").level is Level.GOOD
    assert only(found, "lacks BasePlatformAdapter.send_draft").level is Level.WARNING
    monkeypatch.undo()
    assert "what the adapter imports" in doctor.lacking_hooks()[0]  # no Hermes here


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the platform from opening its door."""
    monkeypatch.setattr(doctor, "missing_packages", lambda: ["picows"])

    assert only(list(doctor.hermes()), "this Python lacks picows").level is Level.PROBLEM


def test_secret_that_others_can_read(tmp_path: Path) -> None:
    """The secret of Hermes' own senders."""
    door_files.secret(tmp_path)
    path = tmp_path / "mobile" / door_files.SECRET_NAME

    assert [f.level for f in doctor.files(tmp_path)] == [Level.GOOD]
    path.chmod(0o644)
    assert only(list(doctor.files(tmp_path)), "other users").level is Level.PROBLEM


# --------------------------------------------------------------------------------------------------
# Port and running door


@contextlib.asynccontextmanager
async def door(**environ: str) -> AsyncIterator[int]:
    """The real door with the scripted agent; its port."""
    agent = ScriptedAgent()
    opened = Door(
        Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "0", **environ}), agent
    )
    agent.attach(opened)
    await opened.start()
    try:
        yield opened.port
    finally:
        await agent.close()
        await opened.stop()


async def port_findings(number: int) -> list[Finding]:
    return await asyncio.to_thread(lambda: list(doctor.port(settings(MOBILE_PORT=str(number)))))


async def test_running_door(monkeypatch: pytest.MonkeyPatch) -> None:
    """The door that runs is found, and an older one than the installed is told."""
    async with door() as port:
        found = await port_findings(port)
        monkeypatch.setattr("hermes_mobile.__version__", "99.0")
        newer = await port_findings(port)

    assert only(found, f"open at ws://127.0.0.1:{port}/ws").level is Level.GOOD
    assert only(newer, "installed is 99.0").level is Level.WARNING


async def test_port_of_another_program() -> None:
    """Something else answers there: HTTP, or nothing that is HTTP."""
    async with relay(0, status=200) as port:
        found = await port_findings(port)
    assert only(found, "in use by another program").level is Level.PROBLEM

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    async with server:
        found = await port_findings(server.sockets[0].getsockname()[1])
    assert only(found, "in use by another program").level is Level.PROBLEM


async def test_free_port_and_impossible_host() -> None:
    """Nothing runs; or the address is not of this machine."""
    free = free_port()
    assert only(await port_findings(free), "no door is open").level is Level.NOTE

    elsewhere = settings(MOBILE_HOST="192.0.2.1", MOBILE_PORT=str(free))
    object.__setattr__(elsewhere, "host", "192.0.2.1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "health", lambda url: None)
        found = list(doctor.port(elsewhere))
    assert only(found, "cannot listen on 192.0.2.1").level is Level.PROBLEM


# --------------------------------------------------------------------------------------------------
# From outside, through proxies with a fault

Lines = list[bytes]


@contextlib.asynccontextmanager
async def relay(
    port: int,
    *,
    head: Callable[[Lines], Lines] = lambda lines: lines,
    status: int | None = None,
    location: str = "",
    hold: float = 0.0,
    idle: float | None = None,
    most: int | None = None,
) -> AsyncIterator[int]:
    """A proxy before the door at `port`. `head` changes the request's head; `status`: answers that
    and asks nobody; `hold`: keeps what the door says for so long; `idle`: cuts after so much
    silence; `most`: cuts after so many bytes of a client."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        upstream: asyncio.StreamWriter | None = None
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            if status is not None:
                body = b"<html></html>"
                writer.write(
                    b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                    % (status, f"Location: {location}\r\n".encode(), len(body), body)
                )
                await writer.drain()
                return
            lines = head(request.removesuffix(b"\r\n\r\n").split(b"\r\n"))
            answers, upstream = await asyncio.open_connection("127.0.0.1", port)
            upstream.write(b"\r\n".join(lines) + b"\r\n\r\n")
            moved = [asyncio.get_running_loop().time()]
            pumps = [
                asyncio.create_task(_pump(reader, upstream, moved, most=most)),
                asyncio.create_task(_pump(answers, writer, moved, hold=hold)),
            ]
            if idle is not None:
                pumps.append(asyncio.create_task(_until_idle(moved, idle)))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    moved: list[float],
    *,
    hold: float = 0.0,
    most: int | None = None,
) -> None:
    total = 0
    first = True
    while data := await source.read(2**18):
        moved[0] = asyncio.get_running_loop().time()
        total += len(data)
        if most is not None and total > most:
            return
        if hold and not first:
            await asyncio.sleep(hold)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    data += await source.read(2**20)
        first = False
        target.write(data)
        await target.drain()


async def _until_idle(moved: list[float], seconds: float) -> None:
    while (left := moved[0] + seconds - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(left)


def without(*names: bytes) -> Callable[[Lines], Lines]:
    """A proxy that takes header fields away."""

    def change(lines: Lines) -> Lines:
        return [line for line in lines if line.partition(b":")[0].lower() not in names]

    return change


def forwarding(lines: Lines) -> Lines:
    """A proxy that says for whom it asks."""
    return [*lines, b"X-Forwarded-For: 203.0.113.9", b"X-Forwarded-Proto: https"]


async def outside(port: int, **options: Any) -> list[Finding]:
    visit = Visit(f"ws://127.0.0.1:{port}/ws", TOKEN, **{"idle": 0.3, **options})
    return await examine(visit)


async def test_sound_address_is_well() -> None:
    """Behind a proxy as the guide sets it up, nothing is found."""
    async with door(**PUBLIC) as port, relay(port, head=forwarding) as proxy:
        found = await outside(proxy)

    assert bad(found) == {}
    assert [f.area for f in found] == [
        "upgrade", "origin", "deliveries", "token", "latency", "answers", "frames", "silence",
    ]  # fmt: skip
    assert all(f.level is Level.GOOD for f in found)


async def test_proxy_that_drops_the_upgrade() -> None:
    """Without the two lines of nginx no app can connect."""
    async with door() as port, relay(port, head=without(b"upgrade", b"connection")) as proxy:
        finding = only(await outside(proxy), "the upgrade does not reach the door")

    assert finding.level is Level.PROBLEM
    assert "proxy_set_header Upgrade" in finding.change


@pytest.mark.parametrize(
    ("status", "part"),
    [(200, "HTTP 200"), (404, "HTTP 404"), (403, "no Origin was sent"), (502, "HTTP 502")],
)
async def test_address_that_is_no_door(status: int, part: str) -> None:
    """Something else answers."""
    async with relay(0, status=status) as proxy:
        assert only(await outside(proxy), part).level is Level.PROBLEM


@pytest.mark.parametrize(
    ("location", "change"),
    [
        ("https://a.example/ws", "wss://a.example/ws"),
        ("http://a.example/ws", "location = /ws"),
        ("ws://a.example/ws?token=t", "location = /ws"),
    ],
)
async def test_redirect_is_not_followed(location: str, change: str) -> None:
    """The token is not for whom a redirect names; the finding says where it leads."""
    async with relay(0, status=301, location=location) as proxy:
        finding = only(await outside(proxy), "is sent on to")

    assert finding.level is Level.PROBLEM
    assert change in finding.change
    assert "token=" not in finding.what


async def test_sign_in_before_the_door() -> None:
    """It is no missing Upgrade line that a 401 tells of."""
    async with relay(0, status=401) as proxy:
        finding = only(await outside(proxy), "no Origin was sent")

    assert "auth_basic off" in finding.change


async def test_page_of_no_origin_may_connect() -> None:
    """A sandboxed page has the origin `null`."""

    def nameless(lines: Lines) -> Lines:
        return [line for line in lines if line.lower() != b"origin: null"]

    async with door(**PUBLIC) as port, relay(port, head=nameless) as proxy:
        finding = only(await outside(proxy), "the origin null")

    assert finding.level is Level.PROBLEM


async def test_nobody_there_and_wrong_token() -> None:
    """The address is dead; or the token is not the door's."""
    assert only(await outside(free_port()), "cannot be reached").level is Level.PROBLEM
    async with door() as port:
        found = await examine(Visit(f"ws://127.0.0.1:{port}/ws", "not-the-token", idle=0.1))
    assert only(found, "does not know this token").level is Level.PROBLEM


async def test_proxy_that_hides_the_origin() -> None:
    """Then every page of the web may connect."""
    async with door(**PUBLIC) as port, relay(port, head=without(b"origin")) as proxy:
        finding = only(await outside(proxy), "foreign origin (https://attacker.example)")

    assert finding.level is Level.PROBLEM
    assert "Origin" in finding.change


async def test_pages_of_the_address_itself_are_kept_out() -> None:
    """A proxy that asks under another Host: a note, apps are not concerned."""

    def renamed(lines: Lines) -> Lines:
        return [b"Host: door.internal" if s.lower().startswith(b"host:") else s for s in lines]

    async with door(**PUBLIC) as port, relay(port, head=renamed) as proxy:
        assert only(await outside(proxy), "itself may not connect").level is Level.NOTE


async def test_loopback_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy without forwarding headers makes every stranger the owner's own machine."""
    async with door() as port, relay(port) as proxy:
        here = only(await outside(proxy, own=False), "ordinary token may deliver")
        own = only(await outside(proxy, own=True), "ordinary token may deliver")
        monkeypatch.setattr(doctor_outside, "is_loopback_host", lambda host: False)
        public = only(await outside(proxy), "ordinary token may deliver")

    assert here.level is Level.WARNING
    assert own.level is Level.NOTE
    assert public.level is Level.PROBLEM
    assert "loopback trap" in public.what
    assert "MOBILE_PUBLIC_URL=" in public.change


async def test_forwarding_header_closes_the_trap() -> None:
    """The same door behind a proxy that says for whom it asks."""
    async with door() as port, relay(port, head=forwarding) as proxy:
        assert only(await outside(proxy), "ordinary token may not deliver").level is Level.GOOD


async def test_token_in_the_address() -> None:
    """A door that takes it; and at a public address your token is not put into one."""
    async with door(**PUBLIC) as port, between(QueryTokenAccepted(), port) as broken:
        assert only(await outside(broken), "in the address opens the door").level is Level.PROBLEM


async def test_public_address_gets_no_real_token_in_a_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a proxy could log is a made-up token, unless it was asked for."""
    heads: list[bytes] = []

    def note(lines: Lines) -> Lines:
        heads.extend(lines)
        return lines

    monkeypatch.setattr(doctor_outside, "is_loopback_host", lambda host: False)
    async with door(**PUBLIC) as port, relay(port, head=note) as proxy:
        finding = only(await outside(proxy), "is not looked at")
        assert TOKEN.encode() not in b"\n".join(heads)
        assert only(await outside(proxy, leak=True), "does not open the door")
        assert TOKEN.encode() in b"\n".join(heads)
    assert finding.level is Level.GOOD


async def test_proxy_that_limits_frames() -> None:
    """16 MiB end the connection, less passes: the size that does is told."""
    async with door(**PUBLIC) as port, relay(port, most=6 * 2**20) as proxy:
        finding = only(await outside(proxy, turn=False), "16 MiB does not pass")

    assert finding.level is Level.PROBLEM
    assert "4 MiB do" in finding.what


async def test_proxy_that_cuts_silence() -> None:
    """An idle limit shorter than the heartbeat."""
    async with door(**PUBLIC) as port, relay(port, idle=0.5) as proxy:
        finding = only(await outside(proxy, idle=5.0, turn=False), "silent connection ended")

    assert finding.level is Level.PROBLEM
    assert "proxy_read_timeout" in finding.change


async def test_proxy_that_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that wait for company: the answer comes in heaps, a pong late."""
    monkeypatch.setattr(doctor_outside, "ANSWERS", 1)  # a second one would take as long
    async with door(**PUBLIC) as port, relay(port, hold=1.3) as proxy:
        found = await outside(proxy)

    assert only(found, "a frame is back after").level is Level.WARNING
    finding = only(found, "held back on the way")
    assert finding.level is Level.PROBLEM
    assert "proxy_buffering off" in finding.change


async def test_answer_that_was_held_up_once() -> None:
    """A busy machine does so now and then; a proxy that collects frames does so each time."""

    class HeldUpOnce(Faithful):
        held = False

        async def outward(self, talk: Any, frame: dict[str, Any], raw: Any) -> Any:
            if not self.held and "word5" in str(frame.get("text")):
                self.held = True
                await asyncio.sleep(1.5)
            return (raw,)

    busy = HeldUpOnce()
    async with door(**PUBLIC) as port, between(busy, port) as middle:
        finding = only(await outside(middle), "answers")
    assert busy.held and finding.level is Level.GOOD


async def test_agent_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be said of buffering then."""
    monkeypatch.setattr(doctor_outside, "WORDS", 0)  # `stream 0 …` is echoed: a whole answer
    async with door(**PUBLIC) as port:
        found = await outside(port)
        assert only(found, "the answer came whole").level is Level.NOTE


def test_address_without_tls() -> None:
    """ws:// to another machine."""
    visit = Visit("ws://192.0.2.1:9/ws", TOKEN)
    assert not visit.loopback
    assert TOKEN not in repr(visit)


# --------------------------------------------------------------------------------------------------
# The command


async def command(*arguments: str, **environ: str) -> tuple[int, str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MOBILE_", "HERMES_"))}
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_mobile.cli", "doctor", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**kept, **environ},
        cwd=Path(__file__).resolve().parents[2],
    )  # fmt: skip
    out, err = await done.communicate()
    assert done.returncode is not None
    return done.returncode, out.decode(), err.decode()


async def test_command_line(tmp_path: Path) -> None:
    """What people see, what programs get, and the exit status; the token is in neither."""
    async with door(**PUBLIC) as port:
        environ = {
            "MOBILE_TOKEN": TOKEN, "MOBILE_PORT": str(port), "HERMES_HOME": str(tmp_path),
            "MOBILE_HOME_DEVICE": "a", **PUBLIC,
        }  # fmt: skip
        url = f"ws://127.0.0.1:{port}/ws"
        status, out, err = await command("--url", url, "--idle", "0.2", **environ)
        as_json = await command("--json", "--url", url, "--idle", "0.2", "--no-turn", **environ)
    assert (status, err) == (0, ""), out
    assert "From outside" in out
    assert "All well." in out
    found = json.loads(as_json[1])["findings"]
    assert {row["area"] for row in found} >= {"tokens", "door", "origin", "frames"}
    assert TOKEN not in out + "".join(map(str, as_json))


@pytest.mark.parametrize(
    ("arguments", "environ", "status", "said"),
    [
        ([], {}, 1, "MOBILE_TOKEN is not set"),
        (["--url", "http://h/ws"], {"MOBILE_TOKEN": TOKEN}, 2, "--url must look like"),
        (["--url", "ws://h/ws"], {}, 2, "needs a token"),
        (["--only-outside"], {"MOBILE_TOKEN": TOKEN}, 2, "needs --url"),
        (
            ["--only-outside", "--url", "ws://127.0.0.1:1/ws"],
            {"MOBILE_TOKEN": TOKEN},
            1,
            "cannot be reached",
        ),
    ],
)
async def test_command_line_status(
    tmp_path: Path, arguments: list[str], environ: dict[str, str], status: int, said: str
) -> None:
    """Asked wrongly, or sick."""
    done = await command(*arguments, HERMES_HOME=str(tmp_path), **environ)
    assert done[0] == status, done
    assert said in done[1] + done[2]


def test_hermes_mobile_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command below `hermes mobile`."""
    from hermes_mobile import owner_cli

    parser = argparse.ArgumentParser()
    owner_cli.setup(parser)
    args = parser.parse_args(["doctor", "--url", "wss://h/ws", "--token", "t", "--idle", "1"])
    seen: list[argparse.Namespace] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args)
        return len(seen) - 1

    monkeypatch.setattr(doctor_command, "run", run)
    owner_cli.run(args)
    with pytest.raises(SystemExit) as ended:
        owner_cli.run(args)

    assert (seen[0].url, seen[0].idle, ended.value.code) == ("wss://h/ws", 1.0, 1)


def test_settings_of_the_config_file() -> None:
    """Keys of the platform, and below its `extra`."""
    config = {"platforms": {"mobile": {"port": 1, "extra": {"home_device": "a"}, "other": 2}}}

    assert doctor_command.extra(config) == {"port": 1, "home_device": "a"}
    assert doctor_command.extra({"platforms": None}) == {}
