"""The terminal client's living screen: what is finished scrolls up, what moves stays below.

prompt_toolkit holds the lower part (drafts, the card, transfers, the state, the input line) and
redraws it; rich prints above it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable

from prompt_toolkit.application import Application
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    ConditionalContainer,
    Dimension,
    Float,
    FloatContainer,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AppendAutoSuggestion, BeforeInput
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.console import Console
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from .chat import Chat, View, card_text, shown

__all__ = ["LiveScreen"]

STYLE = Style.from_dict(
    {
        "draft": "",
        "card": "ansiyellow",
        "card.current": "ansiyellow bold",
        "bar": "ansicyan",
        "state": "ansibrightblack",
        "busy": "ansigreen",
        "prompt": "ansicyan bold",
    }
)
FACES = {"thinking": "thinking …", "speaking": "answering …", "idle": ""}
BAR_WIDTH = 24


class _Paths(Completer):
    """Completes the path behind `/file` and `/voice`."""

    def __init__(self) -> None:
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        command, space, path = document.text_before_cursor.partition(" ")
        if command in ("/file", "/voice") and space:
            yield from self._paths.get_completions(Document(path, len(path)), complete_event)


class LiveScreen:
    """The screen of one chat; `run` it until the person leaves."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._view = View()
        self._chat: Chat | None = None
        self._console: Console | None = None
        self._buffer = Buffer(
            completer=_Paths(),
            complete_while_typing=True,
            history=InMemoryHistory(),
            auto_suggest=AutoSuggestFromHistory(),
            multiline=False,
            accept_handler=self._accept,
        )
        self.app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=self._keys(),
            style=STYLE,
            erase_when_done=True,
            refresh_interval=None,
        )

    def attach(self, chat: Chat) -> None:
        """Take the user's lines to this conversation."""
        self._chat = chat
        self._view = chat.view

    async def run(self) -> int:
        """Show and listen until `/quit` or Ctrl-D; the exit status."""
        with patch_stdout(raw=True):
            self._console = Console(
                file=sys.stdout, force_terminal=True, highlight=False, soft_wrap=False
            )
            self.say("note", f"{self._address} – /? for help, Ctrl-D to leave")
            await self.app.run_async()
        return 0

    # The screen of a chat

    def say(self, who: str, text: str) -> None:
        """Print above what moves."""
        console = self._console
        if console is None:
            return
        console.width = shutil.get_terminal_size().columns
        if who == "you":
            console.print(Text("› ", style="bold cyan") + Text(shown(text)))
        elif who == "agent":
            # A line of the agent's is a line here: Markdown alone would join them.
            console.print(
                Padding(Markdown(text.replace("\n", "  \n"), hyperlinks=False), (0, 0, 1, 0))
            )
        elif who == "card":
            pass  # an open card is drawn below; its outcome is a note
        elif who == "error":
            console.print(Text(f"✗ {text}", style="red"))
        elif who == "file":
            console.print(Text(f"⇵ {text}", style="magenta"))
        else:
            console.print(Text(text, style="bright_black"))

    def changed(self, view: View) -> None:
        """Draw what moves again, at the next chance."""
        self.app.invalidate()

    # What moves

    def _layout(self) -> Layout:
        moving = ConditionalContainer(
            Window(FormattedTextControl(self._moving), wrap_lines=True, dont_extend_height=True),
            Condition(lambda: bool(self._moving())),
        )
        state = Window(FormattedTextControl(self._state), height=1, dont_extend_height=True)
        line = Window(
            BufferControl(
                self._buffer,
                input_processors=[BeforeInput(self._prompt), AppendAutoSuggestion()],
            ),
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1),
        )
        menu = Float(CompletionsMenu(max_height=8), xcursor=True, ycursor=True)
        return Layout(FloatContainer(HSplit([moving, state, line]), [menu]), focused_element=line)

    def _moving(self) -> StyleAndTextTuples:
        pieces: StyleAndTextTuples = []
        room = max(3, shutil.get_terminal_size().lines - 12)
        for draft in self._view.drafts.values():
            tail = _last_lines(shown(draft), room, shutil.get_terminal_size().columns)
            pieces.append(("class:draft", f"{tail}▍\n"))
        for card in self._view.cards.values():
            if card is self._view.card:
                pieces.append(("class:card.current", f"{card_text(card)}\n"))
            else:
                title = card.command or card.text
                pieces.append(("class:card", f"waiting (Tab): {shown(title)[:60]}\n"))
        for transfer in self._view.transfers.values():
            pieces.append(("class:bar", _bar(transfer.name, transfer.done, transfer.total)))
        if pieces:  # the last line needs no line after it
            style, text, *_ = pieces.pop()
            pieces.append((style, text.removesuffix("\n")))
        return pieces

    def _state(self) -> StyleAndTextTuples:
        busy = FACES.get(self._view.activity, shown(self._view.activity))
        pieces: StyleAndTextTuples = [("class:state", f"── {self._view.connection} ")]
        if busy:
            pieces.append(("class:busy", f"{busy} "))
        return pieces

    def _prompt(self) -> StyleAndTextTuples:
        if self._view.typing_for is not None:
            return [("class:prompt", "your answer › ")]
        card = self._view.card
        if card is not None:
            return [("class:prompt", f"1–{len(card.options)} › ")]
        return [("class:prompt", "› ")]

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        chosen_by_key = Condition(
            lambda: (
                self._view.card is not None
                and self._view.typing_for is None
                and not self._buffer.text
            )
        )

        def choose(number: int) -> Callable[[KeyPressEvent], None]:
            def pressed(event: KeyPressEvent) -> None:
                if self._chat is not None and not self._chat.choose(number):
                    event.app.output.bell()

            return pressed

        for number in range(1, 10):
            keys.add(str(number), filter=chosen_by_key)(choose(number))

        @keys.add("tab", filter=chosen_by_key)
        def _next(event: KeyPressEvent) -> None:
            if self._chat is not None:
                self._chat.next_card()

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            self._buffer.validate_and_handle()

        @keys.add("c-c")
        def _clear(event: KeyPressEvent) -> None:
            # As in a shell, Ctrl-C takes the line back; on an empty one it leaves.
            if self._buffer.text:
                self._buffer.reset()
            else:
                event.app.exit()

        @keys.add("c-d", filter=Condition(lambda: not self._buffer.text))
        def _leave(event: KeyPressEvent) -> None:
            event.app.exit()

        return keys

    def _accept(self, buffer: Buffer) -> bool:
        if self._chat is not None and not self._chat.enter(buffer.text):
            self.app.exit()
        return False


def _last_lines(text: str, count: int, columns: int) -> str:
    """The end of a text that fits into so many lines of the terminal."""
    # A line is at least one row; half-width characters are assumed, the window cuts the rest.
    kept: list[str] = []
    rows = 0
    for line in reversed(text.split("\n")):
        rows += max(1, -(-len(line) // columns))
        if rows > count:
            if not kept:
                kept.append(line[-count * columns :])
            break
        kept.append(line)
    return "\n".join(reversed(kept))


def _bar(name: str, done: int, total: int) -> str:
    full = BAR_WIDTH * done // total if total else 0
    share = f"{100 * done // total:3d} %" if total else "  …"
    return f"{'█' * full}{'░' * (BAR_WIDTH - full)} {share} {name}\n"
