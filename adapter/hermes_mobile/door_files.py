"""The two small files by which Hermes' own senders find the running door.

`$HERMES_HOME/mobile/deliver-secret` lets `hermes send` and `hermes cron` deliver, whatever the
door's address is; `door.json` says where the door listens. Only this machine's owner may read them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import Final

SECRET_NAME: Final = "deliver-secret"
DOOR_NAME: Final = "door.json"
MIN_SECRET_CHARS: Final = 32


class DoorFilesError(Exception):
    """A file cannot be used; the text says which, why and what to do."""


def folder(home: str | os.PathLike[str]) -> Path:
    """The plugin's own folder below the Hermes home; made when missing (0700)."""
    path = Path(home) / "mobile"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DoorFilesError(f"{path} cannot be made: {error.strerror or error}") from error
    return path


def secret(home: str | os.PathLike[str]) -> str:
    """The secret of Hermes' own senders, made by whoever comes first.

    It appears whole or not at all: two processes that start together agree on one.
    """
    path = folder(home) / SECRET_NAME
    try:
        if not path.exists():
            _publish(path, secrets.token_urlsafe(32))
        info = os.stat(path, follow_symlinks=False)
        if os.name == "posix":
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.getuid():
                raise DoorFilesError(f"{path} is not a file of this user: remove it")
            if info.st_mode & 0o077:
                os.chmod(path, 0o600)
        value = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DoorFilesError(f"{path} cannot be used: {error}") from error
    if len(value) < MIN_SECRET_CHARS:
        raise DoorFilesError(f"{path} is damaged: remove it, the next start makes a new one")
    return value


def _publish(path: Path, value: str) -> None:
    """Write `value` to a private file and give it its name, if the name is still free."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".secret-")  # 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass  # another process was first; its secret counts
        except OSError:
            # No hard links here (some network and Windows file systems).
            if not path.exists():
                os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def write_door(home: str | os.PathLike[str], host: str, port: int) -> None:
    """Say where the door listens, for the processes of this machine."""
    path = folder(home) / DOOR_NAME
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".door-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"url": door_url(host, port), "pid": os.getpid()}, file)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise DoorFilesError(f"{path} cannot be written: {error.strerror or error}") from error


def read_door(home: str | os.PathLike[str]) -> str | None:
    """The address of the door that was started last with this home, None when none runs."""
    try:
        data = json.loads((Path(home) / "mobile" / DOOR_NAME).read_text(encoding="utf-8"))
        url = data["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


def remove_door(home: str | os.PathLike[str]) -> None:
    """The door of this process is closed."""
    path = Path(home) / "mobile" / DOOR_NAME
    try:
        if json.loads(path.read_text(encoding="utf-8")).get("pid") == os.getpid():
            path.unlink()
    except (OSError, ValueError, AttributeError):
        pass  # never written, or another process's by now


def door_url(host: str, port: int | str) -> str:
    """Where a process of this machine reaches a door that is bound to `host`."""
    bare = host.strip("[]")
    name = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(bare, bare)
    return f"ws://[{name}]:{port}/ws" if ":" in name else f"ws://{name}:{port}/ws"


def hermes_home() -> Path:
    """The Hermes home of this process; without Hermes `HERMES_HOME` or `~/.hermes`."""
    try:
        from hermes_constants import get_hermes_home
    except ImportError:
        return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    return Path(get_hermes_home())
