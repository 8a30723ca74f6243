"""Files between devices and Hermes, without Hermes."""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path

import pytest

from hermes_mobile import door_files, outbound_files
from hermes_mobile.inbound_files import (
    MAX_INLINE_TEXT_BYTES,
    Attachment,
    Cache,
    FileRefused,
    readable,
    receive,
)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
OPUS = b"OggS\x00\x02" + b"\0" * 20 + b"\x01\x13OpusHead\x01\x01" + b"\0" * 40
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + b"\0" * 40
MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + b"\0" * 40
PDF = b"%PDF-1.7\n" + b"\0" * 40
ZIP = b"PK\x03\x04" + b"\0" * 60


def cache(*, image_ok: bool = True) -> Cache:
    """Hermes' functions: the path tells which one was called."""

    def image(data: bytes, ext: str) -> str:
        if not image_ok:
            raise ValueError("not an image this Hermes can look at")
        return f"/images/x{ext}"

    return Cache(
        image=image,
        audio=lambda data, ext: f"/audio/x{ext}",
        video=lambda data, ext: f"/videos/x{ext}",
        document=lambda data, name: f"/documents/{name}",
    )


def got(kind: str, data: bytes, **said: str) -> Attachment:
    """Receive with what an app says."""
    return receive(
        kind,
        data,
        said.get("mime", ""),
        said.get("filename", ""),
        said.get("format", ""),
        said.get("text", ""),
        cache(),
    )


@pytest.mark.parametrize(
    ("kind", "data", "said", "want"),
    [
        ("voice", OPUS, {"format": "ogg"}, ("voice", "/audio/x.ogg", "audio/ogg")),
        ("voice", WAV, {"format": "ogg"}, ("voice", "/audio/x.wav", "audio/wav")),
        ("voice", b"noise", {"format": "wav"}, ("voice", "/audio/x.wav", "audio/wav")),
        ("voice", OPUS, {"format": "ogg", "text": "hi"}, ("audio", "/audio/x.ogg", "audio/ogg")),
        ("image", PNG, {"mime": "image/jpeg"}, ("photo", "/images/x.png", "image/png")),
        ("video", PNG, {"mime": "video/mp4"}, ("photo", "/images/x.png", "image/png")),
        ("image", MP4, {"filename": "a.jpg"}, ("video", "/videos/x.mp4", "video/mp4")),
        ("audio", OPUS, {"mime": "audio/mpeg"}, ("audio", "/audio/x.ogg", "audio/ogg")),
        (
            "document",
            PDF,
            {"filename": "report", "mime": "text/plain"},
            ("document", "/documents/report.pdf", "application/pdf"),
        ),
        (
            "document",
            PNG,
            {"filename": "scan.png"},
            ("document", "/documents/scan.png", "image/png"),
        ),
        (
            "document",
            ZIP,
            {"filename": "book.epub", "mime": "application/epub+zip"},
            ("document", "/documents/book.epub", "application/epub+zip"),
        ),
        (
            "document",
            b"\x00\x01\x02",
            {"filename": "x.txt", "mime": "text/plain"},
            ("document", "/documents/x.txt", "application/octet-stream"),
        ),
        (
            "image",
            b"no image at all",
            {"mime": "image/png", "filename": "a.png"},
            ("document", "/documents/a.png", "text/plain"),
        ),
    ],
)
def test_the_bytes_decide(
    kind: str, data: bytes, said: dict[str, str], want: tuple[str, str, str]
) -> None:
    """What the agent gets: kind, path with the true extension, MIME type."""
    attachment = got(kind, data, **said)
    assert (attachment.kind, attachment.path, attachment.mime) == want


def test_a_text_document_is_readable_by_the_model() -> None:
    """Content first, then what the person wrote; a name loses its folders."""
    attachment = got("document", "Grüße".encode(), filename="../../notes.md", text="read it")
    assert attachment.text == "[Content of notes.md]:\nGrüße\n\nread it"
    assert attachment.path == "/documents/notes.md"
    assert attachment.mime.startswith("text/")


@pytest.mark.parametrize("extra", [0, 1])
def test_the_largest_text_that_is_included(extra: int) -> None:
    """100 KiB, and one byte more."""
    data = b"x" * (MAX_INLINE_TEXT_BYTES + extra)
    text = got("document", data, filename="big.txt").text
    assert (len(text) > MAX_INLINE_TEXT_BYTES) == (extra == 0)
    assert ("too many to be included" in text) == (extra == 1)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("schön".encode(), "schön"),
        (b"\xef\xbb\xbfwith mark", "with mark"),
        ("wide".encode("utf-16"), "wide"),
        (b"\xff\xfe\x00", None),
        (b"a\x00b", None),
        (b"\x80\x81", None),
        (b"tab\tand\nline\x1b[0m", "tab\tand\nline\x1b[0m"),
    ],
)
def test_what_counts_as_text(data: bytes, text: str | None) -> None:
    """Readable for a person, or binary."""
    assert readable(data) == text


@pytest.mark.parametrize(
    ("kind", "data", "mime", "filename"),
    [
        ("document", b"text", "text/plain", "й" * 196 + ".txt"),
        ("document", PDF, "", "имя " * 49 + ".pdf"),
        ("document", b"\x00\x01", "", "👨‍👩‍👧" * 39),
        ("image", b"\x00", "image/png", "é" * 200),
        ("video", b"\x00", "video/mp4", "a." + "я" * 198),
        ("audio", b"\x00", "audio/ogg", "." + "ö" * 199),
    ],
)
def test_a_long_name_fits_a_disk(
    tmp_path: Path, kind: str, data: bytes, mime: str, filename: str
) -> None:
    """A name of 200 characters may have 800 bytes, a file system takes 255 of them."""

    def store(data: bytes, name: str) -> str:
        path = tmp_path / f"doc_0123456789ab_{name}"
        path.write_bytes(data)
        return str(path)

    def store_as(data: bytes, ext: str) -> str:
        return store(data, f"x{ext}")

    attachment = receive(
        kind, data, mime, filename, "", "", Cache(store_as, store_as, store_as, store)
    )

    stored = Path(attachment.path)
    assert stored.read_bytes() == data
    if filename[-4:] in (".txt", ".pdf"):
        assert stored.suffix == filename[-4:]


def test_an_image_hermes_cannot_look_at_is_a_document() -> None:
    """It still reaches the agent, and a failing disk is told without a path."""
    attachment = receive("image", PNG, "", "a.png", "", "look", cache(image_ok=False))
    assert (attachment.kind, attachment.text) == ("document", "look")

    def full(data: bytes, ext: str) -> str:
        raise OSError(28, "No space left on device", "/secret/place")

    broken = Cache(image=full, audio=full, video=full, document=full)
    with pytest.raises(FileRefused) as refused:
        receive("image", PNG, "", "", "", "", broken)
    assert "/secret" not in str(refused.value)


async def test_files_of_this_machine(tmp_path: Path) -> None:
    """Bytes, type by the bytes, name; an extension is added where there is none."""
    path = tmp_path / "picture"
    path.write_bytes(PNG)
    assert await outbound_files.read(str(path), "image") == (PNG, "image/png", "picture.png")


@pytest.mark.parametrize(
    ("size", "problem"), [(8 * 1024 * 1024 + 1, "limit is 8 MiB"), (0, "empty")]
)
async def test_files_that_are_not_sent(tmp_path: Path, size: int, problem: str) -> None:
    """The sentence for the person names no path; the owner's does."""
    path = tmp_path / "huge.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(outbound_files.FileNotSent) as refused:
        await outbound_files.read(str(path), "document")
    assert problem in refused.value.notice and str(tmp_path) not in refused.value.notice
    assert str(path) in str(refused.value)


async def test_the_largest_file_is_sent(tmp_path: Path) -> None:
    """Exactly 8 MiB; a missing file and a folder are explained."""
    path = tmp_path / "just.bin"
    path.write_bytes(bytes(8 * 1024 * 1024))
    data, _, _ = await outbound_files.read(str(path), "document")
    assert len(data) == 8 * 1024 * 1024
    for wrong in (tmp_path / "missing", tmp_path):
        with pytest.raises(outbound_files.FileNotSent, match=str(wrong)):
            await outbound_files.read(str(wrong), "document")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.png", "image"), ("a.GIF", "animation"), ("a.mp3", "voice"), ("a.mp4", "video"),
        ("a.pdf", "document"), ("a.svg", "document"), ("noext", "document"),
    ],
)  # fmt: skip
def test_kinds_by_name(path: str, kind: str) -> None:
    """As Hermes sends them; on wish everything is a document."""
    assert outbound_files.kind_of(path) == kind
    assert outbound_files.kind_of(path, as_document=True) == "document"


def test_addresses() -> None:
    """Name and type out of a URL."""
    assert outbound_files.of_url("https://x/a%20b.png?size=1", "image") == ("image/png", "a b.png")
    assert outbound_files.of_url("https://x/", "animation") == ("image/gif", "animation.gif")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///tmp/a%20b.png", "/tmp/a b.png"), ("/tmp/a.png", "/tmp/a.png"),
        ("file://elsewhere/a.png", None), ("data:image/png;base64,x", None), ("a.png", None),
    ],
)  # fmt: skip
def test_what_is_a_file_of_this_machine(url: str, path: str | None) -> None:
    """An app cannot fetch it; the door reads it."""
    assert outbound_files.local_path(url) == path


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    """Many start together: all read the same, private and long."""
    found: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        found.append(door_files.secret(tmp_path))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 8 and len(set(found)) == 1 and len(found[0]) >= 32
    path = tmp_path / "mobile" / "deliver-secret"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["deliver-secret"]


def test_a_secret_that_cannot_be_trusted(tmp_path: Path) -> None:
    """Open to others: closed again. A link, or too short: refused with what to do."""
    door_files.secret(tmp_path)
    path = tmp_path / "mobile" / "deliver-secret"
    path.chmod(0o644)
    door_files.secret(tmp_path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    path.write_text("short")
    with pytest.raises(door_files.DoorFilesError, match="remove it"):
        door_files.secret(tmp_path)
    path.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x" * 40)
    path.symlink_to(elsewhere)
    with pytest.raises(door_files.DoorFilesError, match="remove it"):
        door_files.secret(tmp_path)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "ws://127.0.0.1:1/ws"), ("0.0.0.0", "ws://127.0.0.1:1/ws"),
        ("::", "ws://[::1]:1/ws"), ("[::1]", "ws://[::1]:1/ws"), ("box.lan", "ws://box.lan:1/ws"),
    ],
)  # fmt: skip
def test_where_the_door_is(tmp_path: Path, host: str, url: str) -> None:
    """A bind address as one to connect to; the file goes with the door."""
    assert door_files.read_door(tmp_path) is None
    door_files.write_door(tmp_path, host, 1)
    assert door_files.read_door(tmp_path) == url
    door_files.remove_door(tmp_path)
    assert door_files.read_door(tmp_path) is None
