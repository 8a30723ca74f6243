"""Long text -> chunks that join back to the same text.

The cut falls, in this order, behind a paragraph, a line, a sentence or a word, else between two
grapheme clusters (Unicode Standard Annex 29), so that no visible character is torn. The limit
always wins: a cluster longer than a chunk is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import regex

from .protocol import DEFAULT_CHUNK_LIMIT

_CLUSTER = regex.compile(r"\X")
# What may not stand at the start of a chunk because it belongs to the character before it.
_JOINER = regex.compile(
    r"[\p{Grapheme_Cluster_Break=Extend}\p{Grapheme_Cluster_Break=SpacingMark}\u200d]"
)
# Two characters of which neither belongs to another.
_PLAIN_PAIR = regex.compile(r"\p{Grapheme_Cluster_Break=Other}{2}")
_PARAGRAPH = regex.compile(r"\n[ \t\r]*\n+")
_LINE = regex.compile(r"\n")
_SENTENCE = regex.compile(r"""[.!?…]["'”’»)\]]*\s|[。！？][”’」』）]*""")
_WORD = regex.compile(r"\s")


def split(text: str, limit: int = DEFAULT_CHUNK_LIMIT, previous: Sequence[str] = ()) -> list[str]:
    """Cut `text` into pieces of at most `limit` characters; `"".join(split(text)) == text`.

    `previous` are the chunks of an earlier revision. Where the text still begins with them they are
    kept: a growing text is not cut anew from its start, and its finished chunks stay the same.
    An empty text is one empty chunk. Raises `ValueError` for a limit below 1.
    """
    if limit < 1:
        raise ValueError(f"a chunk holds at least one character, not {limit}")
    if len(text) <= limit:
        return [text]
    chunks: list[str] = []
    start = 0
    for chunk in previous[:-1]:
        end = start + len(chunk)
        # Strictly inside the text: the last chunk of an earlier revision may have grown. What now
        # follows must not belong to the chunk's last character.
        if not start < end < len(text) or len(chunk) > limit or not text.startswith(chunk, start):
            break
        if not _between_clusters(text, start, end):
            break
        chunks.append(chunk)
        start += len(chunk)
    chunks.extend(_cut(text, start, limit))
    return chunks


def _cut(text: str, start: int, limit: int) -> Iterator[str]:
    while len(text) - start > limit:
        end = _boundary(text, start, start + limit)
        yield text[start:end]
        start = end
    yield text[start:]


def _boundary(text: str, start: int, end: int) -> int:
    """Where to cut so that the piece from `start` is not longer than up to `end`."""
    half = start + (end - start) // 2
    for lowest in (half, start):
        for pattern in (_PARAGRAPH, _LINE, _SENTENCE, _WORD):
            # From the end backwards, so that the piece is as long as it can be.
            for found in _backwards(pattern, text, lowest, end):
                if not _JOINER.match(text, found) and text[found - 1 : found + 1] != "\r\n":
                    return found
    return _cluster_boundary(text, start, end)


def _backwards(pattern: regex.Pattern[str], text: str, lowest: int, end: int) -> Iterator[int]:
    """The ends of the matches within `text[lowest:end]`, the last one first."""
    found = [match.end() for match in pattern.finditer(text, lowest, end)]
    return (position for position in reversed(found) if position > lowest)


def _between_clusters(text: str, start: int, end: int) -> bool:
    """Whether a cluster ends at `end`, one beginning at `start`."""
    pair = text[end - 1 : end + 1]
    if pair.isascii():
        return pair != "\r\n"
    if _PLAIN_PAIR.match(pair):
        return True
    return any(match.end() == end for match in _CLUSTER.finditer(text, start, end + 1))


def _cluster_boundary(text: str, start: int, end: int) -> int:
    if text[end - 1 : end + 1].isascii():
        return end if text[end - 1 : end + 1] != "\r\n" or end - start == 1 else end - 1
    last = start
    # The cluster that reaches across `end` is seen whole only with what follows it.
    for match in _CLUSTER.finditer(text, start):
        if match.end() > end:
            break
        last = match.end()
        if last == end:
            break
    return last if last > start else end
