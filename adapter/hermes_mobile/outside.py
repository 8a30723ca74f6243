"""From another process to a device: `hermes send`, `hermes cron run`, `hermes mobile send`.

The door is in the gateway's process. This side connects to it like any client, signs in with the
secret that both read from the Hermes home, and sends `deliver` frames. A frame counts as delivered
when the `ping` behind it is answered without an error in between.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any

import msgspec
import pybase64
from picows.websockets.asyncio.client import ClientConnection, connect
from picows.websockets.exceptions import ConnectionClosed, WebSocketException

from . import door_files, outbound_files, send_target
from .protocol import MAX_FRAME_BYTES, MAX_TEXT_CHARS, ProtocolError, device_id
from .settings import DEFAULT_HOST, DEFAULT_PORT
from .textsplit import split

CONNECT_SECONDS = 5.0
DELIVER_SECONDS = 30.0


class NotDelivered(Exception):
    """Nothing, or not everything, was delivered; the text says what, why and what to do."""


@dataclass(frozen=True)
class Entrance:
    """Where a door is and what opens it.

    `own`: it is the gateway's of this Hermes home. `sender`: the id that this sender goes by, for
    a door with a list of allowed devices; "" for none.
    """

    url: str
    token: str = field(repr=False)
    own: bool = False
    sender: str = ""


@dataclass(frozen=True)
class _File:
    kind: str
    mime: str
    name: str
    data: bytes


async def standalone_send(
    pconfig: Any,
    chat_id: str,
    message: str,
    *,
    thread_id: str | None = None,
    media_files: Sequence[Any] | None = None,
    force_document: bool = False,
    caption: str | None = None,
    **_: Any,
) -> dict[str, Any]:
    """Hermes' contract for senders without a gateway in the same process.

    Returns `{"success": True, "message_id": …}` or `{"error": …}`, never raises.
    """
    named = send_target.named_on_command_line(sys.argv)
    if named == "":
        return {
            "error": "`mobile:` names no device: nothing was sent; write mobile:<device id>, or "
            "mobile for the home device"
        }
    if named and send_target.parse(named)[0] != str(chat_id):
        # This Hermes could not read the address and took another device; see send_target.
        return {
            "error": f"this Hermes cannot address a device by name and would have sent to "
            f"mobile:{chat_id} instead of mobile:{named}: nothing was sent; "
            f"use `hermes mobile send {named} TEXT`"
        }
    extra = getattr(pconfig, "extra", None)
    text = "\n\n".join(part for part in (message, caption) if part and part.strip())
    try:
        message_id = await deliver(
            str(chat_id),
            text,
            media_files or (),
            as_document=force_document,
            extra=extra if isinstance(extra, Mapping) else {},
        )
    except NotDelivered as error:
        return {"error": str(error)}
    return {"success": True, "message_id": message_id, "media_delivered": bool(media_files)}


async def deliver(
    target: str | None,
    text: str,
    media_files: Sequence[Any] = (),
    *,
    as_document: bool = False,
    extra: Mapping[str, object] | None = None,
    home: Path | None = None,
    at: Entrance | None = None,
) -> str:
    """Deliver a text and files to the device `target` (with or without `mobile:`).

    None is the home device, as the door knows it. `media_files`: paths, or pairs of a path and
    whether it is a voice message. `at`: another door than that of this Hermes home's gateway.
    Returns the last frame's id. Raises `NotDelivered`.
    """
    device = None if target is None else target_device(target)
    if not text.strip() and not media_files:
        raise NotDelivered("there is neither text nor a file to deliver")
    files = [await _file(item, as_document) for item in media_files]
    door = at or _own_door(home or door_files.hermes_home(), extra or {})
    pieces = [piece for piece in split(text, MAX_TEXT_CHARS) if piece.strip()]
    payloads: list[dict[str, Any]] = [{"text": piece} for piece in pieces]
    payloads += [{"media": _media(file)} for file in files]
    done = 0
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            connection = await connect(
                door.url, max_size=MAX_FRAME_BYTES, compression=None, proxy=None, ping_interval=None
            )
        async with connection:
            await _hello(connection, door)
            message_id = ""
            for payload in payloads:
                message_id = f"d-{token_hex(8)}"
                await _deliver_one(connection, message_id, device, payload)
                done += 1
        return message_id
    except NotDelivered as error:
        raise NotDelivered(f"{error}{_so_far(done, len(payloads))}") from None
    except TimeoutError:
        raise NotDelivered(
            f"the mobile door at {door.url} did not answer in time{_so_far(done, len(payloads))}"
        ) from None
    except (OSError, WebSocketException) as error:
        hint = (
            "is the gateway running with the mobile platform? `hermes gateway status` tells"
            if door.own
            else "is it running, and is the address right?"
        )
        raise NotDelivered(
            f"the mobile door does not answer at {door.url} ({error or type(error).__name__}): "
            f"{hint}{_so_far(done, len(payloads))}"
        ) from None


def _own_door(home: Path, extra: Mapping[str, object]) -> Entrance:
    try:
        secret = door_files.secret(home)
    except door_files.DoorFilesError as error:
        raise NotDelivered(str(error)) from error
    return Entrance(door_files.read_door(home) or _configured(extra), secret, own=True)


def target_device(target: str) -> str:
    """The device id in an address. Raises `NotDelivered` for what is none."""
    name = target.strip().removeprefix("mobile:")
    try:
        device = device_id(name)
    except ProtocolError:
        device = ""
    if not device or device != name:
        raise NotDelivered(
            f"{target!r} is no address of a device: it is mobile:<device id>, and an id has at "
            "most 120 characters, none of them a control character, `:` or `/`"
        )
    return device


async def _file(item: Any, as_document: bool) -> _File:
    path, voice = (item[0], bool(item[1])) if isinstance(item, tuple | list) else (item, False)
    kind = outbound_files.kind_of(str(path), voice=voice, as_document=as_document)
    try:
        data, mime, name = await outbound_files.read(str(path), kind)
    except outbound_files.FileNotSent as error:
        raise NotDelivered(f"nothing was delivered: {error}") from None
    return _File(kind, mime, name, data)


def _media(file: _File) -> dict[str, Any]:
    return {
        "kind": file.kind,
        "mime": file.mime,
        "filename": file.name,
        "data": pybase64.b64encode_as_string(file.data),
    }


async def _hello(connection: ClientConnection, door: Entrance) -> None:
    hello: dict[str, Any] = {"t": "hello", "token": door.token}
    if door.sender:
        hello["device"] = {"id": door.sender}
    await connection.send(msgspec.json.encode(hello).decode())
    frame = await _next(connection)
    if frame.get("t") == "ready":
        return
    code, why = frame.get("code"), str(frame.get("message"))
    if "MOBILE_ALLOWED_DEVICES" in why:
        raise NotDelivered(
            f"the mobile door lets only listed devices in ({code}: {why}): "
            "name this sender with --as, by an id of its own that stands there"
        )
    if not door.own and code == "auth_failed":
        raise NotDelivered(
            f"the mobile door refused the token ({code}): use one of its MOBILE_DELIVER_TOKENS"
        )
    if not door.own:
        raise NotDelivered(f"the mobile door refused this sender ({code}: {why})")
    raise NotDelivered(
        f"the mobile door refused the gateway's own secret ({frame.get('code')}): it runs with "
        "another Hermes home, or the secret was removed while it ran; restart the gateway"
    )


async def _deliver_one(
    connection: ClientConnection, message_id: str, device: str | None, payload: Mapping[str, Any]
) -> None:
    frame = {"t": "deliver", "id": message_id, "target": device, **payload}
    await connection.send(msgspec.json.encode(frame).decode())
    await connection.send(msgspec.json.encode({"t": "ping", "ts": message_id}).decode())
    while True:
        answer = await _next(connection)
        if answer.get("t") == "pong" and answer.get("ts") == message_id:
            return
        if answer.get("t") == "error" and answer.get("id") in (message_id, None):
            code = answer.get("code")
            if code == "device_offline":
                named = "home device" if device is None else f"device {device}"
                raise NotDelivered(f"the {named} is not connected")
            raise NotDelivered(
                f"the mobile door refused the delivery ({code}): {answer.get('message')}"
            )


async def _next(connection: ClientConnection) -> dict[str, Any]:
    try:
        async with asyncio.timeout(DELIVER_SECONDS):
            raw = await connection.recv()
    except ConnectionClosed as error:
        raise NotDelivered(f"the mobile door closed the connection ({error})") from None
    frame = msgspec.json.decode(raw)
    return frame if isinstance(frame, dict) else {}


def _configured(extra: Mapping[str, object]) -> str:
    host = os.environ.get("MOBILE_HOST") or str(extra.get("host") or DEFAULT_HOST)
    port = os.environ.get("MOBILE_PORT") or str(extra.get("port") or DEFAULT_PORT)
    return door_files.door_url(host, port)


def _so_far(done: int, total: int) -> str:
    return "" if not done else f" ({done} of {total} parts were delivered before)"
