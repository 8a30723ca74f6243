"""One function per inbound frame, in a table.

A new frame is a struct in `protocol`, a function here, and its vectors. Every mistake of a client
is a `ProtocolError`, made a frame in one place: `receive`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from .dedup import Seen
from .devices import Connection, ConnId, Device
from .effects import Incoming
from .hub import Hub
from .logs import log, shown, trace
from .outbox import OutboxFull, OutgoingMedia
from .protocol import (
    AUDIO_FORMATS,
    MAX_AUDIO_BYTES,
    MAX_FRAME_BYTES,
    MAX_MEDIA_BYTES,
    MEDIA_IN,
    MEDIA_OUT,
    Ack,
    Audio,
    Deliver,
    DeliverMedia,
    Hello,
    Media,
    MediaKind,
    Ping,
    Pong,
    Prompt,
    ProtocolError,
    Text,
    Typing,
    base64_field,
    bounded_text,
    clean_filename,
    decode,
    device_id,
    echoed_ts,
    encode,
    mime_type,
    required_id,
)
from .uploads import check_parts


def receive(hub: Hub, conn: ConnId, raw: bytes | bytearray | memoryview | str, now: float) -> None:
    """Take one message of connection `conn`; what follows from it is in the hub's effects.

    Never raises: a client's mistake becomes an `error` frame, our own becomes `internal_error` and
    a traceback in the log.
    """
    connection = hub.connections.get(conn)
    if connection is None or connection.refused:
        return
    connection.bytes_in += len(raw)
    unread = True
    try:
        if len(raw) > MAX_FRAME_BYTES:
            raise too_big()
        frame = decode(raw)
        unread = False
        hub.counters.received[type(frame)] += 1
        if connection.grant is None:
            if not isinstance(frame, Hello):
                raise ProtocolError("bad_frame", "the first frame must be `hello`")
            hub.hello(conn, frame, now)
        elif frame is None:
            log.debug("frame of an unknown type ignored: device=%s", shown(connection.sender))
        else:
            _handlers[type(frame)](hub, connection, frame, now)
    except ProtocolError as error:
        hub.counters.unread += unread
        if connection.grant is None:
            error.fatal = True
            hub.reject(connection, error, now)
        else:
            hub.fail(connection, error)
    except Exception as error:
        log.error(
            "a frame could not be handled: device=%s error=%s",
            shown(connection.sender),
            trace(error),
        )
        hub.fail(
            connection,
            ProtocolError(
                "internal_error",
                "the door failed on this frame; its log says why",
                fatal=connection.grant is None,
            ),
        )


def too_big() -> ProtocolError:
    """A whole message over `MAX_FRAME_BYTES`: the connection ends."""
    return ProtocolError(
        "too_big",
        f"the message is larger than {MAX_FRAME_BYTES} bytes: send files in parts",
        fatal=True,
    )


def hello(hub: Hub, connection: Connection, frame: Hello, now: float) -> None:
    """A second hello is a mistake that costs nothing."""
    raise ProtocolError("bad_frame", "`hello` was said already on this connection")


def text(hub: Hub, connection: Connection, frame: Text, now: float) -> None:
    """A typed message."""
    device = connection.device or _device(connection, frame.id)
    id = required_id(frame.id)
    body = bounded_text(frame.text, "text", id)
    if not body:
        raise ProtocolError("bad_frame", "`text` is missing, empty or blank", frame_id=id)
    hub.submit(connection, Incoming(device.id, id, "text", body, device.info), now)


def audio(hub: Hub, connection: Connection, frame: Audio, now: float) -> None:
    """A voice recording, with a transcript if the app made one."""
    device = _device(connection, frame.id)
    id = required_id(frame.id)
    if not frame.format:
        raise ProtocolError("bad_frame", "`format` is missing", frame_id=id)
    if frame.format not in AUDIO_FORMATS:
        raise ProtocolError("unsupported_frame", "`format` must be wav or ogg", frame_id=id)
    transcript = bounded_text(frame.text, "text", id)
    data = base64_field(frame.data, "data", MAX_AUDIO_BYTES, id)
    hub.submit(
        connection,
        Incoming(
            device.id,
            id,
            "voice",
            transcript,
            device.info,
            data=data(),
            mime=f"audio/{frame.format}",
            filename=f"voice.{frame.format}",
            format=frame.format,
        ),
        now,
    )


def media(hub: Hub, connection: Connection, frame: Media, now: float) -> None:
    """A file, or a part of one."""
    device = _device(connection, frame.id)
    id = required_id(frame.id)
    if not frame.kind:
        raise ProtocolError("bad_frame", "`kind` is missing", frame_id=id)
    if frame.kind not in MEDIA_IN:
        raise ProtocolError(
            "unsupported_frame", f"`kind` must be one of {', '.join(MEDIA_IN)}", frame_id=id
        )
    part = 0 if frame.part is None else frame.part
    parts = 1 if frame.parts is None else frame.parts
    check_parts(part, parts, id)
    caption = bounded_text(frame.caption, "caption", id)
    filename = clean_filename(frame.filename)
    mime = frame.mime or ""
    try:
        data = base64_field(frame.data, "data", MAX_MEDIA_BYTES, id)
    except ProtocolError as error:
        if error.code == "too_big" and parts > 1:
            device.uploads.drop(id, part)
        raise
    whole: bytes | bytearray
    if parts == 1 and id not in device.uploads.open:
        whole = data()
    elif parts > 1 and hub.seen(device, id, now):
        # The whole file was taken, or is on its way to the agent: a late part opens nothing anew.
        device.uploads.forget(id)
        if part == parts - 1:
            hub.repeat(device, id, now)
        return
    else:
        done = device.uploads.receive(
            id,
            kind=frame.kind,
            mime=mime,
            filename=filename,
            caption=caption,
            part=part,
            parts=parts,
            size=data.size,
            decode=data,
        )
        if done is None:
            return
        upload, whole = done
        mime, filename, caption = upload.mime, upload.filename, upload.caption
    hub.counters.files += 1
    hub.counters.file_bytes += len(whole)
    hub.submit(
        connection,
        Incoming(
            device.id,
            id,
            frame.kind,
            caption,
            device.info,
            data=whole,
            mime=mime_type(mime, filename),
            filename=filename,
        ),
        now,
    )


def prompt(hub: Hub, connection: Connection, frame: Prompt, now: float) -> None:
    """The answer to a card."""
    _device(connection, frame.prompt_id)
    card_id = required_id(frame.prompt_id, "prompt_id")
    answer = bounded_text(frame.text, "text", card_id)
    option_id = frame.option_id or ""
    if not option_id.strip() and not answer:
        raise ProtocolError(
            "bad_frame", "`option_id` and `text` are both empty: one must answer", frame_id=card_id
        )
    hub.cards.answer(connection, card_id, option_id, answer, now)


def typing(hub: Hub, connection: Connection, frame: Typing, now: float) -> None:
    """The person types."""
    hub.user_types(_device(connection, None), now)


def ping(hub: Hub, connection: Connection, frame: Ping, now: float) -> None:
    """Echo `ts`."""
    hub.post(connection, encode(Pong(echoed_ts(frame.ts))))


def ack(hub: Hub, connection: Connection, frame: Ack, now: float) -> None:
    """Ignored."""


def deliver(hub: Hub, connection: Connection, frame: Deliver, now: float) -> None:
    """A service delivery: the text first, then the file."""
    if not connection.may_deliver:
        raise ProtocolError(
            "forbidden",
            "`deliver` needs a token of MOBILE_DELIVER_TOKENS, or a door that only this machine "
            "can reach",
            frame_id=frame.id,
        )
    id = required_id(frame.id)
    body = bounded_text(frame.text, "text", id)
    if not body and frame.media is None:
        raise ProtocolError("bad_frame", "`text` and `media` are both missing", frame_id=id)
    attachment = _attachment(frame.media, id) if frame.media is not None else None
    target = _target(hub, frame.target, id)
    # The chat's key space and this one never meet: a device id holds no control character.
    key = f"\0deliver:{connection.sender}:{id}"
    if hub.dedup.look(key, now) is not Seen.NEW:
        hub.counters.delivery_repeats += 1
        return
    if not hub.online(target):
        raise ProtocolError(
            "device_offline", "the target device is not connected: try again later", frame_id=id
        )
    try:
        hub.deliver(target, body, attachment, now)
    except OutboxFull:
        raise ProtocolError(
            "device_offline", "the target device does not keep up: try again later", frame_id=id
        ) from None
    hub.dedup.keep(key, now)
    hub.counters.deliveries += 1


def _attachment(frame: DeliverMedia, id: str) -> OutgoingMedia:
    kind = "voice" if frame.kind == "audio" else frame.kind
    if not kind:
        raise ProtocolError("bad_frame", "`media.kind` is missing", frame_id=id)
    if kind not in MEDIA_OUT:
        raise ProtocolError(
            "unsupported_frame", f"`media.kind` must be one of {', '.join(MEDIA_OUT)}", frame_id=id
        )
    data = base64_field(frame.data, "media.data", MAX_MEDIA_BYTES, id)
    filename = clean_filename(frame.filename)
    mime = mime_type(frame.mime, filename)
    return OutgoingMedia(
        kind=cast(MediaKind, kind),
        mime=mime,
        filename=filename or kind,
        data=data(),
        caption=bounded_text(frame.caption, "media.caption", id) or None,
    )


def _target(hub: Hub, said: str | None, id: str) -> str:
    """The device a delivery is for: as said, with or without `mobile:`, else the home device."""
    said = (said or "").strip(" ")
    if not said:
        if not hub.settings.home_device:
            raise ProtocolError(
                "bad_frame", "`target` is missing and MOBILE_HOME_DEVICE is not set", frame_id=id
            )
        return hub.settings.home_device
    try:
        target = device_id(said.removeprefix("mobile:"))
    except ProtocolError as error:
        raise ProtocolError("bad_frame", f"`target`: {error.message}", frame_id=id) from None
    if not target:  # "mobile:" alone names nobody, and must not fall to the home device
        raise ProtocolError("bad_frame", "`target` names no device", frame_id=id)
    return target


def _device(connection: Connection, frame_id: str | None) -> Device:
    """The device of a connection that may chat. Raises `forbidden` for a deliver token."""
    if connection.device is None:
        raise ProtocolError(
            "forbidden",
            "a token of MOBILE_DELIVER_TOKENS may deliver, ping and ack, nothing else",
            frame_id=frame_id,
        )
    return connection.device


Handler = Callable[[Hub, Connection, Any, float], None]

_handlers: dict[type[Any], Handler] = {
    Hello: hello,
    Text: text,
    Audio: audio,
    Media: media,
    Prompt: prompt,
    Typing: typing,
    Ping: ping,
    Ack: ack,
    Deliver: deliver,
}
