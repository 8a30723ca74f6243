"""Doors with one fault each, and the check of the conformance kit that must name it.

Each is the real door seen through a man in the middle who does one thing wrong. `FAULTS` holds them
with the title of the check that has to fail.
"""

from __future__ import annotations

import asyncio
import base64
import html
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from hermes_mobile.conformance.contract import load

from .man_in_the_middle import Conversation, Faithful, Raw, error

FAULTS: list[tuple[type[Faithful], str]] = []


def named_by(title: str) -> Any:
    """The check that must fail at a door with this fault."""

    def note(fault: type[Faithful]) -> type[Faithful]:
        FAULTS.append((fault, title))
        return fault

    return note


Frame = dict[str, Any]
MAIN: str = load("door.json")["settings"]["MOBILE_TOKEN"]


def _t(frame: Frame) -> str:
    return str(frame.get("t")).lower()


def _parts(frame: Frame) -> int:
    found = frame.get("parts")
    return found if _t(frame) == "media" and isinstance(found, int) else 1


class Out(Faithful):
    """A fault in what the door says: `spoil` gives the frames in place of one."""

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return self.spoil(talk, frame, raw)

    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        raise NotImplementedError


class In(Faithful):
    """A fault in what the door hears: `spoil` gives the messages in place of one."""

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return self.spoil(talk, frame, raw)

    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        raise NotImplementedError


# --------------------------------------------------------------------------------------------------
# Connection and handshake


@named_by("connection: a page of a foreign origin is not let in")
class OriginUnchecked(Faithful):
    def address(self, path: str, headers: dict[str, str]) -> str:
        headers.pop("Origin", None)
        return path


@named_by("connection: another path is no door")
class EveryPathIsTheDoor(Faithful):
    def address(self, path: str, headers: dict[str, str]) -> str:
        return "/ws"


@named_by("connection: a message in fragments is one message")
class FragmentsCut(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return (raw[:3],) if frame.get("ts") == "in three parts" else (raw,)


@named_by("handshake: a token in the address is not looked at")
class QueryTokenAccepted(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        query = talk.path.partition("?token=")[2]
        return ({**frame, "token": query},) if query and _t(frame) == "hello" else (raw,)


@named_by("handshake: a wrong token")
class NoErrorBeforeClose(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("fatal") else (raw,)


@named_by("handshake: a wrong token")
class WrongCloseCode(Faithful):
    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str]:
        return (1000, reason) if code == 1008 else (code, reason)


@named_by("handshake: no token")
class NoCloseReason(Faithful):
    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str]:
        return code, ""


@named_by("handshake: a wrong token")
class WrongTokenIsBadFrame(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "code": "bad_frame"},) if frame.get("code") == "auth_failed" else (raw,)


@named_by("hello: no hello within 15 seconds")
class HelloTimeoutMissing(Faithful):
    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return (raw,) if talk.state.get("spoke") else ()

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        talk.state["spoke"] = True
        return (raw,)

    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str] | None:
        return (code, reason) if talk.state.get("spoke") else None


@named_by("crowds: of too many connections without hello the oldest goes")
class StrangersKept(Faithful):
    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str] | None:
        return None if code == 1013 and not talk.hello else (code, reason)


@named_by("crowds: of too many connections without hello the oldest goes")
class NewestStrangerGoes(Faithful):
    async def opened(self, talk: Conversation) -> None:
        if sum(not known.hello for known in self.conversations) > 200:
            await talk.end(1013, "full")


@named_by("crowds: a client is let in within 2 s beside 300 strangers")
class StrangersHoldOthersUp(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hello":
            await asyncio.sleep(len(self.conversations) / 100)
        return (raw,)


@named_by("crowds: after 20 failed hellos a minute the answers come later")
class GuessesAnsweredAtOnce(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hello" and str(frame.get("token")).startswith("wrong-"):
            await talk.tell(error("auth_failed", fatal=True))
            await talk.end(1008, "auth_failed")
            return ()
        return (raw,)


@named_by("crowds: after 20 failed hellos a minute the answers come later")
class GoodTokensPunishedToo(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hello" and len(self.conversations) > 20:
            await asyncio.sleep(3.0)
        return (raw,)


@named_by("hello: a second hello")
class SecondHelloFatal(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if talk.ready and _t(frame) == "hello":
            await talk.tell(error("bad_frame", fatal=True))
            await talk.end(1008, "bad_frame")
            return ()
        return (raw,)


@named_by("handshake: hello as a binary message")
class BinaryIgnored(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if isinstance(raw, bytes) else (raw,)


@named_by("handshake: a device id that can be no address")
class EveryDeviceIdTaken(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hello" and ":" in talk.device:
            return ({**frame, "device": {"id": talk.device.replace(":", "-")}},)
        return (raw,)


@named_by("handshake: the same device with the same token takes the connection over")
class ReplacedWithout4001(Faithful):
    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str]:
        return (1000, reason) if code == 4001 else (code, reason)


@named_by("handshake: the same device with the same token takes the connection over")
class ReplacedNotClosed(Faithful):
    def closing(self, talk: Conversation, code: int, reason: str) -> tuple[int, str] | None:
        return None if code == 4001 else (code, reason)


@named_by("handshake: a device id belongs to the token it first came with")
class ForeignTokenKicks(Faithful):
    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("code") == "forbidden" and frame.get("fatal"):
            for other in list(self.conversations):
                if other is not talk and other.device == talk.device and other.ready:
                    await other.end(4001, "replaced")
        return (raw,)


@named_by("hello: no addition named")
class AdditionsUnasked(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "ready" and talk.hello.get("supports") == []:
            frame["capabilities"]["extensions"] = ["accepted"]
            return (frame,)
        return (raw,)


# --------------------------------------------------------------------------------------------------
# Frames


@named_by("envelope: t in upper case")
class CaseSensitive(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("t") in ("TEXT", "Text", "HELLO", "PING") else (raw,)


@named_by("envelope: a frame of an unknown type is ignored")
class UnknownTypeIsError(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hologram":
            await talk.tell(error("unsupported_frame"))
            return ()
        return (raw,)


@named_by("other: ping: ts is a number in another spelling")
class TsReencoded(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return (json.dumps(frame),) if frame.get("t") == "pong" else (raw,)


@named_by("text: an error carries the id that was cut")
class IdNotCut(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        talk.state["id"] = frame.get("id")
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        whole = talk.state.get("id")
        if frame.get("t") == "error" and isinstance(whole, str) and len(whole) > 128:
            return ({**frame, "id": whole},)
        return (raw,)


@named_by("text: a blank text")
class ErrorWithoutId(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "error":
            frame.pop("id", None)
            return (frame,)
        return (raw,)


@named_by("text: a blank text")
class ErrorNamesNoField(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "message": "wrong"},) if frame.get("t") == "error" else (raw,)


@named_by("text: a text")
class AnswersInBinary(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return (raw.encode() if isinstance(raw, str) and frame.get("t") == "message" else raw,)


class _Refuses(Faithful):
    """Refuses what is allowed."""

    code = "too_big"

    def refuses(self, frame: Frame) -> bool:
        raise NotImplementedError

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if self.refuses(frame):
            await talk.tell(error(self.code, frame.get("id")))
            return ()
        return (raw,)


@named_by("text: a text of 12,000 characters")
class TextLimitTooLow(_Refuses):
    def refuses(self, frame: Frame) -> bool:
        return _t(frame) == "text" and len(str(frame.get("text"))) == 12_000


@named_by("text: 12,000 characters beyond the BMP")
class TextLimitInBytes(_Refuses):
    def refuses(self, frame: Frame) -> bool:
        text = frame.get("text")
        return (
            isinstance(text, str)
            and 12_000 < len(text.encode("utf-8", "replace")) // 4 * 4
            and (len(text) <= 12_000)
        )


@named_by("text: a text of 12,001 characters")
class TextLimitTooHigh(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        text = frame.get("text")
        if _t(frame) == "text" and isinstance(text, str) and len(text) == 12_001:
            return ({**frame, "text": text[:-1]},)
        return (raw,)


@named_by("text: a text of 12,001 characters")
class TooBigCloses(Faithful):
    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("code") == "too_big":
            await talk.tell(raw)
            await talk.end(1008, "too_big")
            return ()
        return (raw,)


@named_by("text: white space inside and around is kept")
class TextTrimmed(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        text = frame.get("text")
        if _t(frame) == "text" and isinstance(text, str) and text.strip():
            return ({**frame, "text": text.strip()},)
        return (raw,)


@named_by("text: an empty text")
class EmptyTextTaken(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "text": "(empty)"},) if frame.get("text") == "" else (raw,)


@named_by("audio: the URL alphabet")
class UrlAlphabetTaken(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "data": "AAAA"},) if frame.get("data") == "-_-_" else (raw,)


@named_by("audio: a format nobody takes")
class EveryFormatTaken(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "format": "wav"},) if frame.get("format") == "mp3" else (raw,)


@named_by("audio: 8 MiB and a byte")
class FileLimitTooHigh(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        data = frame.get("data")
        if _t(frame) == "audio" and isinstance(data, str) and len(data) > 11_184_812 - 4:
            return ({**frame, "data": base64.b64encode(bytes(8 * 1024 * 1024)).decode()},)
        return (raw,)


@named_by("media: a path before the name")
class PathKept(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        talk.state["name"] = frame.get("filename")
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        name = talk.state.get("name")
        if frame.get("t") == "message" and isinstance(name, str) and "/" in name:
            return ({**frame, "text": frame["text"].replace("a.pdf", name)},)
        return (raw,)


# --------------------------------------------------------------------------------------------------
# Sending again


class _OwnIds(Faithful):
    """Tells the door other ids than the app; what comes back is the app's again."""

    def id(self, talk: Conversation, frame: Frame) -> str:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[str, str] = {}

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) in ("text", "audio", "media") and isinstance(frame.get("id"), str):
            if _parts(frame) > 1:
                return (raw,)
            own = self.id(talk, frame)
            self._given[own] = frame["id"]
            return ({**frame, "id": own},)
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") in ("accepted", "error") and frame.get("id") in self._given:
            return ({**frame, "id": self._given[frame["id"]]},)
        return (raw,)


@named_by("turns: the same id is answered once")
class NoDedup(_OwnIds):
    def __init__(self) -> None:
        super().__init__()
        self._number = itertools.count()

    def id(self, talk: Conversation, frame: Frame) -> str:
        return f"own-{next(self._number)}"


@named_by("turns: the same id on the next connection is answered once")
class DedupOfOneConnection(_OwnIds):
    def id(self, talk: Conversation, frame: Frame) -> str:
        return f"{id(talk)}-{frame['id']}"


@named_by("turns: text, audio and media share their ids")
class DedupByKind(_OwnIds):
    def id(self, talk: Conversation, frame: Frame) -> str:
        return f"{_t(frame)}-{frame['id']}"


@named_by("turns: the same id of two devices is two messages")
class DedupAcrossDevices(In):
    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, str] = {}

    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "text" and isinstance(frame.get("id"), str):
            # Names of one check differ in their first word alone.
            check = talk.device.partition("-")[2].partition("-")[2]
            first = self._seen.setdefault(f"{check}:{frame['id']}", talk.device)
            return (raw,) if first == talk.device else ()
        return (raw,)


@named_by("deliveries: a delivery that came twice is shown once")
class DeliveredTwice(In):
    def __init__(self) -> None:
        super().__init__()
        self._number = itertools.count()

    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "deliver" and isinstance(frame.get("id"), str):
            return ({**frame, "id": f"{frame['id']}-{next(self._number)}"},)
        return (raw,)


# --------------------------------------------------------------------------------------------------
# Uploads


@named_by("media: the last of 2,048 parts")
class PartsLimitTooLow(_Refuses):
    code = "bad_frame"

    def refuses(self, frame: Frame) -> bool:
        return _parts(frame) == 2048


@named_by("media: 2,049 parts")
class PartsLimitTooHigh(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if _parts(frame) == 2049 else (raw,)


@named_by("uploads: parts in reverse")
class PartsOnlyInOrder(_Refuses):
    code = "bad_frame"

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, int] = {}

    def refuses(self, frame: Frame) -> bool:
        return (
            _parts(frame) == 3
            and frame.get("part") == 2
            and frame.get("data") is not None
            and (self._next.setdefault(str(frame.get("id")), 0) == 0)
        )


@named_by("uploads: eight open uploads, not nine")
class OtherUploadsDropped(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if talk.state.get("dropped") and _parts(frame) > 1 else (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("code") == "too_big":
            talk.state["dropped"] = True
        return (raw,)


@named_by("uploads: the open uploads of a device hold 8 MiB together")
class UploadBytesNotCounted(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("code") == "too_big" else (raw,)


@named_by("uploads: a repeated part changes nothing")
class RepeatedPartDoubles(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _parts(frame) > 1:
            seen = talk.state.setdefault("parts", set())
            talk.state["doubled"] = talk.state.get("doubled") or frame.get("part") in seen
            seen.add(frame.get("part"))
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if talk.state.get("doubled") and frame.get("t") == "message":
            return ({**frame, "text": frame["text"].replace("sha256 ", "sha256 0")},)
        return (raw,)


# --------------------------------------------------------------------------------------------------
# Answers


@named_by("turns: a streamed answer: one id, edits, final at the end")
class FinalMissing(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "final": False},) if frame.get("t") == "message" else (raw,)


@named_by("turns: a streamed answer: one id, edits, final at the end")
class FinalTooEarly(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "final": True},) if frame.get("t") == "message" else (raw,)


@named_by("turns: a long answer comes in chunks")
class FinalOnEveryChunk(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message" and not frame.get("edit"):
            return ({**frame, "final": True},)
        return (raw,)


@named_by("turns: a streamed answer: one id, edits, final at the end")
class EditOnTheFirstFrame(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "edit": True},) if frame.get("t") == "message" else (raw,)


@named_by("turns: a streamed answer: one id, edits, final at the end")
class EditNeverSaid(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        frame.pop("edit", None)
        return (frame,) if frame.get("t") == "message" else (raw,)


@named_by("turns: a streamed answer: one id, edits, final at the end")
class IdOfEachRevision(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message":
            return ({**frame, "id": f"{frame['id']}-{len(frame['text'])}"},)
        return (raw,)


@named_by("turns: a long answer comes in chunks")
class ChunkTooLong(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message" and frame["chunk"] == {"index": 0, "total": 3}:
            return ({**frame, "text": frame["text"].ljust(3501)},)
        return (raw,)


@named_by("turns: a long answer comes in chunks")
class ChunksLossy(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return (
            ({**frame, "text": frame["text"].strip()},) if frame.get("t") == "message" else (raw,)
        )


@named_by("turns: a long answer comes in chunks")
class ChunksFromOne(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message":
            frame["chunk"]["index"] += 1
            return (frame,)
        return (raw,)


@named_by("texts: a long answer is cut between words")
class CutInsideWords(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message" and frame["chunk"]["total"] > 1:
            held = talk.state.pop("held", "")
            text = held + frame["text"]
            if frame["chunk"]["index"] < frame["chunk"]["total"] - 1:
                text, talk.state["held"] = text[:-4], text[-4:]
            return ({**frame, "text": text},)
        return (raw,)


@named_by("texts: every revision resends every chunk")
class PartialEditsForAll(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message":
            known = talk.state.setdefault("chunks", {})
            key = frame["id"], frame["chunk"]["index"], frame["chunk"]["total"]
            unchanged = known.get(key) == frame["text"]
            known[key] = frame["text"]
            return () if unchanged and not frame["final"] else (raw,)
        return (raw,)


@named_by("texts: with partial_edits a revision sends what changed")
class PartialEditsPromised(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hello" and talk.supports("partial_edits"):
            return ({**frame, "supports": []},)
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "ready" and talk.supports("partial_edits"):
            frame["capabilities"]["extensions"] = ["partial_edits"]
            return (frame,)
        return (raw,)


@named_by("turns: files of every kind")
class SizeOfFileWrong(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "size": frame["size"] + 1},) if frame.get("t") == "media" else (raw,)


# --------------------------------------------------------------------------------------------------
# Avatar, typing, accepted


@named_by("turns: the frames of a turn, in their order")
class TypingStopMissing(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("t") == "typing" and frame.get("stop") else (raw,)


@named_by("turns: the frames of a turn, in their order")
class TypingBeforeThinking(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("state") == "thinking":
            talk.state["held"] = raw
            return ()
        return (raw, talk.state.pop("held")) if "held" in talk.state else (raw,)


@named_by("turns: the frames of a turn, in their order")
class SpeakingBeforeWords(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message":
            talk.state["held"] = raw
            return ()
        return (raw, talk.state.pop("held")) if "held" in talk.state else (raw,)


@named_by("texts: three turns, each from thinking to idle")
class IdleOnlyOnce(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("state") == "idle":
            talk.state["idles"] = talk.state.get("idles", 0) + 1
            return (raw,) if talk.state["idles"] == 1 else ()
        return (raw,)


@named_by("turns: a hand-over that fails is told and leaves the id free")
class AcceptedBeforeTaken(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "text" and talk.supports("accepted"):
            await talk.tell({"t": "accepted", "id": frame.get("id")})
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("t") == "accepted" else (raw,)


@named_by("text: a client that did not name accepted hears nothing")
class AcceptedForAll(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "text" and not talk.supports("accepted"):
            await talk.tell({"t": "accepted", "id": frame.get("id")})
        return (raw,)


@named_by("turns: the same id is answered once")
class RepeatNotAccepted(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "accepted":
            seen = talk.state.setdefault("accepted", set())
            first = frame["id"] not in seen
            seen.add(frame["id"])
            return (raw,) if first else ()
        return (raw,)


# --------------------------------------------------------------------------------------------------
# Cards


@named_by("cards: an approval")
class DoneAfterItsMessage(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "prompt_done":
            talk.state["held"] = raw
            return ()
        if frame.get("t") == "message" and "held" in talk.state:
            return (raw, talk.state.pop("held"))
        return (raw,)


@named_by("cards: a value outside the table denies")
class EveryOptionTaken(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "prompt" and frame.get("option_id") == "yes":
            return ({**frame, "option_id": "once"},)
        return (raw,)


@named_by("cards: a card of another device")
class ForeignAnswerTaken(Faithful):
    def __init__(self) -> None:
        super().__init__()
        self._cards: dict[str, Conversation] = {}

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        owner = self._cards.get(str(frame.get("prompt_id")))
        if _t(frame) == "prompt" and owner not in (None, talk) and owner in self.conversations:
            assert owner is not None
            await owner.door.send(raw)
            await talk.tell(
                {"t": "prompt_done", "id": frame["prompt_id"], "option_id": frame["option_id"]}
            )
            return ()
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "prompt":
            self._cards[frame["id"]] = talk
        return (raw,)


@named_by("cards: a card nobody knows")
class UnknownCardIsError(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "prompt_done" and frame.get("expired"):
            return (error("bad_frame", frame["id"]),)
        return (raw,)


@named_by("cards: an answer that comes twice is told what was applied")
class SecondAnswerApplied(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "prompt":
            talk.state["said"] = frame.get("option_id")
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "prompt_done" and talk.state.get("said") == "once":
            return ({**frame, "option_id": "once"},)
        return (raw,)


@named_by("cards: an open card is shown again on the next connection")
class CardShownOnce(Out):
    def __init__(self) -> None:
        super().__init__()
        self._shown: set[str] = set()

    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "prompt":
            first = frame["id"] not in self._shown
            self._shown.add(frame["id"])
            return (raw,) if first else ()
        return (raw,)


@named_by("cards: two approvals at once: each answer reaches its own")
class AnswersInOrderOfCards(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        cards = talk.state.get("cards", [])
        if _t(frame) == "prompt" and frame.get("prompt_id") in cards:
            return ({**frame, "prompt_id": cards.pop(0)},)
        return (raw,)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "prompt":
            talk.state.setdefault("cards", []).append(frame["id"])
        return (raw,)


# --------------------------------------------------------------------------------------------------
# Deliveries


@named_by("deliver: from a connection that may not deliver")
class EveryoneMayDeliver(Faithful):
    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("code") == "forbidden" and talk.state.get("delivers") else (raw,)

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        talk.state["delivers"] = _t(frame) == "deliver"
        return (raw,)


@named_by("deliveries: text first, then the file")
class FileBeforeText(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if frame.get("t") == "message" and frame.get("text") == "look":
            talk.state["held"] = raw
            return ()
        if frame.get("t") == "media" and "held" in talk.state:
            return (raw, talk.state.pop("held"))
        return (raw,)


@named_by("deliver: a device that is away")
class OfflineNotTold(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return () if frame.get("code") == "device_offline" else (raw,)


@named_by("deliveries: audio arrives as voice")
class AudioStaysAudio(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "kind": "audio"},) if frame.get("kind") == "voice" else (raw,)


# --------------------------------------------------------------------------------------------------
# What is said stays as it was said, and is told apart


class Words(Out):
    """A fault in the words of every message: `words` gives others in their place."""

    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "text": self.words(frame["text"])},) if _t(frame) == "message" else (raw,)

    def words(self, text: str) -> str:
        raise NotImplementedError


@named_by("text: marks of other languages stay as they are")
class MarkupEscaped(Words):
    def words(self, text: str) -> str:
        return html.escape(text, quote=False)


@named_by("text: marks of other languages stay as they are")
class BlanksJoined(Words):
    def words(self, text: str) -> str:
        return re.sub("  +", " ", text)


@named_by("text: line ends stay as they are")
class LineEndsMadeOne(Words):
    def words(self, text: str) -> str:
        return text.replace("\r\n", "\n").replace("\r", "\n")


@named_by("text: invisible characters stay as they are")
class ByteOrderMarksDropped(Words):
    def words(self, text: str) -> str:
        return text.replace("\ufeff", "")


@named_by("text: nothing is composed or decomposed")
class CharactersComposed(Words):
    def words(self, text: str) -> str:
        return unicodedata.normalize("NFC", text)


@named_by("texts: every message has an id of its own")
class IdsCountedOnEachConnection(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) != "message":
            return (raw,)
        known = talk.state.setdefault("ids", {})
        return ({**frame, "id": f"m-{known.setdefault(frame['id'], len(known))}"},)


class Ids(Faithful):
    """A fault in which ids of an app are one: `key` gives what counts of an id."""

    def __init__(self) -> None:
        super().__init__()
        self._own: dict[str, str] = {}

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) != "text" or not isinstance(frame.get("id"), str):
            return (raw,)
        key = self.key(frame["id"])
        self._own[key] = frame["id"]
        return ({**frame, "id": key},)

    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return (
            ({**frame, "id": self._own[frame["id"]]},) if frame.get("id") in self._own else (raw,)
        )

    def key(self, id: str) -> str:
        raise NotImplementedError


@named_by("turns: ids that differ in case or in white space are two ids")
class IdsWithoutCase(Ids):
    def key(self, id: str) -> str:
        return id.lower()


@named_by("turns: ids that differ in case or in white space are two ids")
class IdsTrimmed(Ids):
    def key(self, id: str) -> str:
        return id.strip()


@named_by("turns: ids that differ in their 128th character are two ids")
class IdsCutTooSoon(Ids):
    def key(self, id: str) -> str:
        return id[:127]


@named_by("deliveries: a delivery that came again on the sender's next connection is shown once")
class DeliveriesForgottenWithTheConnection(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({**frame, "id": f"{frame['id']}-{id(talk)}"},) if _t(frame) == "deliver" else (raw,)


# --------------------------------------------------------------------------------------------------
# Turns, absence, and who comes in


@named_by("texts: many revisions, and each state is told once")
class SpeakingWithEveryRevision(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        return ({"t": "avatar", "state": "speaking"}, raw) if frame.get("edit") else (raw,)


@named_by("texts: the states around a file")
class NoRestBehindAFile(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) in ("media", "message"):
            talk.state["file"] = _t(frame) == "media"
        return () if frame.get("state") == "idle" and talk.state.get("file") else (raw,)


@named_by("texts: a ping is answered while the agent works")
class DeafInATurn(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        held = talk.state.setdefault("held", [])
        if frame.get("state") == "thinking":
            talk.state["turn"] = True
        if _t(frame) == "pong" and talk.state.get("turn"):
            held.append(raw)
            return ()
        if frame.get("state") != "idle":
            return (raw,)
        talk.state["turn"], talk.state["held"] = False, []
        return (raw, *held)


@named_by("texts: what was said while a device was away")
class NothingKeptForTheAbsent(Faithful):
    async def outward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        told = talk.state.setdefault("told", set())
        known = talk.state.setdefault("asked", False)
        if _t(frame) == "message" and not known and frame["id"] not in told:
            return ()
        return (raw,)

    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        talk.state["asked"] = talk.state.get("asked", False) or _t(frame) == "text"
        return (raw,)


@named_by("connection: a hello that comes late replaces nobody")
class LateHelloReplaces(Faithful):
    async def inward(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) == "hello" and talk.device:
            for other in self.conversations:
                if other is not talk and other.device == talk.device:
                    await other.end(4001, "replaced")
        return (raw,)


@named_by("connection: a part of a token opens nothing")
class BeginningOfATokenIsEnough(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        token = frame.get("token")
        if _t(frame) == "hello" and isinstance(token, str) and MAIN.startswith(token) and token:
            return ({**frame, "token": MAIN},)
        return (raw,)


@named_by("hello: a token with more behind it is another token")
class TokensCut(In):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        token = frame.get("token")
        if _t(frame) == "hello" and isinstance(token, str) and token.startswith(MAIN):
            return ({**frame, "token": MAIN},)
        return (raw,)


@named_by("hello: a device id keeps its letters as they are")
class DeviceIdsInLowerCase(Out):
    def spoil(self, talk: Conversation, frame: Frame, raw: Raw) -> Iterable[Any]:
        if _t(frame) != "ready":
            return (raw,)
        id = frame["device"]["id"].lower()
        return ({**frame, "session": f"mobile:{id}", "device": {**frame["device"], "id": id}},)


@named_by("connection: compression is not taken up")
class CompressionTakenUp(Faithful):
    compression = "deflate"


@named_by("connection: GET /health tells no secret")
class HealthTellsTheToken(Faithful):
    def health(self, body: bytes) -> bytes:
        return json.dumps({**json.loads(body), "token": MAIN}).encode()
