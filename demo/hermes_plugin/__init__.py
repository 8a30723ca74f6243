"""A Hermes plugin for the demo home: what the offline model's words cannot reach by themselves.

- `approve CMD` asks for every command, also for one that Hermes finds harmless or that was allowed
  for good before, and the tool's result says which choice the user made (Hermes tells a model only
  that it was approved).
- `approve2 CMD | CMD` has both requests open at once (Hermes starts the terminal calls of one
  answer one after the other).
- `confirm` opens a slash confirmation, which no tool of a model can.
- `fail` from a device makes the hand-over to Hermes fail, before a model could see it.

It uses Hermes' own approval queue and confirmation, so what the device door sees is the real
thing. It is installed in the demo's home and nowhere else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.platforms.base import BasePlatformAdapter
from tools import approval
from tools.terminal_tool import terminal_tool
from tools.thread_context import propagate_context_to_thread

try:  # the newer Hermes keeps its patterns in a file of their own
    from tools.approval_detection import DANGEROUS_PATTERNS_COMPILED
except ImportError:
    from tools.approval import DANGEROUS_PATTERNS_COMPILED

logger = logging.getLogger(__name__)

ASK_PREFIX = "ask_"
PAIR_TOOL = "terminal_pair"
SHOWN_COMMAND = 60
KEPT_CHOICES = 256
KEPT_PATTERNS = 64
PAIR_SCHEMA = {
    "name": PAIR_TOOL,
    "description": "Run two shell commands at the same time and return both results.",
    "parameters": {
        "type": "object",
        "properties": {
            "commands": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 2,
                "maxItems": 2,
            }
        },
        "required": ["commands"],
    },
}


class Choices:
    """What users chose, by session and command, until the tool's result takes it along."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: deque[tuple[str, str, str]] = deque(maxlen=KEPT_CHOICES)

    def note(self, session: str, command: str, choice: str) -> None:
        with self._lock:
            self._seen.append((session, command, choice))

    def take(self, session: str, command: str) -> str | None:
        with self._lock:
            for entry in self._seen:
                if entry[:2] == (session, command):
                    self._seen.remove(entry)
                    return entry[2]
        return None


choices = Choices()


class Asked:
    """A pattern of Hermes' list that finds one command of one session dangerous."""

    def __init__(self, session: str, command: str) -> None:
        self.session = session
        self.command = command
        self._pattern = re.compile(rf"\s*{re.escape(command.strip())}\s*\Z", re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """As a compiled pattern's; another session's same command is nothing to it."""
        if approval.get_current_session_key() != self.session:
            return None
        return self._pattern.search(text)


_calls = itertools.count(1)


def ask_about(command: str) -> None:
    """Make Hermes ask about this very command, unless it would anyway."""
    session = approval.get_current_session_key()
    dangerous, known_by, _ = approval.detect_dangerous_command(command)
    if dangerous and not approval.is_approved(session, known_by):
        return
    # Hermes remembers "for this session" and "always" by the reason: one that it has not heard.
    reason = f"you asked to be asked about: {command[:SHOWN_COMMAND]} (call {next(_calls)})"
    # The first one that fits counts.
    DANGEROUS_PATTERNS_COMPILED.insert(0, (Asked(session, command), reason))
    own = [entry for entry in DANGEROUS_PATTERNS_COMPILED if isinstance(entry[0], Asked)]
    if len(own) > KEPT_PATTERNS:
        DANGEROUS_PATTERNS_COMPILED.remove(own[-1])


def forget(command: str) -> None:
    """The call is over: the same command without the word is not asked about."""
    session = approval.get_current_session_key()
    for entry in list(DANGEROUS_PATTERNS_COMPILED):
        asked = entry[0]
        if isinstance(asked, Asked) and (asked.session, asked.command) == (session, command):
            DANGEROUS_PATTERNS_COMPILED.remove(entry)


def before_tool(*, tool_name: str, args: Any, tool_call_id: str = "", **_: Any) -> None:
    if not tool_call_id.startswith(ASK_PREFIX) or not isinstance(args, dict):
        return
    if tool_name == "terminal":
        ask_about(str(args.get("command", "")))
    elif tool_name == PAIR_TOOL:
        for command in args.get("commands", ()):
            ask_about(str(command))


def after_choice(*, session_key: str = "", command: str = "", choice: str = "", **_: Any) -> None:
    choices.note(session_key, command, choice)


def tool_result(*, tool_name: str, args: Any, result: Any, **_: Any) -> str | None:
    """Write the choice into a terminal result that was asked about."""
    if tool_name != "terminal" or not isinstance(args, dict):
        return None
    command = str(args.get("command", ""))
    forget(command)
    return with_choice(command, result)


def with_choice(command: str, result: Any) -> str | None:
    choice = choices.take(approval.get_current_session_key(), command)
    if choice is None:
        return None
    try:
        value = json.loads(result)
    except (TypeError, ValueError):
        return None
    if not isinstance(value, dict):
        return None
    return json.dumps({**value, "choice": choice}, ensure_ascii=False)


def run_pair(args: dict[str, Any], **_: Any) -> str:
    """Both commands in threads of their own, each asked about by Hermes."""
    commands = [str(command) for command in args.get("commands", ())][:2]
    results: list[dict[str, Any]] = [{} for _ in commands]

    def one(index: int, command: str) -> None:
        raw = terminal_tool(command=command)
        text = with_choice(command, raw) or raw
        try:
            results[index] = {**json.loads(text), "command": command}
        except ValueError:
            results[index] = {"output": text, "command": command}

    threads = [
        threading.Thread(target=propagate_context_to_thread(one), args=(index, command))
        for index, command in enumerate(commands)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for command in commands:
        forget(command)
    return json.dumps({"results": results}, ensure_ascii=False)


def before_dispatch(*, event: Any, gateway: Any, **_: Any) -> dict[str, str] | None:
    """The message `confirm` opens a slash confirmation instead of asking the model."""
    if str(getattr(event, "text", "")).strip() != "confirm":
        return None

    async def answered(choice: str) -> str:
        return f"confirm: {choice}"

    async def ask() -> None:
        shown: str | None = await gateway._request_slash_confirm(
            event=event,
            command="confirm",
            title="Confirm",
            message="The word confirm asks whether to go on. Nothing will happen either way.",
            handler=answered,
        )
        if shown:  # no card could be shown: Hermes' text is the question
            adapter = gateway.adapters.get(event.source.platform)
            if adapter is not None:
                await adapter.send(event.source.chat_id, shown)

    _keep(asyncio.get_running_loop().create_task(ask()))
    return {"action": "skip", "reason": "the demo's word confirm"}


_tasks: set[asyncio.Task[None]] = set()


def _keep(task: asyncio.Task[None]) -> None:
    """The loop holds tasks weakly only."""
    _tasks.add(task)
    task.add_done_callback(_finished)


def _finished(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled() and (problem := task.exception()) is not None:
        logger.error("the word confirm failed", exc_info=problem)


class WordFail(RuntimeError):
    """The word `fail` was said."""


def refuse_the_word_fail() -> None:
    """Make the hand-over of the message `fail` fail on every platform."""
    take = BasePlatformAdapter.handle_message

    async def handle_message(self: Any, event: Any) -> None:
        if str(getattr(event, "text", "")).strip() == "fail":
            raise WordFail("the word `fail` makes the hand-over fail")
        await take(self, event)

    BasePlatformAdapter.handle_message = handle_message


def register(ctx: Any) -> None:
    """Called by Hermes once at start."""
    refuse_the_word_fail()
    hooks: dict[str, Callable[..., Any]] = {
        "pre_tool_call": before_tool,
        "post_approval_response": after_choice,
        "transform_tool_result": tool_result,
        "pre_gateway_dispatch": before_dispatch,
    }
    for name, hook in hooks.items():
        ctx.register_hook(name, hook)
    ctx.register_tool(
        name=PAIR_TOOL,
        toolset="terminal",
        schema=PAIR_SCHEMA,
        handler=run_pair,
        description=str(PAIR_SCHEMA["description"]),
    )
