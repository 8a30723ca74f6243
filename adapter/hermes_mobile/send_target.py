"""`hermes send --to mobile:<device id>` on every Hermes, to that device or to none.

Newer Hermes versions ask the plugin how an address is written. Older ones know numeric ids only: a
textual one is refused when the channel directory does not have it, and goes to the home device
without a word when it has. There the parser is wrapped, for the platform `mobile` alone. The sender
is wrapped on all versions, because Hermes takes files for plugin platforms out of a message.

What is wrapped is looked at first; what cannot be is reported, and then a message for another
device than the one that was asked for is refused, not redirected.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

PLATFORM = "mobile"
_MARK = "__hermes_mobile__"

# (pconfig, device, text, files, as document) -> Hermes' result of a send
Deliver = Callable[[Any, str, str, Sequence[Any], bool], Awaitable[dict[str, Any]]]


def parse(target_ref: str) -> tuple[str, None]:
    """Everything behind `mobile:` is the device id (`PlatformEntry.parse_target_ref_fn`)."""
    return target_ref.strip().removeprefix(f"{PLATFORM}:"), None


def install(module: Any, deliver: Deliver) -> list[str]:
    """Wrap Hermes' `tools.send_message_tool`. Returns what could not be wrapped, for the log."""
    missing = []
    if not hasattr(module, "resolve_send_target") and not _wrap_parser(module):
        missing.append(
            "tools.send_message_tool._parse_target_ref(platform, target): "
            "`hermes send --to mobile:<device id>` cannot name a device"
        )
    if not _wrap_sender(module, deliver):
        missing.append(
            "tools.send_message_tool._send_to_platform(platform, pconfig, chat_id, message): "
            "`hermes send` sends text only"
        )
    return missing


def install_directory(module: Any, known: Callable[[], Sequence[str]]) -> list[str]:
    """Wrap Hermes' `gateway.channel_directory`: ids are exact, and every device seen is listed.

    An older `hermes send` looks an id up there before the plugin is loaded; without a wrap a prefix
    of a device's name would be good enough for a cron job to reach that device.
    """
    missing = []
    resolve = getattr(module, "resolve_channel_name", None)
    if not _takes(resolve, 2):
        missing.append("gateway.channel_directory.resolve_channel_name (exact device ids for cron)")
    elif not hasattr(resolve, _MARK):
        by_name: Any = resolve

        def resolve_exactly(platform_name: str, name: str, *args: Any, **kwargs: Any) -> Any:
            if platform_name != PLATFORM:
                return by_name(platform_name, name, *args, **kwargs)
            return parse(name)[0] or None

        setattr(resolve_exactly, _MARK, True)
        module.resolve_channel_name = resolve_exactly
    build = getattr(module, "_build_from_sessions", None)
    if not _takes(build, 1):
        missing.append("gateway.channel_directory._build_from_sessions (`hermes send --list`)")
    else:
        original: Any = getattr(build, _MARK, build)

        def build_with_devices(platform_name: str, *args: Any, **kwargs: Any) -> Any:
            entries = original(platform_name, *args, **kwargs)
            if platform_name != PLATFORM or not isinstance(entries, list):
                return entries
            return with_devices(entries, known())

        setattr(build_with_devices, _MARK, original)
        module._build_from_sessions = build_with_devices
    return missing


def with_devices(entries: Sequence[Any], devices: Sequence[str]) -> list[Any]:
    """Directory entries, one for each device: its name is its id, so that it can be typed."""
    listed = [dict(entry) for entry in entries if isinstance(entry, dict) and entry.get("id")]
    for entry in listed:
        entry["name"] = entry["id"]
    have = {entry["id"] for entry in listed}
    listed += [
        {"id": device, "name": device, "type": "dm", "thread_id": None}
        for device in devices
        if device not in have
    ]
    return listed


def list_device(path: str | os.PathLike[str], device: str) -> None:
    """Add a device to the directory file, which Hermes itself writes every few minutes.

    Raises `OSError` or `ValueError` when the file cannot be read or written.
    """
    file = Path(path)
    told = json.loads(file.read_text(encoding="utf-8-sig")) if file.exists() else {}
    if not isinstance(told, dict):
        raise ValueError(f"{file} is not an object")
    platforms = told.setdefault("platforms", {})
    entries = platforms.get(PLATFORM) or []
    if any(entry.get("id") == device for entry in entries):
        return
    platforms[PLATFORM] = with_devices(entries, [device])
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".directory-")
    with os.fdopen(handle, "w", encoding="utf-8") as new:
        json.dump(told, new, indent=2, ensure_ascii=False)
    os.replace(temporary, file)


def _wrap_parser(module: Any) -> bool:
    original = getattr(module, "_parse_target_ref", None)
    if hasattr(original, _MARK):
        return True
    if not _takes(original, 2):
        return False

    def parse_target_ref(platform_name: str, target_ref: str, *args: Any, **kwargs: Any) -> Any:
        if platform_name != PLATFORM:
            return original(platform_name, target_ref, *args, **kwargs)  # type: ignore[misc]
        return (*parse(target_ref), True)

    setattr(parse_target_ref, _MARK, True)
    module._parse_target_ref = parse_target_ref
    return True


def _wrap_sender(module: Any, deliver: Deliver) -> bool:
    original = getattr(module, "_send_to_platform", None)
    if hasattr(original, _MARK):
        return True
    if not _takes(original, 4):
        return False

    def send_to_platform(
        platform: Any,
        pconfig: Any,
        chat_id: str,
        message: str,
        thread_id: str | None = None,
        media_files: Sequence[Any] | None = None,
        force_document: bool = False,
        **kwargs: Any,
    ) -> Any:
        if getattr(platform, "value", platform) != PLATFORM:
            if thread_id is not None:
                kwargs["thread_id"] = thread_id
            return original(  # type: ignore[misc]
                platform,
                pconfig,
                chat_id,
                message,
                media_files=media_files,
                force_document=force_document,
                **kwargs,
            )
        # Read while the caller's frame stands: the coroutine runs elsewhere.
        asked = asked_device(limit=4)
        return _send(deliver, pconfig, str(chat_id), asked, message, media_files, force_document)

    setattr(send_to_platform, _MARK, True)
    module._send_to_platform = send_to_platform
    return True


async def _send(
    deliver: Deliver,
    pconfig: Any,
    chat_id: str,
    asked: str | None,
    message: str,
    media_files: Sequence[Any] | None,
    force_document: bool,
) -> dict[str, Any]:
    device = asked or chat_id
    result = await deliver(pconfig, device, message, media_files or (), force_document)
    if asked and result.get("success"):
        return _Sent(result, device)
    return result


class _Sent(dict[str, Any]):
    """A result whose `note` tells where the message really went.

    A Hermes that parsed the address before the plugin was loaded took the home device for the
    target and would say so; the message went to the device that was asked for.
    """

    def __init__(self, result: dict[str, Any], device: str) -> None:
        super().__init__(result)
        self._note = f"Sent to {PLATFORM}:{device}"

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, self._note if key == "note" else value)


def asked_device(*, limit: int = 60) -> str | None:
    """The device a person named, where Hermes' own send function is among the callers.

    For a Hermes that parsed the address before this plugin was loaded and would take the home
    device instead.
    """
    frame = sys._getframe(1)
    for _ in range(limit):
        code = frame.f_code
        if code.co_name == "_handle_send" and "target_ref" in code.co_varnames:
            if frame.f_locals.get("platform_name") != PLATFORM:
                return None
            target_ref = frame.f_locals.get("target_ref")
            return (parse(str(target_ref))[0] or None) if target_ref else None
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def named_on_command_line(argv: Sequence[str]) -> str | None:
    """The device in `hermes send --to mobile:<device>`, "" for `mobile:` with nothing behind it.

    None for another command, another platform, or the platform alone.
    """
    if "send" not in argv:
        return None
    for index, word in enumerate(argv):
        value = None
        if word in ("--to", "-t") and index + 1 < len(argv):
            value = argv[index + 1]
        elif word.startswith("--to="):
            value = word[len("--to=") :]
        if value is not None and value.strip().lower().startswith(f"{PLATFORM}:"):
            return value.split(":", 1)[1].strip()
    return None


def _takes(function: Any, positional: int) -> bool:
    """Whether `function` can be called with that many positional arguments."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*range(positional))
    except (TypeError, ValueError):
        return False
    return True
