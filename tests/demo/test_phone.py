"""What a phone needs to find the demo."""

from __future__ import annotations

import json

import pytest

from demo.phone import connection_text, is_loopback, network_address, terminal_code


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback_is_for_this_machine_alone(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "nas.local"])
def test_everything_else_is_for_the_network(host: str) -> None:
    assert not is_loopback(host)


def test_a_bound_address_is_the_address() -> None:
    assert network_address("192.168.1.5") == "192.168.1.5"
    assert network_address("fd00::5") == "[fd00::5]"


def test_all_addresses_are_shown_as_one_that_can_be_typed() -> None:
    assert network_address("0.0.0.0") not in {"", "0.0.0.0"}
    assert network_address("::").startswith("[") and network_address("::") != "[::]"


def test_the_code_says_what_the_chat_page_reads() -> None:
    code = json.loads(connection_text("ws://192.168.1.5:8787/ws", "t" * 43, "Demo"))
    assert code == {
        "hermes_mobile": 1,
        "url": "ws://192.168.1.5:8787/ws",
        "token": "t" * 43,
        "name": "Demo",
    }


def test_the_code_fits_a_terminal() -> None:
    drawn = terminal_code(connection_text("ws://192.168.100.100:8787/ws", "t" * 43, "Demo"))
    lines = drawn.splitlines()
    assert len(lines) < 40
    assert any("█" in line or "\x1b" in line or "▄" in line for line in lines)
