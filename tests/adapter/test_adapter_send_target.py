"""`hermes send` on an older and on a newer Hermes: to the device that was named, or to none."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_mobile import send_target

Sent = list[tuple[str, str, list[Any], bool]]


async def original_sender(
    platform: Any, pconfig: Any, chat_id: str, message: str, **kwargs: Any
) -> dict[str, Any]:
    return {"success": True, "by": "hermes", **kwargs}


def older() -> Any:
    """A module that knows numeric ids only."""

    def parse(platform_name: str, target_ref: str) -> Any:
        return (target_ref, None, True) if target_ref.isdigit() else (None, None, False)

    return SimpleNamespace(_parse_target_ref=parse, _send_to_platform=original_sender)


@pytest.fixture
def sent() -> Sent:
    return []


def deliver_into(sent: Sent) -> send_target.Deliver:
    async def deliver(
        pconfig: Any, device: str, text: str, files: Sequence[Any], as_document: bool
    ) -> dict[str, Any]:
        sent.append((device, text, list(files), as_document))
        return {"success": True, "message_id": "m"}

    return deliver


def test_an_older_parser_learns_device_ids(sent: Sent) -> None:
    """For the platform mobile alone, and once."""
    module = older()
    assert send_target.install(module, deliver_into(sent)) == []
    wrapped = module._parse_target_ref
    assert wrapped("mobile", "Pixel 9") == ("Pixel 9", None, True)
    assert wrapped("mobile", " mobile:dev1 ") == ("dev1", None, True)
    assert wrapped("telegram", "name") == (None, None, False)
    assert send_target.install(module, deliver_into(sent)) == []
    assert module._parse_target_ref is wrapped


def test_a_newer_hermes_is_asked_not_wrapped(sent: Sent) -> None:
    """It has a function of its own that asks the plugin."""
    module = older()
    module.resolve_send_target = lambda *a, **k: None
    parser = module._parse_target_ref
    assert send_target.install(module, deliver_into(sent)) == []
    assert module._parse_target_ref is parser


@pytest.mark.parametrize("name", ["_parse_target_ref", "_send_to_platform"])
@pytest.mark.parametrize("broken", [None, lambda: None])
def test_what_cannot_be_wrapped_is_named(sent: Sent, name: str, broken: Any) -> None:
    """Missing, or of another shape: nothing is touched and the log says what is off."""
    module = older()
    setattr(module, name, broken)
    (missing,) = send_target.install(module, deliver_into(sent))
    assert name in missing
    assert getattr(module, name) is broken


async def test_files_are_kept_in_the_message(sent: Sent) -> None:
    """Of other platforms nothing is changed."""
    module = older()
    send_target.install(module, deliver_into(sent))
    mobile = SimpleNamespace(value="mobile")
    await module._send_to_platform(mobile, None, "d", "text", media_files=["/a"], thread_id=None)
    assert sent == [("d", "text", ["/a"], False)]
    other = await module._send_to_platform(SimpleNamespace(value="x"), None, "c", "t", None, [])
    assert other["by"] == "hermes" and len(sent) == 1


async def test_the_named_device_not_the_home_device(sent: Sent) -> None:
    """A Hermes that parsed before the plugin was there would send to the home device."""
    module = older()
    send_target.install(module, deliver_into(sent))

    async def _handle_send(target_ref: str) -> Any:
        platform_name = "mobile"  # noqa: F841 - read by the wrapper, as in Hermes
        coroutine = module._send_to_platform(SimpleNamespace(value="mobile"), None, "home", "hi")
        result = await coroutine
        result["note"] = "Sent to mobile home channel (chat_id: home)"
        return result

    result = await _handle_send("dev1")
    assert sent[0][0] == "dev1"
    assert json.loads(json.dumps(result))["note"] == "Sent to mobile:dev1"


def test_cron_and_the_list_take_exact_ids() -> None:
    """No prefix of a name is good enough; every device that was seen is listed by its id."""
    module = SimpleNamespace(
        resolve_channel_name=lambda platform, name: "tel-1" if platform == "mobile" else "x",
        _build_from_sessions=lambda platform: [{"id": "tel-1", "name": "Telefon", "type": "dm"}],
    )
    known: list[str] = ["tel-1", "pc"]
    assert send_target.install_directory(module, lambda: known) == []
    assert send_target.install_directory(module, lambda: known) == []
    assert module.resolve_channel_name("mobile", "tel") == "tel"
    assert module.resolve_channel_name("slack", "tel") == "x"
    assert [(e["id"], e["name"]) for e in module._build_from_sessions("mobile")] == [
        ("tel-1", "tel-1"),
        ("pc", "pc"),
    ]
    assert module._build_from_sessions("slack")[0]["name"] == "Telefon"
    missing = send_target.install_directory(SimpleNamespace(), lambda: known)
    assert len(missing) == 2


def test_a_device_is_put_into_the_directory_file(tmp_path: Path) -> None:
    """Beside what stands there; a damaged file is left alone."""
    path = tmp_path / "channel_directory.json"
    send_target.list_device(path, "dev1")
    send_target.list_device(path, "dev1")
    send_target.list_device(path, "Gerät 2")
    told = json.loads(path.read_text())
    assert [e["id"] for e in told["platforms"]["mobile"]] == ["dev1", "Gerät 2"]
    path.write_text("[1]")
    with pytest.raises(ValueError, match="not an object"):
        send_target.list_device(path, "dev1")
    assert [p.name for p in tmp_path.iterdir()] == ["channel_directory.json"]


@pytest.mark.parametrize(
    ("argv", "device"),
    [
        (["hermes", "send", "--to", "mobile:dev1", "hi"], "dev1"),
        (["hermes", "send", "--to=mobile:dev1", "hi"], "dev1"),
        (["hermes", "send", "-t", "mobile:dev1", "hi"], "dev1"),
        (["hermes", "send", "--to", " Mobile: dev1 ", "hi"], "dev1"),
        (["hermes", "send", "--to", "mobile:", "hi"], ""),
        (["hermes", "send", "--to=mobile: ", "hi"], ""),
        (["hermes", "send", "--to", "mobile", "hi"], None),
        (["hermes", "send", "--to", "slack:x", "hi"], None),
        (["hermes", "gateway", "run"], None),
    ],
)
def test_the_device_on_the_command_line(argv: list[str], device: str | None) -> None:
    """What a person typed behind --to."""
    assert send_target.named_on_command_line(argv) == device
