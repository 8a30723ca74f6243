"""demo/home.py: a Hermes home of its own, with its secrets kept."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import yaml

from demo.home import (
    Model,
    Options,
    config,
    environment,
    kept_secret,
    merged,
    refusal,
    write_home,
)

MODEL = Model("http://127.0.0.1:1/v1", "m", "model-key")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_config_asks_before_dangerous_commands_and_downloads_nothing() -> None:
    made = config(Options(MODEL, 1, "k"))

    assert made["approvals"]["mode"] == "manual"
    assert made["security"] == {"tirith_enabled": False, "allow_lazy_installs": False}
    assert made["plugins"]["enabled"] == ["mobile-platform", "demo-words"]
    runs = made["gateway"]["api_server"]["max_concurrent_runs"]
    assert runs <= (os.cpu_count() or 1) + 4 - 2


def test_sections_are_laid_over_key_by_key() -> None:
    over = {"approvals": {"timeout": 3}, "model": {"name": "other"}}
    made = config(Options(MODEL, 1, "k", config=over))

    assert made["approvals"] == {"mode": "manual", "timeout": 3}
    assert made["model"]["name"] == "other"
    assert merged({"a": {"b": 1}}, {"a": 2}) == {"a": 2}


def test_secrets_are_for_the_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "hermes-home"
    write_home(home, Options(MODEL, 8642, "api key's value", mobile={"MOBILE_TOKEN": "tok"}))

    assert mode(home) == 0o700
    assert mode(home / ".env") == mode(home / "config.yaml") == 0o600
    assert "MOBILE_TOKEN=tok\n" in (home / ".env").read_text()
    assert r"API_SERVER_KEY='api key\'s value'" in (home / ".env").read_text()
    assert yaml.safe_load((home / "config.yaml").read_text())["model"]["api_key"] == "model-key"
    assert (home / "plugins" / "demo-words" / "plugin.yaml").is_file()


def test_writing_again_keeps_what_hermes_has_stored(tmp_path: Path) -> None:
    home = tmp_path / "hermes-home"
    write_home(home, Options(MODEL, 1, "k"))
    (home / "state.db").write_text("sessions")
    write_home(home, Options(MODEL, 2, "k"))

    assert (home / "state.db").read_text() == "sessions"
    assert "API_SERVER_PORT=2\n" in (home / ".env").read_text()


def test_nothing_of_the_users_own_hermes_gets_in(tmp_path: Path) -> None:
    caller = {
        "PATH": "/bin",
        "HOME": "/home/person",
        "HERMES_HOME": "/home/person/.hermes",
        "OPENAI_API_KEY": "sk-secret",
        "TELEGRAM_BOT_TOKEN": "123:abc",
        "PYTHONPATH": "/somewhere",
    }
    made = environment(tmp_path / "hermes-home", caller)

    assert made["PATH"] == "/bin"
    assert made["HERMES_HOME"] == str(tmp_path / "hermes-home")
    assert made["HOME"].startswith(str(tmp_path))
    assert "sk-secret" not in json.dumps(made)
    assert not {"OPENAI_API_KEY", "TELEGRAM_BOT_TOKEN", "PYTHONPATH"} & set(made)


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    first = kept_secret(tmp_path / "token")
    (tmp_path / "token").chmod(0o644)

    assert kept_secret(tmp_path / "token") == first
    assert len(first) >= 32
    assert mode(tmp_path / "token") == 0o600


def test_why_hermes_did_not_open_the_door(tmp_path: Path) -> None:
    """Only of this start, and only where there is a reason."""
    state = tmp_path / "gateway_state.json"
    noted = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert refusal(tmp_path, 0) is None
    for text in ("", "[]", "{}", '{"platforms": []}', '{"platforms": {"mobile": 3}}', '{"platf'):
        state.write_text(text)
        assert refusal(tmp_path, 0) is None
    entry = {"state": "fatal", "error_message": "no token", "updated_at": noted.isoformat()}
    state.write_text(json.dumps({"platforms": {"mobile": entry}}))
    assert refusal(tmp_path, noted.timestamp() - 1) == "no token"
    assert refusal(tmp_path, noted.timestamp() + 1) is None
    for missing in ({"error_message": None}, {"updated_at": None}, {"updated_at": "today"}):
        state.write_text(json.dumps({"platforms": {"mobile": {**entry, **missing}}}))
        assert refusal(tmp_path, 0) is None
