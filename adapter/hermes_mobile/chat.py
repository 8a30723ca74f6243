"""The terminal client: an application on the Python SDK (`hermes-mobile chat`).

The only module of this distribution that imports the SDK, and only when a chat is started: the door
itself never needs it. What is said and what is open lives here; how it looks is the screen's:
`PlainScreen` for pipes, `chat_screen.LiveScreen` for a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
import threading
import unicodedata
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from hermes_client import (
    Avatar,
    Disconnected,
    Event,
    HermesClient,
    HermesError,
    Media,
    MediaFailed,
    MediaProgress,
    Message,
    Prompt,
    PromptDone,
    Ready,
    Replaced,
    ServerError,
    StoppedError,
    Typing,
)

__all__ = ["Chat", "PlainScreen", "Screen", "View", "beside", "shown", "visible"]

HELP = """\
/file PATH [CAPTION]   send a file (quote a path with spaces)
/voice PATH [WORDS]    send a voice recording, WAV or OGG
/?                     this help
/quit or Ctrl-D        leave
1 2 3 …                answer the card on the screen; Tab goes to the next card
Everything else goes to the agent, its own /commands too."""

# Without a sign of the turn's end, a pipe goes on this long after the last word, in seconds.
QUIET = 5.0


@dataclass(slots=True)
class Transfer:
    """A file on its way; `done` of `total` bytes."""

    name: str
    outgoing: bool
    done: int
    total: int


@dataclass(slots=True)
class View:
    """What is going on right now, for a screen to draw."""

    connection: str = "connecting"
    activity: str = "idle"
    drafts: dict[str, str] = field(default_factory=dict)
    cards: dict[str, Prompt] = field(default_factory=dict)
    current: str | None = None
    # The card whose answer the person is typing after choosing "other".
    typing_for: str | None = None
    transfers: dict[str, Transfer] = field(default_factory=dict)

    @property
    def card(self) -> Prompt | None:
        """The card that keys answer."""
        return self.cards.get(self.current) if self.current is not None else None


class Screen(Protocol):
    """Where a conversation is shown. `who` is ``you``, ``agent``, ``card``, ``file``, ``note`` or
    ``error``."""

    def say(self, who: str, text: str) -> None:
        """Show something that stays."""

    def changed(self, view: View) -> None:
        """Something in the view is different."""


class Chat:
    """One conversation: the user's lines in, what happens out to the screen."""

    def __init__(self, client: HermesClient, screen: Screen) -> None:
        self.view = View()
        self._client = client
        self._screen = screen
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn_ends = 0
        self._failures = 0
        self._heard_at = 0.0
        self._news = asyncio.Event()

    # The user's side

    def enter(self, line: str) -> bool:
        """Take one line of the user; False when it asks to leave."""
        words = line.strip()
        command, _, rest = words.partition(" ")
        if command == "/quit":
            return False
        if not words:
            return True
        card = self.view.card
        if command == "/?":
            self._screen.say("note", HELP)
        elif command == "/file":
            self._start(self._send_file(rest))
        elif command == "/voice":
            self._start(self._send_voice(rest))
        elif self.view.typing_for is not None:
            self._answer(self.view.typing_for, None, words)
        elif card is not None and words.isascii() and words.isdecimal():
            if not self.choose(int(words)):
                self._screen.say("error", f"the card has no choice {words}")
        elif card is not None and card.kind == "clarify" and not words.startswith("/"):
            self._answer(card.id, None, words)
        else:
            self._screen.say("you", line)
            self._start(self._send_text(line))
        return True

    def choose(self, number: int) -> bool:
        """Answer the current card with its n-th option, counted from 1."""
        card = self.view.card
        if card is None or not 1 <= number <= len(card.options):
            return False
        option = card.options[number - 1]
        if card.kind == "clarify" and option.id == "other":
            self.view.typing_for = card.id
            self._screen.changed(self.view)
        else:
            self._answer(card.id, option.id, None)
        return True

    def next_card(self) -> None:
        """Let the keys answer the next open card."""
        ids = list(self.view.cards)
        if ids:
            place = ids.index(self.view.current) + 1 if self.view.current in ids else 0
            self.view.current = ids[place % len(ids)]
            self.view.typing_for = None
            self._screen.changed(self.view)

    def _answer(self, card_id: str, option_id: str | None, text: str | None) -> None:
        self.view.typing_for = None
        if text is not None:
            self._screen.say("you", text)
        self._start(self._send_answer(card_id, option_id, text))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except StoppedError:
            pass  # told once, where the events are read
        except (HermesError, ValueError, OSError) as problem:
            self._failures += 1
            reason = str(problem)
            if isinstance(problem, OSError) and problem.strerror:
                reason = f"{problem.filename}: {problem.strerror}"
            self._screen.say("error", f"not sent: {reason}")
        finally:
            self._news.set()

    async def _send_text(self, text: str) -> None:
        await self._client.send_text(text)

    async def _send_answer(self, card_id: str, option_id: str | None, text: str | None) -> None:
        self._card_done(await self._client.answer(card_id, option_id, text=text))

    async def _send_file(self, rest: str) -> None:
        path, caption = path_and_words(rest)
        with self._transfer(path) as progress:
            await self._client.send_file(path, caption=caption or None, progress=progress)
        self._screen.say("file", f"sent {path.name}")

    async def _send_voice(self, rest: str) -> None:
        path, words = path_and_words(rest)
        with self._transfer(path) as progress:
            await self._client.send_voice(path, text=words or None, progress=progress)
        self._screen.say("file", f"sent {path.name}")

    @contextlib.contextmanager
    def _transfer(self, path: Path) -> Iterator[Callable[[int, int], None]]:
        key = f"out {id(path)}"
        transfer = self.view.transfers[key] = Transfer(path.name, True, 0, 0)

        def progress(sent: int, total: int) -> None:
            transfer.done, transfer.total = sent, total
            self._screen.changed(self.view)

        try:
            yield progress
        finally:
            del self.view.transfers[key]
            self._screen.changed(self.view)

    # The agent's side

    async def follow(self) -> None:
        """Show what happens until the client is closed. Raises `StoppedError` as it does."""
        async for event in self._client:
            self._take(event)
            self._heard_at = asyncio.get_running_loop().time()
            self._news.set()

    def _take(self, event: Event) -> None:
        view, say = self.view, self._screen.say
        match event:
            case Ready(session=session):
                view.connection = f"connected as {shown(session)}"
            case Disconnected(reason=reason):
                view.connection = f"{shown(reason)}; trying again"
                view.activity = "idle"
            case Message(id=id, text=text, final=False):
                view.drafts[id] = text
            case Message(id=id, text=text):
                view.drafts.pop(id, None)
                say("agent", shown(text))
            case MediaProgress(id=id, filename=name, received=received, size=size):
                view.transfers[id] = Transfer(name, False, received, size)
            case Media(id=id):
                view.transfers.pop(id, None)
                say("file", _arrived(event))
            case MediaFailed(id=id, filename=name, reason=reason):
                view.transfers.pop(id, None)
                say("error", f"{name} was not received: {shown(reason)}")
            case Prompt(id=id):
                self._card_came(event)
            case PromptDone(id=id):
                self._card_done(event)
            case Avatar(state=state):
                self._turn_ends += state == "idle"
                view.activity = state
            case Typing(active=active):
                view.activity = "thinking" if active and view.activity == "idle" else view.activity
                if not active:
                    view.activity = "idle"
            case ServerError(id=None, code=code, message=message, fatal=False):
                say("error", f"the server says {shown(code)}: {shown(message)}")
            case _:
                pass
        self._screen.changed(view)

    def _card_came(self, card: Prompt) -> None:
        view = self.view
        again = card.id in view.cards
        view.cards[card.id] = card
        if view.card is None:
            view.current = card.id
        if not again:
            self._screen.say("card", card_text(card))

    def _card_done(self, done: PromptDone) -> None:
        view = self.view
        if done.option_id == "other" and not done.expired and view.typing_for == done.id:
            return
        card = view.cards.pop(done.id, None)
        if view.typing_for == done.id:
            view.typing_for = None
        if view.current == done.id:
            view.current = next(iter(view.cards), None)
        if card is not None:
            self._screen.say("note", f"{_outcome(card, done)}: {_subject(card)}")
            if (following := view.card) is not None:
                self._screen.say("note", f"the next card: {_subject(following)}")

    # For pipes

    async def talk(self, lines: AsyncIterator[str], patience: float) -> int:
        """Send line by line, each after the agent is through with the one before; the status."""
        async for line in lines:
            if not self.enter(line):
                break
            if not line.strip() or line.strip() == "/?":
                continue
            try:
                await self.settled(patience)
            except TimeoutError:
                self._screen.say("error", f"no end of the agent's turn within {patience:g} s")
                return 1
        if self.view.cards:
            self._screen.say("note", "a card is still open")
        return 1 if self._failures else 0

    async def settled(self, patience: float) -> None:
        """Wait until what was sent is through and the agent waits for the user again: its turn
        is over, or a card is open."""
        loop = asyncio.get_running_loop()
        started, ends, failures = loop.time(), self._turn_ends, self._failures
        async with asyncio.timeout(patience):
            while True:
                if not self._tasks and (
                    self.view.cards
                    or self._turn_ends > ends
                    or self._failures > failures
                    or loop.time() - max(started, self._heard_at) > QUIET
                ):
                    return
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.25):
                        await self._news.wait()


class PlainScreen:
    """Lines for pipes and logs: what is finished, as plain text, nothing that moves."""

    def __init__(self, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors

    def say(self, who: str, text: str) -> None:
        """Print it with who said it; what the user typed is known to the user."""
        if who == "you":
            return
        stream = self._errors if who == "error" else self._out
        print(f"{who}: {text}", file=stream, flush=True)

    def changed(self, view: View) -> None:
        """Nothing moves here."""


async def beside(chat: Chat, acting: Coroutine[Any, Any, int]) -> int:
    """Show what happens while the user acts, until one of both ends; the exit status.

    Raises `StoppedError` when the server ended it for good.
    """
    following = asyncio.create_task(chat.follow())
    user = asyncio.create_task(acting)
    try:
        await asyncio.wait([following, user], return_when=asyncio.FIRST_COMPLETED)
        return user.result() if user.done() else 1
    finally:
        for task in (following, user):
            if not task.done():
                task.cancel()
        ends = await asyncio.gather(following, user, return_exceptions=True)
        if isinstance(ends[0], StoppedError):
            raise ends[0]


async def lines_of(stream: TextIO) -> AsyncIterator[str]:
    """The lines of a pipe. The thread that reads them holds up neither the connection nor leaving:
    a line that nobody waits for any more may stay unread."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, nobody waits
            while line := stream.readline():
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while line := await lines.get():
        yield line.rstrip("\r\n")


def why_stopped(stop: StoppedError) -> str:
    """A sentence for the person at the terminal."""
    if isinstance(stop, Replaced):
        return f"{stop}; choose another name with --device to use both"
    return str(stop)


# Words for the screen


def shown(text: str) -> str:
    """Text of others without what could steer a terminal: control characters and text direction."""
    return "".join(c for c in text if c in "\n\t" or not _steers(c))


def visible(text: str) -> str:
    """A command exactly as it is, with what the eye cannot see written out."""
    return "".join(
        _escaped(c) if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs"} else c
        for c in text
    )


_DIRECTION = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _steers(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs"} or character in _DIRECTION


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def card_text(card: Prompt) -> str:
    """The card with its numbered choices."""
    lines = [shown(card.text)]
    if card.command:
        lines.append(f"  $ {visible(card.command)}")
    if card.description:
        lines.append(f"  {shown(card.description)}")
    for number, option in enumerate(card.options, 1):
        lines.append(f"  {number}  {shown(option.label)}")
    return "\n".join(lines)


def _outcome(card: Prompt, done: PromptDone) -> str:
    if done.expired:
        return "out of time"
    if card.kind == "clarify" and done.option_id == "other":
        return "answered"
    label = next((o.label for o in card.options if o.id == done.option_id), done.option_id)
    return shown(label or "closed")


def _subject(card: Prompt) -> str:
    return visible(card.command) if card.command else shown(card.text).partition("\n")[0]


def _arrived(media: Media) -> str:
    place = str(media.path) if media.path is not None else f"link {shown(media.url or '')}"
    words = f"{media.kind}, {media.size:,} bytes: {place}"
    return f"{words}\n{shown(media.caption)}" if media.caption else words


def path_and_words(rest: str) -> tuple[Path, str]:
    """Split `PATH [WORDS]`; a path with spaces stands in quotes, or alone.

    Raises ValueError without a path.
    """
    whole = rest.strip()
    if not whole:
        raise ValueError("say which file: /file PATH [CAPTION]")
    if (alone := Path(whole).expanduser()).is_file():
        return alone, ""
    if whole[0] in "\"'":
        first, *words = shlex.split(whole)
        return Path(first).expanduser(), " ".join(words)
    first, _, caption = whole.partition(" ")
    return Path(first).expanduser(), caption.strip()


async def run(client: HermesClient, address: str, *, patience: float) -> int:
    """Chat on this terminal, or line by line where one side is a pipe; the exit status.

    `patience`: the seconds a pipe waits for the end of one turn.
    """
    live_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if live_terminal:  # a wrong address is tried for a while: not in silence
        print(f"Connecting to {address} … (Ctrl-C to give up)", file=sys.stderr)
    try:
        async with client:
            if live_terminal:
                from .chat_screen import LiveScreen

                live = LiveScreen(address)
                chat = Chat(client, live)
                live.attach(chat)
                return await beside(chat, live.run())
            chat = Chat(client, PlainScreen(sys.stdout, sys.stderr))
            return await beside(chat, chat.talk(lines_of(sys.stdin), patience))
    except StoppedError as stop:
        print(f"hermes-mobile: {why_stopped(stop)}", file=sys.stderr)
        return 1
    except HermesError as problem:
        print(f"hermes-mobile: {problem}", file=sys.stderr)
        return 1
