"""Files in both directions between a device and a real Hermes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.door_client import DoorClient, Frame
from tests.e2e.hermes_process import HermesProcess


def device_on(hermes: HermesProcess) -> DoorClient:
    return DoorClient(hermes.door_url, hermes.token, f"file-{uuid4().hex[:8]}")


async def greeted(client: DoorClient) -> int:
    """Have the onboarding of a first message behind us; how many frames there are by then."""
    await client.text("hello")
    await client.idle()
    return len(client.frames)


def sample(hermes: HermesProcess, kind: str) -> bytes:
    """A small real file of a kind, as the offline model sends them."""
    return next(path for path in hermes.media.iterdir() if path.stem == kind).read_bytes()


async def received(client: DoorClient, mark: int, data: bytes) -> str:
    """What the agent says of a file it got, once it names the right bytes."""
    digest = hashlib.sha256(data).hexdigest()
    frame = await client.message(digest[:16], since=mark)
    return client.texts(mark)[frame["id"]]


def asked_of_model(hermes: HermesProcess) -> str:
    """The newest user message of a turn that the model got; a session's title is asked for too."""
    for request in reversed(hermes.model_requests()):
        if not request.get("tools"):
            continue
        for message in reversed(request["messages"]):
            if message["role"] == "user":
                return str(message["content"])
    raise AssertionError("the model was not asked")


PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_a_voice_message_reaches_the_agent(hermes: HermesProcess) -> None:
    """Without a transcript it is a voice message, with its true extension."""
    data = sample(hermes, "voice")
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.file({"t": "audio", "format": "ogg"}, data)
        said = await received(client, mark, data)
        # The sample is a WAV, whatever the frame calls it.
        assert said.startswith("received voice:") and "audio/wav" in said


async def test_a_voice_message_with_a_transcript_brings_both(hermes: HermesProcess) -> None:
    """`audio.text`: the agent gets the text and the file."""
    data = sample(hermes, "voice")
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.file({"t": "audio", "format": "ogg", "text": "what I said"}, data)
        said = await received(client, mark, data)
        assert "text: what I said" in said


@pytest.mark.parametrize("kind", ["image", "video"])
async def test_an_image_or_video_with_a_caption(hermes: HermesProcess, kind: str) -> None:
    """The agent gets the file and the caption."""
    data = sample(hermes, kind)
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.file({"t": "media", "kind": kind, "caption": "look here"}, data)
        said = await received(client, mark, data)
        assert said.startswith(f"received {kind}:")
        assert "text: look here" in said


async def test_the_bytes_decide_the_type(hermes: HermesProcess) -> None:
    """A PNG that an app calls a JPEG video is a PNG image."""
    async with device_on(hermes) as client:
        mark = await greeted(client)
        frame = {"t": "media", "kind": "video", "mime": "video/mp4", "filename": "clip.mp4"}
        await client.file(frame, PNG)
        said = await received(client, mark, PNG)
        assert said.startswith("received image:") and "image/png" in said


async def test_a_text_document_is_readable_by_the_model(hermes: HermesProcess) -> None:
    """Its content stands in the message, beside the saved file."""
    data = "Grüße,\nsecond line\n".encode()
    async with device_on(hermes) as client:
        mark = await greeted(client)
        frame = {"t": "media", "kind": "document", "filename": "notes.md", "caption": "read it"}
        await client.file(frame, data)
        said = await received(client, mark, data)
        assert "notes.md" in said and "text: read it" in said
        asked = asked_of_model(hermes)
        assert "[Content of notes.md]:\nGrüße,\nsecond line" in asked


async def test_a_big_text_document_is_not_put_into_the_message(hermes: HermesProcess) -> None:
    """Over 100 KiB the model is told to read the file."""
    data = b"0123456789\n" * 20_000
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.file({"t": "media", "kind": "document", "filename": "big.log"}, data)
        await received(client, mark, data)
        asked = asked_of_model(hermes)
        assert "too many to be included" in asked
        assert len(asked) < 5_000


async def test_a_binary_document_keeps_its_name(hermes: HermesProcess) -> None:
    """A PDF in parts, with its true extension."""
    data = b"%PDF-1.7\n" + bytes(range(256)) * 40
    async with device_on(hermes) as client:
        mark = await greeted(client)
        half = len(data) // 2
        for part, piece in enumerate((data[:half], data[half:])):
            await client.file(
                {
                    "t": "media",
                    "id": "report-1",
                    "kind": "document",
                    "filename": "Report",
                    "part": part,
                    "parts": 2,
                },
                piece,
            )
        said = await received(client, mark, data)
        assert "Report.pdf" in said and "application/pdf" in said


def shown(client: DoorClient, mark: int) -> list[tuple[Frame, bytes]]:
    """The files an app has got: the last frame and the bytes."""
    parts: dict[str, list[Frame]] = {}
    for frame in client.frames[mark:]:
        if frame["t"] == "media":
            parts.setdefault(frame["id"], []).append(frame)
    return [
        (frames[-1], b"".join(base64.b64decode(f.get("data") or "") for f in frames))
        for frames in parts.values()
    ]


@pytest.mark.parametrize("kind", ["image", "voice", "video", "document", "animation"])
async def test_the_agent_sends_a_file(hermes: HermesProcess, kind: str) -> None:
    """Every kind of the reference, whole and with its type."""
    data = sample(hermes, kind)
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text(kind)
        await client.wait(lambda f: f["t"] == "media" and f["final"], since=mark)
        await client.idle(since=mark)

        ((frame, got),) = shown(client, mark)
        assert frame["kind"] == kind
        assert got == data and frame["size"] == len(data)
        assert frame["filename"].startswith(kind)
        assert frame["mime"].split("/")[0] == {"voice": "audio", "animation": "image"}.get(
            kind, frame["mime"].split("/")[0]
        )


async def test_several_images_in_one_answer(hermes: HermesProcess, tmp_path: Path) -> None:
    """Each arrives once, in order."""
    paths = []
    for number in range(3):
        path = tmp_path / f"picture-{number}.png"
        path.write_bytes(PNG + bytes([number]))
        paths.append(path)
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text("see\n" + "\n".join(f"MEDIA:{path}" for path in paths))
        await client.wait(
            lambda f: f["t"] == "media" and f["filename"] == "picture-2.png", since=mark
        )
        await client.idle(since=mark)
        files = shown(client, mark)
        assert [frame["filename"] for frame, _ in files] == [p.name for p in paths]
        assert [data for _, data in files] == [p.read_bytes() for p in paths]


async def test_a_file_over_the_limit_is_explained(
    new_hermes: Callable[..., HermesProcess], tmp_path: Path
) -> None:
    """The device reads a sentence, the owner the size in the log, without the name."""
    hermes = new_hermes()
    big = tmp_path / "huge.bin"
    big.write_bytes(bytes(9 * 1024 * 1024))
    async with device_on(hermes) as client:
        mark = await greeted(client)
        await client.text(f"take\nMEDIA:{big}")
        await client.message("huge.bin (9 MiB) was not sent: the limit is 8 MiB", since=mark)
        await client.idle(since=mark)
        assert shown(client, mark) == []
        assert not any(str(tmp_path) in text for text in client.texts(mark).values())
    await hermes.logged("why=too_big bytes=9437184 limit=8388608")
    assert "huge.bin" not in hermes.logs()
