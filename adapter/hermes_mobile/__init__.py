"""Hermes Mobile: people's own apps as a platform of the Hermes gateway, over WebSocket protocol v1.

Hermes loads this package in every one of its processes, so importing it and `register` cost next to
nothing: the door, its dependencies and Hermes' own modules are imported when they are needed.
Works as a directory plugin (under whatever package name Hermes gives it) and as a pip entry point.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from typing import Any

__version__ = "0.1.0"

PLATFORM = "mobile"
REQUIRED_PACKAGES = ("msgspec", "picows", "pybase64", "regex", "filetype")

# Keys of `platforms.mobile` in config.yaml that are the door's, see `docs/settings.md`.
SETTING_NAMES = (
    "host", "port", "token", "extra_tokens", "allowed_devices", "deliver_tokens", "allowed_origins",
    "public_url", "trusted_proxies", "loopback_deliver", "home_device", "prompt_ttl", "avatar_url",
    "metrics_token",
)  # fmt: skip

log = logging.getLogger("hermes_mobile")


def missing_packages() -> list[str]:
    """The packages the door needs and this Python does not have."""
    return [name for name in REQUIRED_PACKAGES if importlib.util.find_spec(name) is None]


def how_to_install(names: list[str]) -> str:
    """The sentence for an owner whose Python lacks `names`."""
    return (
        f"the mobile platform needs {', '.join(names)}: "
        f'"{sys.executable}" -m pip install {" ".join(names)}'
    )


def register(ctx: Any) -> None:
    """Called by Hermes with its plugin context, once per process."""
    from . import hermes_words, owner_cli, send_target

    entry = {
        "emoji": "📱",
        "pii_safe": True,
        "allowed_users_env": "MOBILE_ALLOWED_USERS",
        "allow_all_env": "MOBILE_ALLOW_ALL_USERS",
        "max_message_length": 0,
        "platform_hint": (
            "You are talking with a person through their own app (phone, desktop or web). Markdown "
            "is rendered. To send a file, write MEDIA:/absolute/path on a line of its own."
        ),
        "env_enablement_fn": _from_environment,
        "apply_yaml_config_fn": _from_config,
        "cron_deliver_env_var": "MOBILE_HOME_CHANNEL",
        "standalone_sender_fn": _standalone_send,
        # Newer versions only:
        "parse_target_ref_fn": send_target.parse,
        "validate_target_ref_fn": _valid_target,
        "display_tier": "high",
    }
    known = _entry_fields()
    ctx.register_platform(
        name=PLATFORM,
        label="Mobile",
        adapter_factory=_adapter,
        # The door says at connect what is missing: a platform that is not enabled says nothing.
        check_fn=lambda: True,
        validate_config=lambda config: True,
        is_connected=lambda config: True,
        required_env=["MOBILE_TOKEN"],
        install_hint=how_to_install(list(REQUIRED_PACKAGES)),
        **{name: value for name, value in entry.items() if name in known},
    )
    _optional(ctx, "register_hook", "post_approval_response", _approval_ended)
    _optional(
        ctx,
        "register_cli_command",
        name=PLATFORM,
        help="The mobile platform: token, status, send",
        setup_fn=owner_cli.setup,
        handler_fn=owner_cli.run,
    )
    hermes_words.add_to(ctx)
    _wrap_send()


def _entry_fields() -> set[str]:
    """The fields this Hermes has for a platform; an unknown one would make it refuse the plugin."""
    import dataclasses

    registry = importlib.import_module("gateway.platform_registry")
    return {field.name for field in dataclasses.fields(registry.PlatformEntry)}


def _optional(ctx: Any, method: str, *args: Any, **kwargs: Any) -> None:
    call = getattr(ctx, method, None)
    if call is None:
        log.warning("this Hermes has no plugin call %s: %s is off", method, args or kwargs["name"])
        return
    try:
        call(*args, **kwargs)
    except Exception as error:
        log.warning("plugin call %s failed: %s: %s", method, type(error).__name__, error)


def _wrap_send() -> None:
    """Make `hermes send` and cron know device ids and files; see `send_target`."""
    from . import send_target

    try:
        module = importlib.import_module("tools.send_message_tool")
        missing = send_target.install(module, _deliver)
        missing += send_target.install_directory(
            importlib.import_module("gateway.channel_directory"), _known_devices
        )
    except Exception as error:
        missing = [f"{type(error).__name__}: {error}"]
    for name in missing:
        log.warning("this Hermes lacks %s", name)


def _adapter(config: Any) -> Any:
    return importlib.import_module(".adapter", __name__).MobileAdapter(config)


def _from_environment() -> dict[str, Any]:
    """What the environment adds to the platform's configuration: the home device."""
    from . import send_target

    home = send_target.asked_device() or home_device()
    return {"home_channel": {"chat_id": home, "name": home}} if home else {}


def _from_config(config: dict[str, Any], platform: dict[str, Any]) -> dict[str, Any]:
    """The door's keys of `platforms.mobile` (or below its `extra`) in config.yaml."""
    below = platform.get("extra")
    sources = [below if isinstance(below, dict) else {}, platform]
    found = {name: source[name] for source in sources for name in SETTING_NAMES if name in source}
    if found.get("home_device") and not home_device():
        os.environ["MOBILE_HOME_CHANNEL"] = str(found["home_device"]).removeprefix("mobile:")
    return found


def home_device() -> str:
    """The home device: what `/sethome` chose, else MOBILE_HOME_DEVICE.

    Hermes reads the first name alone, so the second is copied to it.
    """
    for name in ("MOBILE_HOME_CHANNEL", "MOBILE_HOME_DEVICE"):
        value = os.environ.get(name, "").strip().removeprefix("mobile:")
        if value:
            os.environ["MOBILE_HOME_CHANNEL"] = value
            return value
    return ""


def _valid_target(device: str) -> bool | str:
    """Hermes' last look at an address: True, or why it is none."""
    if not device or len(device) > 120 or any(c in ":/" or not c.isprintable() for c in device):
        return "it is mobile:<device id>, without control characters, `:` or `/`"
    return True


async def _standalone_send(*args: Any, **kwargs: Any) -> dict[str, Any]:
    names = missing_packages()
    if names:
        return {"error": how_to_install(names)}
    from . import outside

    return await outside.standalone_send(*args, **kwargs)


async def _deliver(
    pconfig: Any, device: str, text: str, media_files: Any, as_document: bool
) -> dict[str, Any]:
    """A send of Hermes: through the adapter of this process, else to the gateway's."""
    live = sys.modules.get(f"{__name__}.adapter")
    adapter = live.running() if live is not None else None
    if adapter is not None:
        result: dict[str, Any] = await adapter.deliver(device, text, media_files, as_document)
        return result
    return await _standalone_send(
        pconfig, device, text, media_files=media_files, force_document=as_document
    )


def _known_devices() -> list[str]:
    live = sys.modules.get(f"{__name__}.adapter")
    adapter = live.running() if live is not None else None
    return [] if adapter is None else adapter.known_devices()


def _approval_ended(**kwargs: Any) -> None:
    """Hermes' hook: an approval was answered or ran out. Runs on any thread."""
    live = sys.modules.get(f"{__name__}.adapter")
    adapter = live.running() if live is not None else None
    if adapter is not None:
        adapter.look_at_cards()
