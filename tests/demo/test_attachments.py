"""demo/attachments.py: what Hermes writes about a received file, for the model to describe."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from demo.attachments import described

DATA = b"%PDF-1.4 a few bytes\n"
SHA = hashlib.sha256(DATA).hexdigest()


def document(path: Path, shown: str) -> str:
    return (
        f"[The user sent a document: '{shown}'. It is saved at: {path}. Its text is not inlined "
        "here (it's a binary format such as PDF or DOCX). To read it, extract the text.]"
    )


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    file = tmp_path / "doc_0123456789ab_my file. v2 [new].pdf"
    file.write_bytes(DATA)
    return file


def test_no_file_no_description(pdf: Path) -> None:
    assert described("hello") is None
    assert described("it is saved at: /no/such/file") is None
    assert described(f"I wrote that it is saved at: {pdf}") is None


def test_a_document_with_an_awkward_name(pdf: Path) -> None:
    """The path holds spaces, brackets and full stops; the name is the one Hermes shows."""
    text = described(document(pdf, "my file. v2 [new].pdf"))

    assert text == (
        f"received document: my file. v2 [new].pdf, application/pdf, {len(DATA)} bytes, "
        f"sha256 {SHA}"
    )


def test_the_caption_is_told(pdf: Path) -> None:
    text = described(document(pdf, "a.pdf") + "\n\nplease read\n\nall of it")

    assert text is not None
    assert text.endswith("\ntext: please read\n\nall of it")


@pytest.mark.parametrize(
    ("note", "kind"),
    [
        ("[The user sent a voice message: {path}]", "voice"),
        ("[The user sent a voice message: {path} (duration: 0:02)]", "voice"),
        ("[The user sent an audio file attachment: 'x'. It is saved at: {path}. Its…]", "audio"),
        ("[The user sent a video attachment: 'x'. It is saved at: {path}. Its…]", "video"),
        ("What do you see in this image?\n\n[Image attached at: {path}]", "image"),
    ],
)
def test_every_kind(note: str, kind: str, pdf: Path) -> None:
    text = described(note.format(path=pdf))

    assert text is not None
    assert text.startswith(f"received {kind}: ")
    assert text.endswith(f"sha256 {SHA}"), "Hermes' own words are no caption"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_content_of_a_text_document_is_no_caption(tmp_path: Path, encoding: str) -> None:
    content = "first line\n\n[second] paragraph\n"
    file = tmp_path / "note.txt"
    file.write_bytes(content.encode(encoding))
    note = (
        f"[The user sent a text document: 'note.txt'. Its content has been included below. "
        f"The file is also saved at: {file}]"
    )

    text = described(f"{note}\n\n[Content of note.txt]:\n{content}\n\nthe caption")

    assert text is not None
    assert text.startswith("received document: note.txt, text/plain")
    assert text.endswith("\ntext: the caption")


def test_a_text_document_that_hermes_trimmed_is_no_caption(tmp_path: Path) -> None:
    """Nearly every text file ends with a newline, and Hermes trims the message it stands in."""
    file = tmp_path / "note.txt"
    file.write_bytes(b"first line\r\nlast line\n\n")
    note = f"[The user sent a text document: 'note.txt'. The file is also saved at: {file}]"

    text = described(f"{note}\n\n[Content of note.txt]:\nfirst line\r\nlast line")

    assert text is not None
    assert text.startswith("received document: note.txt")
    assert "\ntext:" not in text
