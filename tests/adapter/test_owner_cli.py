"""`hermes mobile code`: what an app scans or pastes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from hermes_mobile import door_files, owner_cli
from hermes_mobile.connection_code import NoCode, connection_code, public_address
from hermes_mobile.settings import Settings

MAIN = "main-token-0123456789"
BOUND = "bound-token-0123456789"


def settings(**environ: str) -> Settings:
    return Settings.from_sources({"MOBILE_TOKEN": MAIN} | environ)


@pytest.mark.parametrize(
    ("public", "url"),
    [
        ("", ""),
        ("https://agent.example.com", "wss://agent.example.com/ws"),
        ("https://agent.example.com/", "wss://agent.example.com/ws"),
        ("http://192.168.1.5:8787", "ws://192.168.1.5:8787/ws"),
        ("https://example.com/agent", "wss://example.com/agent/ws"),
        ("wss://example.com/ws", "wss://example.com/ws"),
        ("ws://[fd00::5]:8787/ws/", "ws://[fd00::5]:8787/ws"),
    ],
)
def test_the_address_apps_use(public: str, url: str) -> None:
    assert public_address(settings(MOBILE_PUBLIC_URL=public)) == url


def test_a_code_holds_what_the_chat_reads() -> None:
    """Empty fields are left out."""
    assert connection_code(settings(), "ws://h/ws") == {
        "hermes_mobile": 1,
        "url": "ws://h/ws",
        "token": MAIN,
    }
    assert connection_code(settings(), "ws://h/ws", device="tel-1", name="Home") == {
        "hermes_mobile": 1,
        "url": "ws://h/ws",
        "token": MAIN,
        "name": "Home",
        "device": "tel-1",
    }


def test_which_token_a_device_gets() -> None:
    """Its own, if there is one; none that would be refused."""
    both = settings(MOBILE_EXTRA_TOKENS=f"tel-1={BOUND}")
    assert connection_code(both, "u", device="tel-1")["token"] == BOUND
    assert connection_code(both, "u", device="tel-2")["token"] == MAIN
    extra = settings(MOBILE_TOKEN="", MOBILE_EXTRA_TOKENS=f"tel-1={BOUND},{MAIN}")
    assert connection_code(extra, "u")["token"] == MAIN
    only = settings(MOBILE_TOKEN="", MOBILE_EXTRA_TOKENS=f"tel-1={BOUND}")
    with pytest.raises(NoCode, match=r"--device \(tel-1\)") as refused:
        connection_code(only, "u")
    assert BOUND not in str(refused.value)
    listed = settings(MOBILE_ALLOWED_DEVICES="tel-1")
    assert connection_code(listed, "u", device="tel-1")["token"] == MAIN
    for device in ("", "tel-2"):
        with pytest.raises(NoCode, match="MOBILE_ALLOWED_DEVICES"):
            connection_code(listed, "u", device=device)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MOBILE_PUBLIC_URL", "MOBILE_EXTRA_TOKENS", "MOBILE_HOST", "MOBILE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MOBILE_TOKEN", MAIN)
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


def command(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    owner_cli.setup(parser)
    return parser.parse_args(["code", *arguments])


def test_the_command(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """One line of JSON on stdout, what the owner should know on stderr."""
    owner_cli.run(command())
    out, err = capsys.readouterr()
    assert json.loads(out)["url"] == "ws://127.0.0.1:8787/ws"
    assert "MOBILE_PUBLIC_URL" in err and "Whoever sees this" in err
    assert MAIN not in err

    door_files.write_door(home, "127.0.0.1", 9999)
    owner_cli.run(command("--device", "mobile:tel-1"))
    told = json.loads(capsys.readouterr().out)
    assert (told["url"], told["device"]) == ("ws://127.0.0.1:9999/ws", "tel-1")

    monkeypatch.setenv("MOBILE_PUBLIC_URL", "https://agent.example.com")
    owner_cli.run(command("--name", "Дом"))
    out, err = capsys.readouterr()
    assert out == (
        '{"hermes_mobile": 1, "url": "wss://agent.example.com/ws", '
        f'"token": "{MAIN}", "name": "Дом"}}\n'
    )
    assert "MOBILE_PUBLIC_URL" not in err


def test_a_qr_code(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawn in the terminal; the token is then nowhere to be read."""
    owner_cli.run(command("--qr"))
    out, _ = capsys.readouterr()
    assert len(out.splitlines()) > 10
    assert MAIN not in out


@pytest.mark.parametrize("arguments", [["--device", "a/b"], ["--device", "mobile:a:b"]])
def test_what_no_code_can_be_made_of(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        owner_cli.run(command(*arguments))
    assert ended.value.code == 1
    assert "no code" in capsys.readouterr().err


def test_without_a_token(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how to make one."""
    monkeypatch.delenv("MOBILE_TOKEN")
    with pytest.raises(SystemExit):
        owner_cli.run(command())
    assert "MOBILE_TOKEN" in capsys.readouterr().err
