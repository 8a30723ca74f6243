"""The terminal client on a real door with the scripted agent, and its words for the screen."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from hermes_client import Device, HermesClient, Media, Option, Prompt, PromptDone, Replaced
from hermes_mobile.agents import ScriptedAgent
from hermes_mobile.chat import (
    Chat,
    PlainScreen,
    View,
    beside,
    card_text,
    path_and_words,
    shown,
    visible,
)
from hermes_mobile.chat_screen import LiveScreen, _last_lines
from hermes_mobile.server import Door
from hermes_mobile.settings import Settings

TOKEN = "a-token-for-these-tests"
Talk = Callable[..., Any]


@pytest.fixture
async def url() -> AsyncIterator[str]:
    agent = ScriptedAgent()
    door = Door(Settings.from_sources({"MOBILE_TOKEN": TOKEN, "MOBILE_PORT": "0"}), agent)
    agent.attach(door)
    await door.start()
    yield f"ws://127.0.0.1:{door.port}/ws"
    await agent.close()
    await door.stop()


def client_of(url: str, folder: Path) -> HermesClient:
    return HermesClient(url, token=TOKEN, device=Device("terminal"), downloads=folder / "in")


async def talk(url: str, folder: Path, *lines: str) -> tuple[int, list[str], list[str]]:
    """The status, the output lines and the error lines of a chat through pipes."""

    async def typed() -> AsyncIterator[str]:
        for line in lines:
            yield line

    out, errors = io.StringIO(), io.StringIO()
    async with asyncio.timeout(60), client_of(url, folder) as client:
        chat = Chat(client, PlainScreen(out, errors))
        status = await beside(chat, chat.talk(typed(), patience=60))
    return status, out.getvalue().splitlines(), errors.getvalue().splitlines()


async def test_each_line_is_answered_before_the_next_is_sent(url: str, tmp_path: Path) -> None:
    status, out, errors = await talk(url, tmp_path, "one", "", "stream 3 5", "three")
    assert out == ["agent: echo: one", "agent: word1 word2 word3", "agent: echo: three"]
    assert (status, errors) == (0, [])


async def test_cards_are_answered_by_number(url: str, tmp_path: Path) -> None:
    status, out, errors = await talk(url, tmp_path, "approve rm -rf x", "9", "4", "confirm", "1")
    assert "  $ rm -rf x" in out and "  4  Deny" in out
    assert [line for line in out if line.startswith(("agent", "note"))] == [
        "note: Deny: rm -rf x",
        "agent: approval: deny",
        "note: Confirm: Confirm?",
        "agent: confirm: once",
    ]
    assert errors == ["error: the card has no choice 9"]
    assert status == 0


async def test_two_cards_are_answered_one_after_the_other(url: str, tmp_path: Path) -> None:
    _, out, _ = await talk(url, tmp_path, "approve2 a | b", "1", "4")
    assert [line for line in out if line.startswith("agent")] == [
        "agent: approval: once (a)",
        "agent: approval: deny (b)",
    ]
    assert "note: the next card: b" in out


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["clarify Which?|red|blue", "2"], "blue"),
        (["clarify Which?|red|blue", "green"], "green"),
        (["clarify Which?|red|blue", "3", "1"], "1"),
        (["clarify Name?", "Ada"], "Ada"),
    ],
)
async def test_questions_are_answered_by_number_or_text(
    url: str, tmp_path: Path, lines: list[str], answer: str
) -> None:
    _, out, _ = await talk(url, tmp_path, *lines)
    assert out[-1] == f"agent: clarify: {answer}"


async def test_files_go_both_ways(url: str, tmp_path: Path) -> None:
    file = tmp_path / "my plan.txt"
    file.write_text("plan")
    status, out, errors = await talk(
        url, tmp_path, f'/file "{file}" look at this', f"/file {file}", "image"
    )
    saved = tmp_path / "in" / "image.png"
    assert "file: sent my plan.txt" in out
    assert any(line.startswith("agent: received document: my plan.txt, text/plain") for line in out)
    assert "text: look at this" in out
    assert out[-1] == f"file: image, {saved.stat().st_size:,} bytes: {saved}"
    assert (status, errors) == (0, [])


async def test_a_voice_recording_is_sent_with_its_words(url: str, tmp_path: Path) -> None:
    from hermes_mobile.agents import sample

    (tmp_path / "v.wav").write_bytes(sample("voice").data)
    _, out, _ = await talk(url, tmp_path, f"/voice {tmp_path / 'v.wav'} what I said")
    assert out[-1] == "text: what I said"


async def test_what_cannot_be_sent_is_said_and_counts(url: str, tmp_path: Path) -> None:
    status, out, errors = await talk(
        url, tmp_path, "/file", f"/file {tmp_path}/none", "fail", "x" * 12_001, "fine"
    )
    assert [line.partition(":")[0] for line in errors] == ["error"] * 4
    assert "say which file" in errors[0]
    assert errors[1] == f"error: not sent: {tmp_path}/none: No such file or directory"
    assert "internal_error" in errors[2]
    assert "12001 characters" in errors[3]
    assert out == ["agent: echo: fine"]
    assert status == 1


async def test_commands_of_the_agent_are_sent_and_quit_leaves(url: str, tmp_path: Path) -> None:
    _, out, _ = await talk(url, tmp_path, "/new topic", "/?", "/quit", "never sent")
    assert out[0] == "agent: echo: /new topic"
    assert out[1].startswith("note: /file PATH")
    assert "never sent" not in "".join(out)


async def test_a_card_left_open_is_said(url: str, tmp_path: Path) -> None:
    status, out, _ = await talk(url, tmp_path, "confirm")
    assert out[-1] == "note: a card is still open"
    assert status == 0


async def test_an_impatient_pipe_gives_up(url: str, tmp_path: Path) -> None:
    errors = io.StringIO()

    async def typed() -> AsyncIterator[str]:
        yield "stream 1000 100"

    async with asyncio.timeout(60), client_of(url, tmp_path) as client:
        chat = Chat(client, PlainScreen(io.StringIO(), errors))
        assert await beside(chat, chat.talk(typed(), patience=0.2)) == 1
    assert "no end of the agent's turn within 0.2 s" in errors.getvalue()


async def test_a_chat_that_is_replaced_ends_with_the_reason(url: str, tmp_path: Path) -> None:
    async def nothing() -> AsyncIterator[str]:
        await asyncio.Event().wait()
        yield ""

    async with asyncio.timeout(60), client_of(url, tmp_path) as client:
        chat = Chat(client, PlainScreen(io.StringIO(), io.StringIO()))
        first = asyncio.create_task(beside(chat, chat.talk(nothing(), patience=1)))
        async with client_of(url, tmp_path):
            with pytest.raises(Replaced):
                await first


# The words of the screen


def test_text_of_others_cannot_steer_the_terminal() -> None:
    assert shown("a\x1b[2Jb\x07\r\x9bc\u202ed\n\te") == "a[2Jbcd\n\te"
    assert shown("👩‍💻 naïve") == "👩‍💻 naïve"


def test_a_command_shows_what_the_eye_cannot_see() -> None:
    assert visible("ls\x1b[1A\u202e\u200b x\ny") == "ls\\x1b[1A\\u202e\\u200b x\ny"


def test_a_card_shows_its_exact_command_and_numbers() -> None:
    card = Prompt(
        "p", "exec_approval", "Run?", (Option("once", "Yes"), Option("deny", "No\x1b[2J")),
        "ls\u202e", "lists", "s", 300,
    )  # fmt: skip
    assert card_text(card) == "Run?\n  $ ls\\u202e\n  lists\n  1  Yes\n  2  No[2J"


@pytest.mark.parametrize(
    ("rest", "path", "words"),
    [
        ("a.txt", "a.txt", ""),
        ("a.txt  see this ", "a.txt", "see this"),
        ('"a b.txt" see this', "a b.txt", "see this"),
        ("'a b.txt'", "a b.txt", ""),
        ("~/a.txt", os.path.expanduser("~/a.txt"), ""),
    ],
)
def test_a_path_and_the_words_behind_it(rest: str, path: str, words: str) -> None:
    assert path_and_words(rest) == (Path(path), words)


def test_an_existing_path_with_spaces_needs_no_quotes(tmp_path: Path) -> None:
    file = tmp_path / "a b.txt"
    file.touch()
    assert path_and_words(str(file)) == (file, "")


def test_the_end_of_a_long_draft_fits_the_screen() -> None:
    text = "\n".join(str(n) for n in range(100))
    assert _last_lines(text, 3, 80) == "97\n98\n99"
    assert _last_lines("x" * 1000, 3, 80) == "x" * 240
    assert _last_lines("short", 3, 80) == "short"


# The living screen


class Terminal:
    """A terminal for one chat: keys in, what was ever drawn out."""

    def __init__(self, keys: Any, drawn: io.StringIO, screen: LiveScreen, view: View) -> None:
        self._keys = keys
        self._drawn = drawn
        self.screen = screen
        self.view = view

    def press(self, keys: str) -> None:
        self._keys.send_text(keys)

    async def until(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not wanted():
                await asyncio.sleep(0.01)

    async def sees(self, text: str) -> None:
        await self.until(lambda: text in self._drawn.getvalue())


@pytest.fixture
async def terminal(url: str, tmp_path: Path) -> AsyncIterator[Terminal]:
    drawn = io.StringIO()
    output = Vt100_Output(drawn, lambda: Size(rows=40, columns=100), term="xterm")
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        async with client_of(url, tmp_path) as client:
            screen = LiveScreen(url)
            chat = Chat(client, screen)
            screen.attach(chat)
            running = asyncio.create_task(beside(chat, screen.run()))
            terminal = Terminal(keys, drawn, screen, chat.view)
            await terminal.until(lambda: screen.app.is_running)
            yield terminal
            if screen.app.is_running:
                screen.app.exit()
            assert await asyncio.wait_for(running, 60) == 0


async def test_a_typed_line_is_answered_on_the_screen(terminal: Terminal) -> None:
    await terminal.sees("connected as mobile:terminal")
    terminal.press("hello\r")
    await terminal.sees("echo: hello")


async def test_a_stream_is_drawn_while_it_grows(terminal: Terminal) -> None:
    terminal.press("stream 40 20\r")
    await terminal.until(lambda: len(terminal.view.drafts) == 1)
    await terminal.sees("word3")
    assert terminal.view.drafts, "drawn before it is finished"
    await terminal.until(lambda: not terminal.view.drafts)
    await terminal.sees("word40")


async def test_cards_are_answered_by_one_key(terminal: Terminal) -> None:
    terminal.press("approve2 first | second\r")
    await terminal.until(lambda: len(terminal.view.cards) == 2)
    await terminal.sees("waiting (Tab): second")
    terminal.press("\t4")
    await terminal.sees("approval: deny (second)")
    terminal.press("1")
    await terminal.sees("approval: once (first)")
    assert not terminal.view.cards


async def test_digits_are_digits_once_a_line_is_begun(terminal: Terminal) -> None:
    terminal.press("clarify Year?|now\r")
    await terminal.until(lambda: terminal.view.card is not None)
    terminal.press("in 1999\r")
    await terminal.sees("clarify: in 1999")


async def test_other_asks_for_the_answer(terminal: Terminal) -> None:
    terminal.press("clarify Year?|now\r")
    await terminal.until(lambda: terminal.view.card is not None)
    terminal.press("2")
    await terminal.sees("your answer")
    terminal.press("1999\r")
    await terminal.sees("clarify: 1999")


async def test_a_file_shows_its_progress(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(os.urandom(8 * 1024 * 1024))
    terminal.press(f"/file {tmp_path}/big.bin\r")
    await terminal.until(lambda: bool(terminal.view.transfers))
    await terminal.sees("big.bin")
    await terminal.sees("sent big.bin")
    await terminal.sees("8388608 bytes")


async def test_ctrl_c_takes_the_line_back_and_ctrl_d_leaves(terminal: Terminal) -> None:
    terminal.press("half a line")
    await terminal.until(lambda: terminal.screen._buffer.text == "half a line")
    terminal.press("\x03")
    await terminal.until(lambda: terminal.screen._buffer.text == "")
    assert terminal.screen.app.is_running
    terminal.press("\x04")
    await terminal.until(lambda: not terminal.screen.app.is_running)


async def test_hostile_text_is_drawn_harmless(tmp_path: Path) -> None:
    drawn = io.StringIO()
    screen = LiveScreen("ws://h/ws")
    client = HermesClient("ws://h/ws", token=TOKEN, downloads=tmp_path)
    chat = Chat(client, screen)
    screen.attach(chat)
    from rich.console import Console

    screen._console = Console(file=drawn, force_terminal=False, width=80)
    media = Media(
        "f", "image", "image/png", "a.png", None, "https://x/\x1b[2J", 5, "cap\x1b]0;t\x07", None
    )
    chat._take(media)
    card = Prompt("p", "clarify", "Q\x1b[2J", (), None, None, "s", 9)
    chat._take(card)
    chat._take(PromptDone("p", "x\x1b[2J", False))
    assert "\x1b" not in drawn.getvalue() and "\x07" not in drawn.getvalue()
