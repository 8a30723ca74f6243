"""What the demo reads from the environment, and what it decides by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.home import Model
from demo.processes import StartError

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_MOBILE_PORT = 8787
DEFAULT_WEB_PORT = 8750
HERMES = "0.19.0"
"""The Hermes Agent that `make run` starts."""


@dataclass(frozen=True)
class Settings:
    """The demo's settings; ports of 0 mean any free one."""

    folder: Path
    hermes: Path
    mobile_host: str
    mobile_port: int
    api_port: int
    web_port: int
    model: Model | None
    """The user's own model; None is the offline one."""
    mobile: Mapping[str, str]
    """The caller's `MOBILE_…` variables, for the device door."""
    web: Mapping[str, str]
    """The caller's `MNOTE_WEB_…` variables, for the browser door."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings.

        Raises:
            StartError: a value makes no sense; the text names it.
        """
        base_url = environ.get("DEMO_MODEL_BASE_URL", "").strip()
        model = None
        if base_url:
            name = environ.get("DEMO_MODEL", "").strip()
            if not name:
                raise StartError(
                    "DEMO_MODEL_BASE_URL is set, but not which model to use there. "
                    "Set DEMO_MODEL to its name."
                )
            key = environ.get("DEMO_MODEL_API_KEY") or environ.get("OPENAI_API_KEY") or "none"
            model = Model(base_url, name, key, vision=False, context_length=None)
        return cls(
            folder=Path(environ.get("DEMO_HOME") or ROOT / ".demo").resolve(),
            hermes=Path(environ.get("DEMO_HERMES") or ROOT / ".hermes-env" / HERMES).resolve(),
            mobile_host=environ.get("MOBILE_HOST") or "127.0.0.1",
            mobile_port=_port(environ, "MOBILE_PORT", DEFAULT_MOBILE_PORT),
            api_port=_port(environ, "DEMO_API_PORT", 0),
            web_port=_port(environ, "DEMO_WEB_PORT", DEFAULT_WEB_PORT),
            model=model,
            mobile={k: v for k, v in environ.items() if k.startswith("MOBILE_")},
            web={k: v for k, v in environ.items() if k.startswith("MNOTE_WEB_")},
        )


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or int(text) > 65535:
        raise StartError(f"{name}={text} is no port. Use a number from 1 to 65535.")
    return int(text)
