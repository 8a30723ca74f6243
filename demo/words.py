"""What the offline model answers: pure functions from a chat request to a plan.

The words are those of the scripted agent of the device door (`hermes-mobile serve --agent
demo`), so that one script can be run against either. Here they pass through a real Hermes
Agent: `approve` becomes a tool call that Hermes asks the user about, `image` becomes a
`MEDIA:` line that Hermes turns into a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from demo import attachments

MAX_LONG = 200_000
"""Most characters `long N` answers with."""
MAX_STREAM_WORDS = 20_000
MAX_STREAM_DELAY = 5.0
DEFAULT_STREAM_DELAY = 0.05
MEDIA_KINDS = ("image", "voice", "video", "document", "animation")

# The demo's Hermes plugin asks for approval of every call whose id starts so, also when Hermes
# itself sees no danger in the command.
ASK_PREFIX = "ask_"
PAIR_TOOL = "terminal_pair"
"""The plugin's tool that starts two commands at once, for two pending approvals."""

# As the scripted agent reads them: what is no such number is echoed.
_NUMBER = re.compile(r"0*([1-9]\d*)", re.ASCII)
_STREAM = re.compile(r"([1-9]\d{0,5})(?: +(\d{1,6}))?", re.ASCII)

Message = Mapping[str, Any]
_SYSTEM_NOTE = re.compile(r"(?:\A|\n\n)\[System note: [^\]]*\](?=\n\n|\s*\Z)")


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the model's answer."""

    name: str
    arguments: Mapping[str, Any]
    asks: bool = False


@dataclass(frozen=True)
class Plan:
    """What to answer: some text, word by word if `delay` > 0 seconds, or calls, or an error."""

    text: str = ""
    delay: float = 0.0
    calls: tuple[ToolCall, ...] = field(default=())
    status: int = 200


def plan(
    messages: Sequence[Message],
    tools: Mapping[str, Collection[str]],
    media: Mapping[str, str],
) -> Plan:
    """Decide the answer to one chat-completions request.

    Args:
        messages: the request's messages, oldest first.
        tools: the tools the request offers, each with the names of its arguments.
        media: kind -> absolute path of a small file of that kind.
    """
    if not messages:
        return Plan(text="echo: ")
    if not tools and (title := _title(messages)) is not None:
        return Plan(text=title)
    turn = _since_user(messages)
    asked = _text(turn[0].get("content"))
    if len(turn) > 1 and turn[-1].get("role") == "tool":
        return _after_tools(turn)
    received = attachments.described(asked)
    if received is not None:
        return Plan(text=received)
    words = _newest(asked)
    return _by_word(words, tools, media) or Plan(text=f"echo: {words}")


def _by_word(
    words: str, tools: Mapping[str, Collection[str]], media: Mapping[str, str]
) -> Plan | None:
    word, _, rest = words.partition(" ")
    rest = rest.strip()
    match word:
        case "long" if (found := _NUMBER.fullmatch(rest)) is not None:
            return Plan(text=prose(min(int(found[1][:7]), MAX_LONG)))
        case "stream" if (found := _STREAM.fullmatch(rest)) is not None:
            count = min(int(found[1]), MAX_STREAM_WORDS)
            delay = int(found[2]) / 1000 if found[2] else DEFAULT_STREAM_DELAY
            spoken = " ".join(f"word{n}" for n in range(1, count + 1))
            return Plan(text=spoken, delay=min(delay, MAX_STREAM_DELAY))
        case "approve" if rest:
            return Plan(calls=(ToolCall("terminal", {"command": rest}, asks=True),))
        case "approve2" if "|" in rest:
            first, _, second = (part.strip() for part in rest.partition("|"))
            if not first or not second:
                return None
            if PAIR_TOOL in tools:
                return Plan(calls=(ToolCall(PAIR_TOOL, {"commands": [first, second]}, asks=True),))
            return Plan(
                calls=tuple(
                    ToolCall("terminal", {"command": command}, asks=True)
                    for command in (first, second)
                )
            )
        case "run" if rest:
            return Plan(calls=(ToolCall("terminal", {"command": rest}),))
        case "clarify" if rest.partition("|")[0].strip():
            question, *choices = (part.strip() for part in rest.split("|"))
            choices = [choice for choice in choices if choice]
            asked: dict[str, Any] = {"question": question}
            if choices:
                asked["choices"] = choices
            # The newer Hermes takes a list of questions.
            several = "questions" in tools.get("clarify", ())
            arguments = {"questions": [asked]} if several else asked
            return Plan(calls=(ToolCall("clarify", arguments),))
        case "fail" if rest in ("", "model"):
            # From a device only `fail model` comes so far: there `fail` fails at the hand-over.
            return Plan(status=400)
        case _ if word in MEDIA_KINDS and not rest and word in media:
            tag = "[[audio_as_voice]]\n" if word == "voice" else ""
            return Plan(text=f"{tag}MEDIA:{media[word]}")
    return None


def prose(length: int) -> str:
    """Exactly `length` characters in numbered sentences and paragraphs, none at its end blank:
    Hermes would strip it."""
    parts: list[str] = []
    size = 0
    number = 0
    while size < length:
        number += 1
        end = "\n\n" if number % 5 == 0 else " "
        parts.append(f"Sentence {number} of a long answer, with nothing in it but words.{end}")
        size += len(parts[-1])
    text = "".join(parts)[:length]
    kept = text.rstrip()
    return kept + "." * (length - len(kept))


def _after_tools(turn: Sequence[Message]) -> Plan:
    """The final text once the tools of this turn have answered."""
    calls: dict[str, Mapping[str, Any]] = {}
    for message in turn:
        for call in message.get("tool_calls") or ():
            calls[str(call.get("id"))] = call
    answers: list[str] = []
    asked = [m for m in turn if m.get("role") == "tool"]
    for message in asked:
        call = calls.get(str(message.get("tool_call_id")), {})
        function = call.get("function") or {}
        answers += _tool_answer(
            str(function.get("name") or message.get("name") or ""),
            _object(function.get("arguments")),
            _text(message.get("content")),
            asks=str(call.get("id", "")).startswith(ASK_PREFIX),
            alone=len(asked) == 1,
        )
    return Plan(text="\n\n".join(answers))


def _tool_answer(
    name: str, arguments: Mapping[str, Any], content: str, *, asks: bool, alone: bool
) -> list[str]:
    result = _object(content)
    if name == "clarify":
        given = result.get("responses")
        given = [_object(one) for one in given] if isinstance(given, list) else [result]
        answers = [one.get("user_response", one.get("error", content)) for one in given]
        said = ["no answer" if answer is None else str(answer) for answer in answers]
        return [f"clarify: {', '.join(said)}"]
    if name == PAIR_TOOL:
        pairs = result.get("results")
        if isinstance(pairs, list):
            return [
                f"approval: {choice_of(_object(p))} ({_object(p).get('command')})" for p in pairs
            ]
        return [f"approval: {choice_of(result)}"]
    if asks:
        suffix = "" if alone else f" ({arguments.get('command')})"
        return [f"approval: {choice_of(result)}{suffix}"]
    output = result.get("output") or result.get("error") or content
    return [f"{name}: {str(output).strip()}"]


def choice_of(result: Mapping[str, Any]) -> str:
    """What the user chose for a terminal command, read from the tool's result.

    The demo's plugin writes the exact choice into the result; without it Hermes' own wording
    tells approved from denied, but not for how long.
    """
    if isinstance(choice := result.get("choice"), str):
        return choice
    error = str(result.get("error") or "")
    if "timed out without user response" in error:
        return "timeout"
    if "denied by user" in error:
        return "deny"
    if result.get("status") in ("blocked", "approval_required") or error.startswith("BLOCKED"):
        return "blocked"
    return "once" if result.get("approval") else "not asked"


def _title(messages: Sequence[Message]) -> str | None:
    """A title, if the request asks for one: Hermes names sessions with a call of its own."""
    system = " ".join(_text(m.get("content")) for m in messages if m.get("role") == "system")
    whole = system or _text(messages[0].get("content"))
    if "title" not in whole.lower() or len(whole) > 4000:
        return None
    said = re.sub(r"\s+", " ", _text(messages[-1].get("content"))).strip()
    said = re.sub(r"^(?:user|human)\W+", "", said, flags=re.IGNORECASE)
    return f"Talk: {said[:40].strip()}" if said else "Talk"


def _since_user(messages: Sequence[Message]) -> Sequence[Message]:
    """The newest user message and what followed it."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            return messages[index:]
    return messages[-1:]


def _newest(asked: str) -> str:
    """What the user said last: Hermes' notes and turns that failed before are left out.

    Hermes puts a failed turn's text in front of the next one, and notes of its own in square
    brackets before or after the user's words.
    """
    paragraphs = _SYSTEM_NOTE.sub("", asked).strip().split("\n\n")
    while len(paragraphs) > 1 and (
        paragraphs[0].strip() in ("fail", "fail model")
        or (paragraphs[0].startswith("[") and paragraphs[0].rstrip().endswith("]"))
    ):
        paragraphs.pop(0)
    return "\n\n".join(paragraphs).strip()


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, Mapping))
        return "\n".join(str(p.get("text", "")) for p in parts if p.get("type") == "text")
    return ""


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}
