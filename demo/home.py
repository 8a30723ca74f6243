"""The Hermes home of the demo: its config, its secrets and its plugin.

Everything is below one folder of the checkout. `HOME` and `HERMES_HOME` of the gateway point
into it, so that nothing of the user's own Hermes is read or written.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

PLUGIN = Path(__file__).resolve().parent / "hermes_plugin"
# Of the caller's environment the gateway gets only these, and what the demo sets itself.
PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Model:
    """The OpenAI-compatible model the agent uses."""

    base_url: str
    name: str
    api_key: str = "offline"
    vision: bool = True
    context_length: int | None = 200_000


@dataclass(frozen=True)
class Options:
    """What a Hermes home is made from. Times are in seconds."""

    model: Model
    api_port: int
    api_key: str
    mobile: Mapping[str, str] = field(default_factory=dict)
    """Settings of the device door: `MOBILE_…` names and values."""
    approval_timeout: int = 300
    clarify_timeout: int = 300
    tool_progress: str = "off"
    plugins: tuple[str, ...] = ("mobile-platform", "demo-words")
    config: Mapping[str, Any] = field(default_factory=dict)
    """Sections of config.yaml to lay over the demo's own, merged key by key."""


def config(options: Options) -> dict[str, Any]:
    """config.yaml as a dictionary."""
    model: dict[str, Any] = {
        "default": options.model.name,
        "provider": "custom",
        "base_url": options.model.base_url,
        "api_key": options.model.api_key,
        "supports_vision": options.model.vision,
    }
    if options.model.context_length is not None:
        model["context_length"] = options.model.context_length
    ours: dict[str, Any] = {
        "model": model,
        "plugins": {"enabled": list(options.plugins)},
        "streaming": {"enabled": True, "transport": "auto", "cursor": ""},
        # manual: a command that Hermes finds dangerous is always asked about.
        "approvals": {"mode": "manual", "timeout": options.approval_timeout},
        "agent": {"clarify_timeout": options.clarify_timeout},
        "display": {
            # What is sent during a turn waits for its end, as with the scripted agent.
            "busy_input_mode": "queue",
            "busy_ack_enabled": False,
            "platforms": {"mobile": {"tool_progress": options.tool_progress}},
        },
        # Both would try to download something at start or in the first turn.
        "security": {"tirith_enabled": False, "allow_lazy_installs": False},
        "terminal": {"backend": "local"},
        # A voice message reaches the model as a path: there is no speech model offline.
        "stt": {"enabled": False},
        "onboarding": {"profile_build": "off"},
        # Runs, session reads and mobile turns share one pool of cpus + 4 threads.
        "gateway": {"api_server": {"max_concurrent_runs": (os.cpu_count() or 1) + 2}},
        "cron": {"wrap_response": False},
        # The newer Hermes would hide the demo's own tool behind a search.
        "tools": {"tool_search": {"enabled": "off"}},
    }
    return merged(ours, options.config)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid over `base`, sections merged, everything else replaced."""
    result = dict(base)
    for key, value in over.items():
        under = result.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        result[key] = merged(under, value) if both else value  # type: ignore[arg-type]
    return result


def write_home(home: Path, options: Options) -> None:
    """Make or refresh the home: config.yaml, .env (0600) and the demo's plugin.

    Sessions, memories and logs that are there already stay.
    """
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    # JSON is YAML: no YAML library is needed to write it.
    write_secret(home / "config.yaml", json.dumps(config(options), indent=2) + "\n")
    environment = {
        "API_SERVER_ENABLED": "true",
        "API_SERVER_HOST": "127.0.0.1",
        "API_SERVER_PORT": str(options.api_port),
        "API_SERVER_KEY": options.api_key,
        **options.mobile,
    }
    lines = "".join(f"{name}={_quoted(value)}\n" for name, value in environment.items())
    write_secret(home / ".env", lines)
    target = home / "plugins" / "demo-words"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(PLUGIN, target, ignore=shutil.ignore_patterns("__pycache__"))


def _quoted(value: str) -> str:
    """A value as .env files hold it."""
    if all(c.isalnum() or c in "-_.:/@,=+" for c in value):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def environment(home: Path, caller: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The gateway's environment: nothing of the user's own but what a program needs to run."""
    user_home = home.parent / "user-home"
    user_home.mkdir(parents=True, exist_ok=True)
    passed = {name: caller[name] for name in PASSED_ON if name in caller}
    return {
        **passed,
        "HOME": str(user_home),
        "HERMES_HOME": str(home),
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
    }


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner may read, without a moment in which others could."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def kept_secret(path: Path) -> str:
    """The secret in `path`, made once (256 bits, URL-safe) and kept 0600."""
    if path.is_file() and (known := path.read_text(encoding="utf-8").strip()):
        path.chmod(0o600)
        return known
    made = secrets.token_urlsafe(32)
    write_secret(path, made + "\n")
    return made


def refusal(home: Path, since: float) -> str | None:
    """Why a gateway started at `since` (epoch seconds) did not open the device door, if it said so.

    Hermes notes the reason of a platform that does not start, and keeps those of earlier starts.
    """
    try:
        state = json.loads((home / "gateway_state.json").read_text(encoding="utf-8"))
        entry = state["platforms"]["mobile"]
        reason = entry["error_message"]
        noted = datetime.fromisoformat(entry["updated_at"]).timestamp()
    except (OSError, ValueError, LookupError, TypeError):  # not there, or half written
        return None
    return str(reason) if reason and noted >= since else None
