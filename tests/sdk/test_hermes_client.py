"""The Python client against a server that says exactly what each test needs."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import logging
import socket
import stat
import struct
import textwrap
from pathlib import Path
from typing import Any

import pytest

import hermes_client
from hermes_client import (
    Accepted,
    AuthFailed,
    Avatar,
    ClosedError,
    ConnectError,
    Device,
    Disconnected,
    Event,
    FileTooBig,
    Forbidden,
    HermesClient,
    HermesError,
    Media,
    MediaFailed,
    MediaProgress,
    Message,
    Pong,
    Prompt,
    PromptDone,
    Ready,
    RejectedError,
    Replaced,
    ServerError,
    StoppedError,
    Typing,
    Unknown,
    UnsupportedVersion,
    User,
)
from tests.sdk.small_server import (
    TOKEN,
    Connection,
    Handler,
    SmallServer,
    media_frames,
    running,
    serving,
    stay,
    within,
)

MIB = 1024 * 1024


def client_of(server: SmallServer, tmp_path: Path, **options: Any) -> HermesClient:
    options.setdefault("token", TOKEN)
    options.setdefault("device", "tablet")
    options.setdefault("backoff", lambda attempt: 0.01)
    return HermesClient(server.url, downloads=tmp_path / "in", **options)


async def first(client: HermesClient, kind: type[Any], count: int = 1) -> list[Any]:
    """The next `count` events of a kind."""
    found: list[Event] = []

    async def look() -> None:
        async for event in client:
            if isinstance(event, kind):
                found.append(event)
                if len(found) == count:
                    return

    await within(look())
    return found


async def until_end(client: HermesClient) -> list[Event]:
    """All events up to the frame ``end`` of a handler."""
    seen: list[Event] = []

    async def look() -> None:
        async for event in client:
            if isinstance(event, Unknown) and event.t == "end":
                return
            seen.append(event)

    await within(look())
    return seen


# ── entering ──────────────────────────────────────────────────────────────────────────────────────


async def test_hello_says_who_we_are_and_ready_is_typed(tmp_path: Path) -> None:
    async with serving(stay) as server:
        device = Device("tablet", name="Küche", platform="linux", app_version="1.0")
        async with client_of(server, tmp_path, device=device, user=User("u-1", "Ada")) as client:
            (ready,) = await first(client, Ready)
            assert client.connected
            assert client.session == "mobile:tablet"
    assert ready.session == "mobile:tablet"
    assert ready.version == 1
    assert ready.capabilities.max_media_bytes == 8 * MIB
    assert ready.capabilities.media_in == ("image", "video", "document", "audio")
    assert server.hellos == [
        {
            "t": "hello",
            "token": TOKEN,
            "device": {
                "id": "tablet",
                "name": "Küche",
                "platform": "linux",
                "app_version": "1.0",
            },
            "user": {"id": "u-1", "name": "Ada"},
            "supports": ["accepted", "partial_edits"],
        }
    ]


async def test_a_device_id_chosen_by_the_server_is_kept_over_reconnects(tmp_path: Path) -> None:
    async def cut_once(connection: Connection) -> None:
        if connection.number == 1:
            connection.cut()
        await stay(connection)

    async with serving(cut_once) as server:
        async with client_of(server, tmp_path, device=None) as client:
            await first(client, Ready, 2)
    assert "id" not in server.hellos[0]["device"]
    assert server.hellos[1]["device"]["id"] == "dev-5e7f"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8787",
        "ftp://host/ws",
        "ws://",
        "ws://[::1/ws",
        "ws://h:port/ws",
        "ws://h:99999/ws",
        "ws://h/ws?token=abc",
        "ws://h/ws?a=1&%74oken=abc",
        "ws://h/ws?Password=abc",
        "ws://h/ws?x-api-key=abc",
        "ws://h/ws?x=1&App_Token=z",
    ],
)
def test_an_address_that_cannot_be_right_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="address") as caught:
        HermesClient(url, token="t" * 20)
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("ws://h:1/ws", "ws://h:1/ws"),
        ("wss://h", "wss://h/ws"),
        ("https://h/", "wss://h/ws"),
        ("http://h:8787/door/ws", "ws://h:8787/door/ws"),
    ],
)
def test_addresses_are_completed(given: str, used: str) -> None:
    assert f" {used} " in repr(HermesClient(given, token="t" * 20))


@pytest.mark.parametrize("token", ["", "  ", "\ud800"])
def test_an_unusable_token_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match="token"):
        HermesClient("ws://h/ws", token=token)


@pytest.mark.parametrize(
    "id",
    ["", " ", "a:b", "a/b", "a\nb", "a\x85", "x" * 121, "\udcff", "a\u200b", "a\u202eb", "a\u2028"],
)
def test_an_unusable_device_id_is_refused(id: str) -> None:
    with pytest.raises(ValueError, match="device"):
        HermesClient("ws://h/ws", token=TOKEN, device=id)


async def test_a_server_that_is_not_there_is_reported_with_the_reason(tmp_path: Path) -> None:
    async with serving(stay) as server:
        pass
    client = client_of(server, tmp_path, connect_timeout=2)
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1.*cannot reach"):
        await within(client.open())


async def test_the_client_waits_for_a_server_that_starts_later(tmp_path: Path) -> None:
    async with serving(stay) as server:
        port = int(server.url.rsplit(":", 1)[1].split("/")[0])
    client = client_of(server, tmp_path)
    opening = asyncio.create_task(client.open())
    from websockets.asyncio.server import serve

    late = SmallServer(stay)
    async with serve(late._serve, "127.0.0.1", port):
        await within(opening)
        assert client.connected
        await client.close()


async def test_a_page_instead_of_a_door_is_reported(tmp_path: Path) -> None:
    from websockets.asyncio.server import serve

    def not_found(connection: Any, request: Any) -> Any:
        return connection.respond(404, "no such page\n")

    async with serve(stay, "127.0.0.1", 0, process_request=not_found) as listening:  # type: ignore[arg-type]
        port = listening.sockets[0].getsockname()[1]
        client = HermesClient(f"ws://127.0.0.1:{port}/", token=TOKEN, connect_timeout=2)
        with pytest.raises(ConnectError, match="HTTP 404"):
            await within(client.open())


async def test_a_redirect_never_carries_the_token_elsewhere(tmp_path: Path) -> None:
    from websockets.asyncio.server import serve

    async with serving(stay) as elsewhere:

        def redirect(connection: Any, request: Any) -> Any:
            response = connection.respond(302, "")
            response.headers["Location"] = elsewhere.url
            return response

        async with serve(stay, "127.0.0.1", 0, process_request=redirect) as listening:  # type: ignore[arg-type]
            port = listening.sockets[0].getsockname()[1]
            client = HermesClient(f"ws://127.0.0.1:{port}/", token=TOKEN, connect_timeout=2)
            with pytest.raises(ConnectError, match="HTTP 302"):
                await within(client.open())
    assert elsewhere.hellos == []


# ── leaving ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_wrong_token_stops_the_client_and_says_why(tmp_path: Path) -> None:
    async with serving(stay) as server:
        client = client_of(server, tmp_path, token="wrong-wrong-wrong-wrong")
        with pytest.raises(AuthFailed, match="wrong token") as caught:
            await within(client.open())
        assert caught.value.code == "auth_failed"
        assert server.count == 1
        assert "wrong-wrong" not in str(caught.value) + repr(caught.value) + repr(client)
        assert client.stopped is caught.value


async def test_forbidden_at_hello_stops_the_client(tmp_path: Path) -> None:
    server = SmallServer(stay)

    async def forbid(connection: Connection, hello: Any) -> None:
        await connection.close(1008, "forbidden")  # the reason alone is enough

    server.greet = forbid  # type: ignore[method-assign]
    async with running(server):
        with pytest.raises(Forbidden):
            await within(client_of(server, tmp_path).open())
    assert server.count == 1


async def test_a_replaced_client_stops_and_does_not_fight(tmp_path: Path) -> None:
    async def replace(connection: Connection) -> None:
        await connection.hear("text")
        await connection.close(4001, "replaced")

    async with serving(replace) as server, client_of(server, tmp_path) as client:
        with pytest.raises(Replaced):
            await within(client.send_text("hello"))
        with pytest.raises(Replaced, match="another place"):
            await first(client, Message)
        with pytest.raises(Replaced):
            await client.send_text("again")
        assert not client.connected
        assert server.count == 1


async def test_a_token_revoked_later_stops_the_client(tmp_path: Path) -> None:
    async def revoke(connection: Connection) -> None:
        await connection.say("error", code="auth_failed", message="revoked", fatal=True)
        await connection.close(1008, "auth_failed")

    async with serving(revoke) as server, client_of(server, tmp_path) as client:
        with pytest.raises(AuthFailed, match="revoked"):
            await first(client, Message)
        assert server.count == 1


class OtherVersion(SmallServer):
    """Says `version` in `ready` of the connections from `since` on."""

    def __init__(self, version: Any, *, since: int = 1, handler: Handler = stay) -> None:
        super().__init__(handler)
        self._version, self._since = version, since

    async def greet(self, connection: Connection, hello: Any) -> None:
        if connection.number < self._since:
            await super().greet(connection, hello)
            return
        await connection.say("ready", v=self._version, session="mobile:x", device={"id": "x"})
        await stay(connection)


@pytest.mark.parametrize("version", [2, 0, -1, 1.0, "1", True, [1]])
async def test_another_protocol_version_stops_the_client_and_says_so(
    tmp_path: Path, version: Any
) -> None:
    async with running(OtherVersion(version)) as server:
        client = client_of(server, tmp_path)
        with pytest.raises(UnsupportedVersion, match=r"version .*; update") as caught:
            await within(client.open())
        assert isinstance(caught.value, StoppedError)
        assert caught.value.code == "unsupported_version"
        assert client.stopped is caught.value
        assert client.session is None and not client.connected
        assert server.count == 1


async def test_a_server_that_was_updated_meanwhile_stops_the_client(tmp_path: Path) -> None:
    async def cut_at_a_text(connection: Connection) -> None:
        await connection.hear("text")
        connection.cut()

    async with running(OtherVersion(2, since=2, handler=cut_at_a_text)) as server:
        async with client_of(server, tmp_path) as client:
            with pytest.raises(UnsupportedVersion):
                await within(client.send_text("hello"))
            with pytest.raises(UnsupportedVersion, match="version 2"):
                await until_end(client)
            with pytest.raises(UnsupportedVersion):
                await client.typing()
        assert server.count == 2
        assert len(server.of("text")) == 1  # nothing is said to a server that speaks otherwise


async def test_a_ready_that_names_no_version_is_version_1(tmp_path: Path) -> None:
    async with running(OtherVersion(None)) as server:
        async with client_of(server, tmp_path) as client:
            (ready,) = await first(client, Ready)
    assert ready.version == 1


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1009, 1011, 1013, 4000, None])
async def test_every_other_end_is_passing(tmp_path: Path, code: int | None) -> None:
    async def end_once(connection: Connection) -> None:
        if connection.number > 1:
            return await stay(connection)
        if code is None:
            connection.cut()
        else:
            await connection.close(code, "for now")

    async with serving(end_once) as server, client_of(server, tmp_path) as client:
        events = []

        async def look() -> None:
            async for event in client:
                events.append(event)
                if sum(isinstance(e, Ready) for e in events) == 2:
                    return

        await within(look())
        (lost,) = [e for e in events if isinstance(e, Disconnected)]
        assert lost.code == (code or 1006)
        assert lost.retry_in == pytest.approx(0.01)


async def test_the_pauses_grow_while_nothing_gets_better(tmp_path: Path) -> None:
    asked: list[int] = []

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 0.0

    async def misbehave(connection: Connection) -> None:
        if connection.number < 6:
            await connection.close(1011)
        elif connection.number == 6:
            await connection.say("message", id="m", text="x", chunk={"index": 0, "total": 1})
            await connection.close(1011)
        await stay(connection)

    async with serving(misbehave) as server, client_of(server, tmp_path, backoff=backoff) as client:
        await first(client, Ready, 7)
    assert asked == [0, 1, 2, 3, 4, 0]


def test_the_usual_pause_is_jittered_and_bounded() -> None:
    for attempt in range(40):
        pauses = [hermes_client._default_backoff(attempt) for _ in range(50)]
        assert 0 < min(pauses) < max(pauses) <= 30
    assert max(hermes_client._default_backoff(0) for _ in range(200)) <= 0.5


async def test_closing_ends_the_iteration_and_the_open_sends(tmp_path: Path) -> None:
    async with serving(stay) as server:
        client = client_of(server, tmp_path)
        await client.open()
        sending = asyncio.create_task(client.send_text("never accepted"))
        reading = asyncio.create_task(until_end(client))
        await asyncio.sleep(0)
        await within(client.close())
        with pytest.raises(ClosedError):
            await within(sending)
        await within(reading)
        with pytest.raises(ClosedError):
            await client.send_text("late")
        with pytest.raises(ClosedError):
            await client.open()


async def test_a_client_that_was_never_opened_says_so() -> None:
    client = HermesClient("ws://127.0.0.1:1/ws", token=TOKEN)
    for call in (client.send_text("x"), client.typing(), anext(client)):
        with pytest.raises(ClosedError, match="async with"):
            await call


async def test_silence_ends_the_connection_and_any_byte_is_life(tmp_path: Path) -> None:
    """No pong ever comes; a trickle of another frame's bytes keeps the first connection alive."""
    pings = 0

    async def quiet(connection: Connection) -> None:
        nonlocal pings
        if connection.number > 1:
            return await stay(connection)
        while pings < 6:  # three silences long
            frame = json.loads(await connection.socket.recv())
            assert frame["t"] == "ping"
            pings += 1
            await connection.say("typing")
        await connection.socket.wait_closed()

    async with serving(quiet) as server, client_of(server, tmp_path, heartbeat=0.4) as client:
        (lost,) = await first(client, Disconnected)
        assert "no sign of life" in lost.reason
        assert pings == 6
        await first(client, Ready)


# ── sending ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_text_is_sent_until_it_is_accepted_under_one_id(tmp_path: Path) -> None:
    async def lose_twice(connection: Connection) -> None:
        if connection.number < 3:
            await connection.hear("text")
            connection.cut()
        await connection.accept_all()

    async with serving(lose_twice) as server, client_of(server, tmp_path) as client:
        id = await within(client.send_text("hello"))
        (accepted,) = await first(client, Accepted)
    assert accepted.id == id
    sent = server.of("text")
    assert sent == [{"t": "text", "id": id, "text": "hello"}] * 3


async def test_what_was_accepted_is_not_sent_again(tmp_path: Path) -> None:
    async def accept_then_cut(connection: Connection) -> None:
        frame = await connection.hear("text")
        await connection.say("accepted", id=frame["id"])
        if connection.number == 1:
            await connection.hear("text")  # written, never accepted here
            connection.cut()
        await stay(connection)

    async with serving(accept_then_cut) as server, client_of(server, tmp_path) as client:
        await within(asyncio.gather(client.send_text("one"), client.send_text("two")))
    assert [f["text"] for f in server.of("text")] == ["one", "two", "two"]


async def test_a_plain_server_is_sent_only_what_was_not_written(tmp_path: Path) -> None:
    async def cut_after_two(connection: Connection) -> None:
        if connection.number == 1:
            await connection.hear("text")
            await connection.hear("text")
            connection.cut()
        await stay(connection)

    async with (
        serving(cut_after_two, extensions=()) as server,
        client_of(server, tmp_path) as client,
    ):
        await within(client.send_text("one"))
        await within(client.send_text("two"))
        await first(client, Disconnected)
        await within(client.send_text("three"))
        while len(server.of("text")) < 3:
            await asyncio.sleep(0.005)
    assert [f["text"] for f in server.of("text")] == ["one", "two", "three"]


async def test_messages_keep_their_order_over_drops(tmp_path: Path) -> None:
    taken: list[str] = []

    async def unsteady(connection: Connection) -> None:
        for _ in range(3):
            frame = await connection.hear("text")
            if frame["id"] not in taken:
                taken.append(frame["id"])
            if connection.number % 2:
                await connection.say("accepted", id=frame["id"])
            if len(taken) == len(ids):
                break
        if connection.number % 2 and len(taken) == len(ids):
            await connection.accept_all()
        connection.cut()

    ids = [f"m-{n}" for n in range(20)]

    async with serving(unsteady) as server, client_of(server, tmp_path) as client:
        await within(asyncio.gather(*(client.send_text(i, id=i) for i in ids)))
    assert taken == ids
    assert server.count > 3


async def test_a_refusal_names_its_message_and_touches_no_other(tmp_path: Path) -> None:
    async def refuse(connection: Connection) -> None:
        bad = await connection.hear("text")
        good = await connection.hear("text")
        await connection.say(
            "error", code="internal_error", message="not now", fatal=False, id=bad["id"]
        )
        await connection.say("accepted", id=good["id"])
        await connection.accept_all()

    async with serving(refuse) as server, client_of(server, tmp_path) as client:
        first_, second = await within(
            asyncio.gather(
                client.send_text("bad", id="b"), client.send_text("good"), return_exceptions=True
            )
        )
        assert isinstance(first_, RejectedError)
        assert (first_.code, first_.id) == ("internal_error", "b")
        assert isinstance(second, str)
        assert await within(client.send_text("bad", id="b")) == "b"
        (error,) = await first(client, ServerError)
        assert (error.code, error.message, error.fatal, error.id) == (
            "internal_error", "not now", False, "b",
        )  # fmt: skip
    assert server.count == 1


@pytest.mark.parametrize("how", ["error", "close"])
async def test_a_message_that_ends_the_connection_is_not_sent_for_ever(
    tmp_path: Path, how: str
) -> None:
    async def choke(connection: Connection) -> None:
        if connection.number > 1:
            return await connection.accept_all()
        await connection.hear("text")
        if how == "error":
            await connection.say("error", code="too_big", message="too much", fatal=True)
            await connection.close(1008, "too_big")
        else:
            await connection.close(1009)

    async with serving(choke) as server, client_of(server, tmp_path) as client:
        with pytest.raises(RejectedError, match="too_big"):
            await within(client.send_text("poison"))
        await within(client.send_text("fine"))
    assert [f["text"] for f in server.of("text")] == ["poison", "fine"]


async def test_a_server_that_cuts_inside_a_large_frame_refuses_that_file(tmp_path: Path) -> None:
    """Its library sends 1009 while the client still writes; the file fails by the protocol's
    word, and what was handed over behind it goes out."""
    async with (
        serving(lambda c: c.accept_all(), max_size=1024 * 1024) as server,
        client_of(server, tmp_path) as client,
    ):
        file = asyncio.create_task(client.send_file(b"z" * 8 * MIB, filename="z.bin"))
        await asyncio.sleep(0)
        behind = asyncio.create_task(client.send_text("behind it"))
        with pytest.raises(RejectedError, match="too_big"):
            await within(file)
        await within(behind)
    assert [f["text"] for f in server.of("text")] == ["behind it"]


async def test_a_reset_inside_a_large_frame_is_a_lost_connection(tmp_path: Path) -> None:
    """The network goes while the client writes: the file is sent again, whatever the event loop
    calls that."""

    async def reset_once(connection: Connection) -> None:
        if connection.number > 1:
            return await connection.accept_all()
        await connection.hear("text")
        transport = connection.socket.transport
        linger = struct.pack("ii", 1, 0)  # closing sends a reset
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()

    async with serving(reset_once) as server, client_of(server, tmp_path) as client:
        text = asyncio.create_task(client.send_text("now"))
        await asyncio.sleep(0)
        await within(client.send_file(b"z" * 8 * MIB, filename="z.bin"))
        await within(text)
    assert server.count == 2


async def test_texts_the_server_cannot_take_are_refused_before_sending(tmp_path: Path) -> None:
    async with serving(stay) as server, client_of(server, tmp_path) as client:
        for text, problem in [
            ("", "blank"),
            (" \n", "blank"),
            ("x" * 12_001, "12001 characters"),
            ("\ud83d", "surrogate"),
        ]:
            with pytest.raises(ValueError, match=problem):
                await within(client.send_text(text))
        for id in ("", "x" * 129):
            with pytest.raises(ValueError, match="id"):
                await within(client.send_text("x", id=id))
    assert server.of("text") == []


async def test_a_cancelled_text_is_withdrawn(tmp_path: Path) -> None:
    async def cut_once(connection: Connection) -> None:
        if connection.number == 1:
            await connection.hear("text")
            await connection.hear("text")
            cut.set()
            await cancelled.wait()
            connection.cut()
        await connection.accept_all()

    cut, cancelled = asyncio.Event(), asyncio.Event()
    async with serving(cut_once) as server, client_of(server, tmp_path) as client:
        unwanted = asyncio.create_task(client.send_text("unwanted"))
        wanted = asyncio.create_task(client.send_text("wanted"))
        await within(cut.wait())
        unwanted.cancel()
        with pytest.raises(asyncio.CancelledError):
            await unwanted
        cancelled.set()
        await within(wanted)
    assert [f["text"] for f in server.of("text")] == ["unwanted", "wanted", "wanted"]


async def test_typing_and_ack_are_best_effort(tmp_path: Path) -> None:
    async with serving(stay) as server, client_of(server, tmp_path) as client:
        await client.typing()
        await client.ack("m-7")
        while len(server.of("typing", "ack")) < 2:
            await asyncio.sleep(0.005)
    assert server.of("typing", "ack") == [{"t": "typing"}, {"t": "ack", "id": "m-7"}]


# ── files out ─────────────────────────────────────────────────────────────────────────────────────


def joined(frames: list[Any]) -> bytes:
    import base64

    return b"".join(base64.b64decode(f["data"]) for f in frames)


async def test_a_large_file_goes_in_parts_with_progress(tmp_path: Path) -> None:
    data = bytes(range(256)) * (8 * MIB // 256)
    path = tmp_path / "plan.pdf"
    path.write_bytes(data)
    steps: list[tuple[int, int]] = []
    async with serving(Connection.accept_all) as server, client_of(server, tmp_path) as client:
        id = await within(
            client.send_file(path, caption="look", progress=lambda *step: steps.append(step))
        )
    frames = server.of("media")
    assert joined(frames) == data
    assert [(f["part"], f["parts"]) for f in frames] == [(0, 3), (1, 3), (2, 3)]
    for frame in frames:
        assert (frame["id"], frame["kind"], frame["mime"]) == (id, "document", "application/pdf")
        assert (frame["filename"], frame["caption"]) == ("plan.pdf", "look")
    assert steps == [(0, 8 * MIB), (3 * MIB, 8 * MIB), (6 * MIB, 8 * MIB), (8 * MIB, 8 * MIB)]


async def test_an_upload_cut_in_the_middle_starts_again_from_part_0(tmp_path: Path) -> None:
    data = bytes(range(256)) * 64  # four parts of 4 KiB
    steps: list[int] = []

    async def cut_in_the_middle(connection: Connection) -> None:
        if connection.number == 1:
            await connection.hear("media")
            await connection.hear("media")
            connection.cut()
        await connection.accept_all()

    async with serving(cut_in_the_middle) as server, client_of(server, tmp_path) as client:
        await within(
            client.send_file(
                data,
                filename="a.png",
                chunk_bytes=4096,
                progress=lambda sent, total: steps.append(sent),
            )
        )
    frames = server.of("media")
    assert len({f["id"] for f in frames}) == 1
    assert frames[-4]["part"] == 0 and joined(frames[-4:]) == data
    assert {f["kind"] for f in frames} == {"image"}
    assert steps.count(0) == 2 and steps[-1] == len(data)


async def test_files_that_cannot_go_are_refused_before_sending(tmp_path: Path) -> None:
    big = tmp_path / "big.mp4"
    with big.open("wb") as stream:
        stream.truncate(8 * MIB + 1)
    empty = tmp_path / "empty.txt"
    empty.touch()
    async with serving(stay) as server, client_of(server, tmp_path) as client:
        with pytest.raises(FileTooBig, match=r"big\.mp4 is larger than 8,388,608 bytes"):
            await within(client.send_file(big))
        with pytest.raises(FileTooBig):
            await within(client.send_voice(b"OggS" + bytes(8 * MIB)))
        with pytest.raises(ValueError, match="empty"):
            await within(client.send_file(empty))
        with pytest.raises(ValueError, match="not a file"):
            await within(client.send_file(tmp_path))
        with pytest.raises(FileNotFoundError):
            await within(client.send_file(tmp_path / "missing"))
        with pytest.raises(ValueError, match="WAV or OGG"):
            await within(client.send_voice(b"ID3 and so on"))
    assert server.of("media", "audio") == []


async def test_the_servers_own_lower_limits_hold(tmp_path: Path) -> None:
    server = SmallServer(stay)
    server.max_media_bytes, server.max_text_chars = 1000, 10
    async with running(server), client_of(server, tmp_path) as client:
        with pytest.raises(FileTooBig, match="1,000 bytes"):
            await within(client.send_file(bytes(1001)))
        with pytest.raises(ValueError, match="takes 10"):
            await within(client.send_text("x" * 11))


@pytest.mark.parametrize(
    ("data", "format"), [(b"RIFF\0\0\0\0WAVEfmt ", "wav"), (b"OggS\0\2", "ogg")]
)
async def test_a_voice_recording_is_one_audio_frame(
    tmp_path: Path, data: bytes, format: str
) -> None:
    async with serving(Connection.accept_all) as server, client_of(server, tmp_path) as client:
        await within(client.send_voice(data, text="what I said"))
        (tmp_path / "v.bin").write_bytes(data)
        await within(client.send_voice(tmp_path / "v.bin"))
    with_text, without = server.of("audio")
    assert (with_text["format"], with_text["text"]) == (format, "what I said")
    assert "text" not in without
    assert joined([with_text]) == joined([without]) == data


async def test_a_stalled_upload_neither_delays_cancelling_nor_leaving(tmp_path: Path) -> None:
    stalled = asyncio.Event()

    async def stall(connection: Connection) -> None:
        connection.socket.transport.pause_reading()
        stalled.set()
        await connection.socket.wait_closed()

    async with serving(stall) as server:
        client = client_of(server, tmp_path)
        await client.open()
        await within(stalled.wait())
        upload = asyncio.create_task(client.send_file(bytes(8 * MIB)))
        while not client._socket or not client._socket.transport.get_write_buffer_size():
            await asyncio.sleep(0.005)
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await within(upload, 10)  # the silence that ends a connection lasts longer
        await within(client.close(), 10)


async def test_a_cancelled_upload_sends_no_more_parts(tmp_path: Path) -> None:
    def progress(sent: int, total: int) -> None:
        if sent == 2 * 4096:
            upload.cancel()

    async with serving(Connection.accept_all) as server, client_of(server, tmp_path) as client:
        upload = asyncio.create_task(
            client.send_file(bytes(64 * 1024), chunk_bytes=4096, progress=progress)
        )
        with pytest.raises(asyncio.CancelledError):
            await within(upload)
        await within(client.send_text("next"))
    assert len(server.of("media")) == 2
    assert server.count == 1


async def test_cancelled_uploads_never_fill_the_servers_room(tmp_path: Path) -> None:
    """The server keeps what it has of an upload until the device disconnects: eight at most."""

    def progress(sent: int, total: int) -> None:
        if sent == 2 * 4096:
            uploads[-1].cancel()

    uploads: list[asyncio.Task[str]] = []
    async with serving(Connection.accept_all) as server, client_of(server, tmp_path) as client:
        for _ in range(8):
            upload = client.send_file(bytes(16384), chunk_bytes=4096, progress=progress)
            uploads.append(asyncio.create_task(upload))
            await asyncio.wait(uploads)
        assert server.count == 1
        await within(client.send_file(b"in one frame"))
        assert server.count == 1
        await within(client.send_file(bytes(8192), chunk_bytes=4096))
        assert server.count == 2
        await within(client.send_file(bytes(8192), chunk_bytes=4096))
        assert server.count == 2


async def test_a_failing_progress_callback_fails_its_own_upload_only(tmp_path: Path) -> None:
    def broken(sent: int, total: int) -> None:
        raise ZeroDivisionError

    async with serving(Connection.accept_all) as server, client_of(server, tmp_path) as client:
        with pytest.raises(ZeroDivisionError):
            await within(client.send_file(b"data", progress=broken))
        await within(client.send_text("still here"))
    assert server.count == 1


# ── cards ─────────────────────────────────────────────────────────────────────────────────────────

CARD = {
    "id": "p-1",
    "kind": "exec_approval",
    "text": "Run this?",
    "options": [
        {"id": "once", "label": "Once", "style": "primary"},
        {"id": "deny", "label": "Deny", "style": "danger"},
    ],
    "command": "rm -rf build",
    "description": "removes the build",
    "session": "mobile:tablet",
    "timeout_seconds": 300,
}


async def test_a_card_is_answered_and_tells_what_was_applied(tmp_path: Path) -> None:
    async def ask(connection: Connection) -> None:
        await connection.say("prompt", **CARD)
        answer = await connection.hear("prompt")
        await connection.say("prompt_done", id=answer["prompt_id"], option_id="deny")
        await stay(connection)

    async with serving(ask) as server, client_of(server, tmp_path) as client:
        (prompt,) = await first(client, Prompt)
        assert (prompt.command, prompt.description) == ("rm -rf build", "removes the build")
        assert [(o.id, o.label, o.style) for o in prompt.options] == [
            ("once", "Once", "primary"), ("deny", "Deny", "danger"),
        ]  # fmt: skip
        assert prompt.timeout_seconds == 300
        done = await within(client.answer(prompt.id, "once"))
        assert done == PromptDone("p-1", "deny", False)
    assert server.of("prompt") == [{"t": "prompt", "prompt_id": "p-1", "option_id": "once"}]


async def test_an_answer_is_repeated_after_a_drop(tmp_path: Path) -> None:
    async def lose_first(connection: Connection) -> None:
        await connection.say("prompt", **CARD)
        answer = await connection.hear("prompt")
        if connection.number == 1:
            connection.cut()
        await connection.say("prompt_done", id=answer["prompt_id"], option_id="once")
        await stay(connection)

    async with serving(lose_first, extensions=()) as server, client_of(server, tmp_path) as client:
        done = await within(client.answer("p-1", "once"))
    assert done.option_id == "once"
    assert len(server.of("prompt")) == 2


@pytest.mark.parametrize("with_id", [True, False])
async def test_an_answer_to_a_card_of_another_device_is_refused(
    tmp_path: Path, with_id: bool
) -> None:
    async def forbid(connection: Connection) -> None:
        answer = await connection.hear("prompt")
        extra = {"id": answer["prompt_id"]} if with_id else {}
        await connection.say("error", code="forbidden", message="not yours", fatal=False, **extra)
        await stay(connection)

    async with serving(forbid) as server, client_of(server, tmp_path) as client:
        with pytest.raises(RejectedError, match="not yours"):
            await within(client.answer("p-9", "once"))
        assert client.connected


async def test_an_answer_passes_between_the_parts_of_an_upload(tmp_path: Path) -> None:
    answered: list[asyncio.Task[PromptDone]] = []

    async def listen(connection: Connection) -> None:
        while True:
            frame = await connection.hear("media", "prompt")
            if frame["t"] == "prompt":
                await connection.say("prompt_done", id=frame["prompt_id"], option_id="c0")
            elif frame["part"] == 15:
                await connection.say("accepted", id=frame["id"])

    def progress(sent: int, total: int) -> None:
        if sent == 4096:
            answered.append(asyncio.create_task(client.answer("p-1", "c0")))

    async with serving(listen) as server, client_of(server, tmp_path) as client:
        await within(client.send_file(bytes(65536), chunk_bytes=4096, progress=progress))
        await within(answered[0])
    order = [f["t"] for f in server.of("media", "prompt")]
    assert order.index("prompt") < 4


async def test_other_alone_keeps_its_place_before_the_text_that_is_the_answer(
    tmp_path: Path,
) -> None:
    async def listen(connection: Connection) -> None:
        while True:
            frame = await connection.hear("text", "prompt")
            if frame["t"] == "prompt":
                await connection.say("prompt_done", id=frame["prompt_id"], option_id="other")
            else:
                await connection.say("accepted", id=frame["id"])

    async with serving(listen) as server, client_of(server, tmp_path) as client:
        await within(
            asyncio.gather(
                client.send_text("before"),
                client.answer("p-1", "other"),
                client.send_text("my answer"),
            )
        )
    assert [f.get("text", f["t"]) for f in server.of("text", "prompt")] == [
        "before", "prompt", "my answer",
    ]  # fmt: skip


async def test_an_empty_answer_is_refused(tmp_path: Path) -> None:
    async with serving(stay) as server, client_of(server, tmp_path) as client:
        with pytest.raises(ValueError, match="option or a text"):
            await within(client.answer("p-1", text="  "))


# ── messages in ───────────────────────────────────────────────────────────────────────────────────


def say_all(*frames: dict[str, Any]) -> Any:
    async def handler(connection: Connection) -> None:
        for frame in frames:
            await connection.raw(json.dumps(frame))
        await connection.say("end")
        await stay(connection)

    return handler


def part(text: str, index: int, total: int, **fields: Any) -> dict[str, Any]:
    frame = {"t": "message", "id": "m", "text": text, "chunk": {"index": index, "total": total}}
    return frame | {"final": False} | fields


async def shown(tmp_path: Path, *frames: dict[str, Any]) -> list[tuple[str, bool, bool]]:
    async with serving(say_all(*frames)) as server, client_of(server, tmp_path) as client:
        events = await until_end(client)
    return [(e.text, e.complete, e.final) for e in events if isinstance(e, Message)]


async def test_chunks_become_one_text(tmp_path: Path) -> None:
    assert await shown(tmp_path, part("ab", 0, 2), part("cd", 1, 2, final=True)) == [
        ("ab", False, False),
        ("abcd", True, True),
    ]


async def test_edits_replace_the_text_and_chunks_from_total_on_are_gone(tmp_path: Path) -> None:
    assert await shown(
        tmp_path,
        part("ab", 0, 2),
        part("cd", 1, 2),
        part("x", 0, 1, edit=True),
        part("yz", 0, 2, edit=True),
        part("!", 1, 2, edit=True, final=True),
    ) == [
        ("ab", False, False),
        ("abcd", True, False),
        ("x", True, False),
        ("yz", False, False),
        ("yz!", True, True),
    ]


async def test_a_partial_edit_changes_only_its_chunk(tmp_path: Path) -> None:
    assert await shown(
        tmp_path,
        part("a", 0, 3),
        part("b", 1, 3),
        part("c", 2, 3),
        part("B", 1, 3, edit=True, final=True),
    ) == [
        ("a", False, False),
        ("ab", False, False),
        ("abc", True, False),
        ("aBc", True, True),
    ]


async def test_a_finished_message_said_again_is_not_shown_again(tmp_path: Path) -> None:
    frames = [part("ab", 0, 2), part("cd", 1, 2, final=True)]
    assert len(await shown(tmp_path, *frames, *frames)) == 2


async def test_a_message_goes_on_after_a_reconnect_under_its_id(tmp_path: Path) -> None:
    async def cut_in_the_middle(connection: Connection) -> None:
        if connection.number == 1:
            await connection.raw(json.dumps(part("ab", 0, 2)))
            await connection.socket.ping()
            await connection.socket.close(1011)
        for frame in (part("ab", 0, 2), part("cd", 1, 2, final=True)):
            await connection.raw(json.dumps(frame))
        await stay(connection)

    async with serving(cut_in_the_middle) as server, client_of(server, tmp_path) as client:
        messages = await first(client, Message, 2)
    assert [m.text for m in messages] == ["ab", "abcd"]
    assert {m.id for m in messages} == {"m"}


async def test_an_edit_event_says_so(tmp_path: Path) -> None:
    async with (
        serving(say_all(part("a", 0, 1), part("ab", 0, 1, edit=True))) as server,
        client_of(server, tmp_path) as client,
    ):
        events = [e for e in await until_end(client) if isinstance(e, Message)]
    assert [e.edit for e in events] == [False, True]


async def test_a_reader_far_behind_gets_the_newest_revision(tmp_path: Path) -> None:
    count = 3000
    frames = [part(str(n), 0, 1, edit=n > 0, final=n == count - 1) for n in range(count)]
    async with serving(say_all(*frames)) as server, client_of(server, tmp_path) as client:
        while not any(isinstance(e, Unknown) for e in client._events.values()):
            await asyncio.sleep(0.005)
        messages = [e for e in await until_end(client) if isinstance(e, Message)]
    assert len(messages) < 300
    assert messages[-1].text == str(count - 1) and messages[-1].final


async def test_events_nobody_reads_do_not_grow_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hermes_client, "_MAX_EVENTS", 50)
    frames = [{"t": "avatar", "state": "idle", "n": n} for n in range(200)]
    async with serving(say_all(*frames)) as server, client_of(server, tmp_path) as client:
        while not any(isinstance(e, Unknown) for e in client._events.values()):
            await asyncio.sleep(0.005)
        assert len(client._events) == 50
    assert caplog.text.count("nobody reads") == 1


async def test_the_small_frames_are_typed(tmp_path: Path) -> None:
    async with (
        serving(
            say_all(
                {"t": "AVATAR", "state": "thinking"},
                {"t": "typing"},
                {"t": "typing", "stop": True},
                {"t": "prompt_done", "id": "p", "expired": True},
                {"t": "pong", "ts": "x"},
                {"t": "error", "code": "device_offline", "message": "away", "fatal": False},
            )
        ) as server,
        client_of(server, tmp_path) as client,
    ):
        _, *events = await until_end(client)
    assert [e for e in events if not (isinstance(e, Pong) and e.ts != "x")] == [
        Avatar("thinking"),
        Typing(True),
        Typing(False),
        PromptDone("p", None, True),
        Pong("x", None),
        ServerError("device_offline", "away", False, None),
    ]


async def test_unknown_and_malformed_frames_pass_through(tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"t": "weather", "forecast": "sun"},
        {"t": "message", "id": "m", "text": 5},
        part("x", 3, 2),
        part("x", 0, True),
        {"t": "prompt", "id": "p"},
        {"t": "avatar"},
        {"t": "media", "id": 7},
    ]
    async with serving(say_all(*odd)) as server, client_of(server, tmp_path) as client:
        events = [e for e in await until_end(client) if isinstance(e, Unknown)]
    assert [e.frame for e in events] == odd
    assert events[0].t == "weather"


async def test_garbage_does_not_end_the_connection(tmp_path: Path) -> None:
    async def babble(connection: Connection) -> None:
        for garbage in ("", "nonsense", "[1]", '"x"', '{"t":5}', "[" * 100_000, b"\xff\xfe"):
            await connection.raw(garbage)
        await connection.raw(b'{"t":"avatar","state":"idle"}')
        await connection.accept_all()

    async with serving(babble) as server, client_of(server, tmp_path) as client:
        await first(client, Avatar)
        await within(client.send_text("still here"))
    assert server.count == 1


# ── files in ──────────────────────────────────────────────────────────────────────────────────────


async def received(
    tmp_path: Path, *frames: dict[str, Any], **options: Any
) -> list[Media | MediaFailed | MediaProgress]:
    async with (
        serving(say_all(*frames)) as server,
        client_of(server, tmp_path, **options) as client,
    ):
        events = await until_end(client)
    return [e for e in events if isinstance(e, Media | MediaFailed | MediaProgress)]


def left_over(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "in").glob("*")) if (tmp_path / "in").exists() else []


async def test_a_file_is_written_piece_by_piece_and_named_when_whole(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    one, two, whole = await received(
        tmp_path, *media_frames(data, parts=3, caption="see", reply_to="m-1", filename="a b.txt")
    )
    assert isinstance(one, MediaProgress) and isinstance(two, MediaProgress)
    assert (one.received, two.received, two.size) == (3414, 6828, 10240)
    assert isinstance(whole, Media) and whole.path is not None
    assert whole.path.read_bytes() == data
    assert whole.path == (tmp_path / "in" / "a b.txt").absolute()
    assert stat.S_IMODE(whole.path.stat().st_mode) == 0o600
    assert (whole.caption, whole.reply_to, whole.size) == ("see", "m-1", 10240)
    assert "data" not in whole.frame
    assert left_over(tmp_path) == ["a b.txt"]


async def test_a_file_on_its_way_is_a_hidden_part_file(tmp_path: Path) -> None:
    frames = media_frames(bytes(3000), parts=3)
    async with (
        serving(say_all(*frames[:2])) as server,
        client_of(server, tmp_path) as client,
    ):
        await until_end(client)
        (name,) = left_over(tmp_path)
        assert name.startswith(".") and name.endswith(".part")
        assert (tmp_path / "in" / name).stat().st_size == 2000
    assert left_over(tmp_path) == []


async def test_parts_in_any_order_and_twice_give_the_same_file(tmp_path: Path) -> None:
    a, b, c = media_frames(b"aabbc", parts=3, final=False)
    events = await received(tmp_path, c, a, c, a, b)
    whole = events[-1]
    assert isinstance(whole, Media) and whole.path is not None
    assert whole.path.read_bytes() == b"aabbc"


async def test_a_file_goes_on_after_a_reconnect(tmp_path: Path) -> None:
    frames = media_frames(b"aabbc", parts=3)

    async def cut_in_the_middle(connection: Connection) -> None:
        if connection.number == 1:
            await connection.raw(json.dumps(frames[0]))
            return await connection.close(1011)
        for frame in frames[1:]:
            await connection.raw(json.dumps(frame))
        await stay(connection)

    async with serving(cut_in_the_middle) as server, client_of(server, tmp_path) as client:
        (whole,) = await first(client, Media)
        assert whole.path.read_bytes() == b"aabbc"


async def test_a_finished_file_said_again_is_not_saved_again(tmp_path: Path) -> None:
    frames = media_frames(b"aabbc", parts=1)
    assert len(await received(tmp_path, *frames, *frames)) == 1
    assert left_over(tmp_path) == ["data.bin"]


async def test_an_older_file_of_the_same_name_is_kept(tmp_path: Path) -> None:
    frames = [
        frame for n in range(3) for frame in media_frames(b"%d" % n, id=str(n), filename="x.tar.gz")
    ]
    events = await received(tmp_path, *frames)
    names = [e.path.name for e in events if isinstance(e, Media) and e.path]
    assert names == ["x.tar.gz", "x.tar (2).gz", "x.tar (3).gz"]
    assert (tmp_path / "in" / "x.tar.gz").read_bytes() == b"0"


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (media_frames(b"12345", size=4), "larger than the announced 4"),
        (media_frames(b"12345", size=6), "6 bytes were announced, 5 came"),
        (media_frames(b"123456", parts=2, size=4), "larger than the announced 4"),
        (media_frames(b"1", size=-1), "size"),
        (media_frames(b"1", size="1"), "size"),
        (media_frames(b"1", size=None), "size"),
        (media_frames(b"1", size=9 * MIB), "more than the 8,388,608"),
        (media_frames(b"1", parts=0 + 1, part=1), "part 1 of 1"),
        (media_frames(b"1", part=-1), "part -1"),
        ([{**media_frames(b"1")[0], "parts": 10**9}], "of 1000000000"),
        ([{**media_frames(b"123")[0], "data": "***="}], "not base64"),
        ([{**media_frames(b"1")[0], "data": None}], "without data and without a link"),
    ],
)
async def test_a_file_that_lies_is_refused_and_nothing_of_it_is_kept(
    tmp_path: Path, frames: list[dict[str, Any]], reason: str
) -> None:
    events = await received(tmp_path, *frames)
    failed = events[-1]
    assert isinstance(failed, MediaFailed)
    assert reason in failed.reason
    assert not [e for e in events if isinstance(e, Media)]
    assert left_over(tmp_path) == []


async def test_the_rest_of_a_refused_file_is_ignored(tmp_path: Path) -> None:
    frames = media_frames(bytes(100), parts=10, size=25)
    events = await received(tmp_path, *frames)
    assert [type(e) for e in events].count(MediaFailed) == 1
    assert left_over(tmp_path) == []


async def test_a_part_that_never_comes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hermes_client, "_HOLE_TIMEOUT", 0.02)
    frames = media_frames(b"aabbc", parts=3)
    async with (
        serving(say_all(frames[1], frames[2])) as server,
        client_of(server, tmp_path) as client,
    ):
        (failed,) = await first(client, MediaFailed)
    assert failed.reason == "part 0 of 3 never came"
    assert left_over(tmp_path) == []


async def test_too_many_files_at_once_drop_the_oldest(tmp_path: Path) -> None:
    frames = [media_frames(b"aabb", id=str(n), parts=2)[0] for n in range(40)]
    events = await received(tmp_path, *frames)
    assert [e.id for e in events if isinstance(e, MediaFailed)] == [str(n) for n in range(8)]


async def test_a_disk_that_fails_is_told_and_the_client_lives(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a file where the folder should be")

    async def send(connection: Connection) -> None:
        await connection.raw(json.dumps(media_frames(b"x")[0]))
        await connection.accept_all()

    async with serving(send) as server, client_of(server, tmp_path) as client:
        (failed,) = await first(client, MediaFailed)
        assert "could not be written" in failed.reason
        await within(client.send_text("still here"))


async def test_a_link_is_handed_on(tmp_path: Path) -> None:
    frame = media_frames(b"", kind="image", url="https://example.com/a.png", size=77)[0]
    del frame["data"]
    (media,) = await received(tmp_path, frame)
    assert isinstance(media, Media)
    assert (media.url, media.path, media.size) == ("https://example.com/a.png", None, 77)


async def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    (media,) = await received(tmp_path, *media_frames(b""))
    assert isinstance(media, Media) and media.path is not None
    assert media.path.read_bytes() == b""


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("photo.png", "photo.png"),
        ("../../etc/passwd", "passwd"),
        ("/etc/passwd", "passwd"),
        ("C:\\Windows\\x.exe", "x.exe"),
        (".bashrc", "bashrc"),
        ("..", "file.txt"),
        ("", "file.txt"),
        ("a\0b\nc.txt", "abc.txt"),
        ("invoice\u202efdp.exe", "invoicefdp.exe"),
        ("a\x1b]0;x\x07.txt", "a]0;x.txt"),
        ('w<>:"|?*.txt', "w_______.txt"),
        ("con.txt", "_con.txt"),
        ("LPT1", "_LPT1"),
        ("trailing. . ", "trailing"),
        ("отчёт.pdf", "отчёт.pdf"),
        ("\ud800.txt", "txt"),
    ],
)
def test_names_are_made_harmless(given: str, kept: str) -> None:
    assert hermes_client._safe_filename(given, "text/plain") == kept


def test_long_names_are_cut_in_bytes_with_the_extension_kept() -> None:
    for name in ("я" * 300 + ".pdf", "x" * 300 + ".pdf", "я" * 300, "😀" * 100 + ".jpeg"):
        safe = hermes_client._safe_filename(name)
        assert len(safe.encode()) <= 200
        assert safe.rpartition(".")[2] == (name.rpartition(".")[2] if "." in name else safe)


async def test_a_hostile_name_stays_inside_the_folder(tmp_path: Path) -> None:
    names = ["../../evil.txt", "/tmp/evil.txt", "..\\..\\evil.txt", "evil.txt/../../evil.txt"]
    frames = [
        f for n, name in enumerate(names) for f in media_frames(b"x", id=str(n), filename=name)
    ]
    events = await received(tmp_path, *frames)
    assert all(isinstance(e, Media) and e.path and e.path.parent == tmp_path / "in" for e in events)
    assert [p.name for p in tmp_path.iterdir()] == ["in"]


async def test_a_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    target = tmp_path / "precious"
    target.write_text("precious")
    (tmp_path / "in" / "data.bin").symlink_to(target)
    (media,) = await received(tmp_path, *media_frames(b"x"))
    assert isinstance(media, Media) and media.path is not None
    assert media.path.name == "data (2).bin"
    assert target.read_text() == "precious"


async def test_a_frame_of_16_mib_is_received(tmp_path: Path) -> None:
    data = bytes(8 * MIB)
    frame = media_frames(data)[0]
    frame["padding"] = "x" * (16 * MIB - len(json.dumps(frame)) - len(', "padding": ""'))
    assert len(json.dumps(frame)) == 16 * MIB
    (media,) = await received(tmp_path, frame)
    assert isinstance(media, Media) and media.size == 8 * MIB


# ── the token, the names, the examples ────────────────────────────────────────────────────────────


async def test_the_token_appears_nowhere_but_in_hello(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "SECRET-SECRET-SECRET"
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)

    async def cut_once(connection: Connection) -> None:
        if connection.number == 1:
            return connection.cut()
        await connection.close(4001, "replaced")

    server = SmallServer(cut_once)
    greet = server.greet

    async def welcome(connection: Connection, hello: Any) -> None:
        await greet(connection, hello | {"token": TOKEN})

    server.greet = welcome  # type: ignore[method-assign]
    # The server of this test logs what it hears; only the client's side is looked at.
    logging.getLogger("websockets.server").setLevel(logging.WARNING)
    try:
        async with running(server):
            client = client_of(server, tmp_path, token=secret)
            told = [repr(client)]
            with contextlib.suppress(StoppedError):
                async with client:
                    told.append(repr(client))
                    async for event in client:
                        told.append(repr(event))
            told += [repr(client), str(client.stopped), repr(client.stopped)]
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger("websockets.server").setLevel(logging.NOTSET)
    assert [hello["token"] for hello in server.hellos] == [secret, secret]
    output = "".join(told) + caplog.text + stream.getvalue() + "".join(capsys.readouterr())
    assert "connection lost" in output
    assert secret not in output


def test_a_repr_hides_what_an_address_may_carry() -> None:
    client = HermesClient("wss://user:pass@host/ws?key=value", token="t" * 20, device="d")
    assert repr(client) == "<HermesClient wss://host/ws device='d' new>"


def test_the_public_names_are_the_ones_listed() -> None:
    public = {
        name
        for name, value in vars(hermes_client).items()
        if inspect.isclass(value)
        and value.__module__ == "hermes_client"
        and not name.startswith("_")
    }
    assert public | {"Event"} == set(hermes_client.__all__)
    assert all(issubclass(e, HermesError) for e in (StoppedError, ConnectError, ClosedError))


def _public_things() -> list[tuple[str, Any]]:
    things: list[tuple[str, Any]] = []
    for name in hermes_client.__all__:
        value = getattr(hermes_client, name)
        if inspect.isclass(value):
            things.append((name, value))
    for name, value in vars(HermesClient).items():
        if not name.startswith("_"):
            things.append((f"HermesClient.{name}", value))
    return things


@pytest.mark.parametrize(
    "thing", [thing for _, thing in _public_things()], ids=[name for name, _ in _public_things()]
)
def test_every_public_name_is_documented_with_an_example_that_parses(thing: Any) -> None:
    text = inspect.getdoc(thing) or ""
    _, found, example = text.partition("Example::\n")
    assert found, "no example"
    code = textwrap.dedent(example.strip("\n"))
    if code.startswith("case "):
        code = "match event:\n" + textwrap.indent(code, "    ")
    if code.startswith("except "):
        code = "try:\n    pass\n" + code
    ast.parse("async def example():\n" + textwrap.indent(code, "    "))


def test_the_client_imports_nothing_of_the_adapter() -> None:
    source = Path(hermes_client.__file__).read_text()
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not [name for name in imported if name and name.startswith("hermes")]
