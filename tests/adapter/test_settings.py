"""Every setting, from both sources; every error names its setting and holds no secret."""

from __future__ import annotations

import dataclasses
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile import SETTING_NAMES
from hermes_mobile.settings import Settings, SettingsError, ip_address, is_loopback_host

TOKEN = "a-long-enough-token"


def read(**environ: str) -> Settings:
    return Settings.from_sources(
        {"MOBILE_TOKEN": TOKEN, **{f"MOBILE_{name.upper()}": v for name, v in environ.items()}}
    )


def refused(name: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(**environ)
    assert name in str(caught.value)
    return str(caught.value)


def test_the_defaults() -> None:
    settings = read()
    assert (settings.host, settings.port, settings.prompt_ttl) == ("127.0.0.1", 8787, 300.0)
    assert settings.token == TOKEN
    assert settings.loopback_deliver and settings.loopback_only
    assert settings.announced_avatar_url == ""
    assert not (
        settings.extra_tokens
        or settings.allowed_devices
        or settings.deliver_tokens
        or settings.allowed_origins
        or settings.trusted_proxies
        or settings.public_url
        or settings.home_device
    )


def test_every_setting_from_the_environment() -> None:
    settings = read(
        host="::1",
        port="0",
        extra_tokens="one, tel=two ,pad=x=y=",
        allowed_devices="tel, Mein Gerät",
        deliver_tokens="d1,d2",
        allowed_origins="https://App.example.com/, http://localhost:3000",
        public_url="https://agent.example.com/",
        trusted_proxies="127.0.0.1, 10.0.0.0/8, fd00::/8",
        loopback_deliver="off",
        home_device="mobile:tel",
        prompt_ttl="60",
        avatar_url="https://cdn.example.com/avatar/",
    )
    assert (settings.host, settings.port) == ("::1", 0)
    assert settings.extra_tokens == ((None, "one"), ("tel", "two"), ("pad", "x=y="))
    assert settings.allowed_devices == {"tel", "Mein Gerät"}
    assert settings.deliver_tokens == ("d1", "d2")
    assert settings.allowed_origins == {"https://app.example.com", "http://localhost:3000"}
    assert settings.public_url == "https://agent.example.com"
    assert ipaddress.ip_network("10.0.0.0/8") in settings.trusted_proxies
    assert not settings.loopback_deliver and not settings.loopback_only
    assert settings.home_device == "tel"
    assert settings.prompt_ttl == 60.0
    assert settings.announced_avatar_url == "https://cdn.example.com/avatar/"


def test_the_file_counts_where_the_environment_is_silent() -> None:
    extra = {
        "token": TOKEN,
        "port": 9000,
        "extra_tokens": ["tel=abc", "def"],
        "allowed_devices": ["tel"],
        "loopback_deliver": False,
        "prompt_ttl": 12.5,
        "host": None,
        "public_url": "",
    }
    settings = Settings.from_sources({"MOBILE_PORT": "9001", "MOBILE_HOST": " "}, extra)
    assert settings.port == 9001 and settings.host == "127.0.0.1"
    assert settings.token == TOKEN
    assert settings.extra_tokens == (("tel", "abc"), (None, "def"))
    assert settings.allowed_devices == {"tel"}
    assert not settings.loopback_deliver
    assert settings.prompt_ttl == 12.5
    assert Settings.from_sources({}, {"token": 12345678901234567}).token == "12345678901234567"


@pytest.mark.parametrize("value", [{"tel": "abc"}, [None], [["a"]], [{"tel": "abc"}], object()])
def test_the_file_holds_texts_and_lists(value: object) -> None:
    with pytest.raises(SettingsError, match="platforms.mobile.extra_tokens"):
        Settings.from_sources({"MOBILE_TOKEN": TOKEN}, {"extra_tokens": value})


@pytest.mark.parametrize("port", ["-1", "65536", "http", "80.5", "٨٠", "1e3", "9" * 5000])
def test_a_port_that_cannot_be(port: str) -> None:
    assert len(refused("MOBILE_PORT", port=port)) < 200


@pytest.mark.parametrize("seconds", ["0", "-1", "86401", "nan", "inf", "long"])
def test_a_time_that_cannot_be(seconds: str) -> None:
    refused("MOBILE_PROMPT_TTL", prompt_ttl=seconds)


@pytest.mark.parametrize("value", ["maybe", "2", "offf"])
def test_a_switch_that_is_none(value: str) -> None:
    refused("MOBILE_LOOPBACK_DELIVER", loopback_deliver=value)


@pytest.mark.parametrize(
    ("value", "on"),
    [("on", True), ("ON", True), ("1", True), ("yes", True), ("off", False), ("False", False)],
)
def test_a_switch(value: str, on: bool) -> None:
    assert read(loopback_deliver=value).loopback_deliver is on


@pytest.mark.parametrize(
    "url",
    ["agent.example.com", "ftp://agent.example.com", "https://", "https://a:port", "https://[::1"],
)
def test_a_public_url_that_cannot_be(url: str) -> None:
    refused("MOBILE_PUBLIC_URL", public_url=url)


@pytest.mark.parametrize(
    ("url", "avatar"),
    [
        ("https://agent.example.com", "https://agent.example.com/avatar/"),
        ("http://agent.example.com:80/", "http://agent.example.com:80/avatar/"),
        ("wss://agent.example.com", "https://agent.example.com/avatar/"),
        ("ws://agent.example.com", "http://agent.example.com/avatar/"),
        ("WSS://agent.example.com/ws", "https://agent.example.com/avatar/"),
        ("https://example.com/agent/", "https://example.com/agent/avatar/"),
    ],
)
def test_where_the_avatar_page_is(url: str, avatar: str) -> None:
    assert read(public_url=url).announced_avatar_url == avatar


@pytest.mark.parametrize(
    ("origin", "kept"),
    [
        ("https://app.example.com", "https://app.example.com"),
        ("HTTPS://APP.example.com/", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://app.example.com:80/", "http://app.example.com"),
        ("https://app.example.com:80", "https://app.example.com:80"),
        ("capacitor://localhost", "capacitor://localhost"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_an_origin_is_kept_as_browsers_send_it(origin: str, kept: str) -> None:
    assert read(allowed_origins=origin).allowed_origins == {kept}


@pytest.mark.parametrize(
    "origin",
    ["*", "null", "app.example.com", "https://app/path", "https://*.example.com", "https://a?b"],
)
def test_an_origin_that_cannot_be(origin: str) -> None:
    refused("MOBILE_ALLOWED_ORIGINS", allowed_origins=origin)


@pytest.mark.parametrize("network", ["localhost", "10.0.0.0/33", "1.2.3", "*"])
def test_a_proxy_that_cannot_be(network: str) -> None:
    refused("MOBILE_TRUSTED_PROXIES", trusted_proxies=network)


@pytest.mark.parametrize("device", ["a:b", "a/b", "x" * 121, "tel\x07", "\u200e"])
def test_a_device_that_cannot_be(device: str) -> None:
    refused("MOBILE_ALLOWED_DEVICES", allowed_devices=device)
    refused("MOBILE_HOME_DEVICE", home_device=device)


def test_an_address_is_no_home_device() -> None:
    refused("MOBILE_HOME_DEVICE", home_device="mobile:")


@pytest.mark.parametrize("item", ["=", "==", "tel=", "tel==", "tel= ", "tel= =", "geheim-token="])
def test_an_empty_token_part_is_refused(item: str) -> None:
    assert "geheim" not in refused("MOBILE_EXTRA_TOKENS", extra_tokens=f"good,{item}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("extra_tokens", "geheim/und+lang=x"),
        ("extra_tokens", "geheim:mehr=x"),
        ("extra_tokens", "geheim" * 30 + "=x"),
        ("extra_tokens", "=geheim"),
        ("public_url", "ftp://geheim:geheim@host"),
        ("public_url", "https://user:geheim@host"),
        ("allowed_origins", "https://user:geheim@host"),
    ],
)
def test_no_error_repeats_a_secret(name: str, value: str) -> None:
    assert "geheim" not in refused(f"MOBILE_{name.upper()}", **{name: value})


def test_without_a_token_it_says_how_to_make_one() -> None:
    for environ in ({}, {"MOBILE_TOKEN": "  "}, {"MOBILE_DELIVER_TOKENS": "only-deliver"}):
        with pytest.raises(SettingsError, match="MOBILE_TOKEN.*make one with"):
            Settings.from_sources(environ)
    Settings.from_sources({"MOBILE_EXTRA_TOKENS": "tel=x"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "agent.example.com"])
def test_a_short_token_stays_on_loopback(host: str) -> None:
    exact = "x" * 16
    short = "geheim-kurz-15!"
    for name in ("TOKEN", "EXTRA_TOKENS", "DELIVER_TOKENS"):
        environ = {"MOBILE_HOST": host, "MOBILE_TOKEN": exact, f"MOBILE_{name}": short}
        with pytest.raises(SettingsError) as caught:
            Settings.from_sources(environ)
        assert f"MOBILE_{name}" in str(caught.value) and "geheim" not in str(caught.value)
        assert "make one with" in str(caught.value)
        Settings.from_sources({**environ, "MOBILE_HOST": "localhost"})
    Settings.from_sources({"MOBILE_HOST": host, "MOBILE_TOKEN": exact})
    with pytest.raises(SettingsError):
        Settings.from_sources({"MOBILE_HOST": host, "MOBILE_EXTRA_TOKENS": f"tel={short}"})


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("[::1]", True), ("::1%lo", True),
        ("::ffff:127.0.0.1", True), ("localhost", True), ("LOCALHOST.", True),
        ("app.localhost", True), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False),
        ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("", False),
        ("127.1", False), ("2130706433", False),
    ],
)  # fmt: skip
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback_host(host) is loopback


def test_a_host_in_brackets() -> None:
    assert read(host="[::1]").host == "::1"


def test_addresses_are_normalised() -> None:
    assert ip_address("::ffff:10.0.0.1") == ipaddress.ip_address("10.0.0.1")
    assert ip_address(" fe80::1%eth0 ") == ipaddress.ip_address("fe80::1")
    assert ip_address("host") is None


def test_secrets_are_not_shown() -> None:
    settings = read(extra_tokens="tel=geheim-1", deliver_tokens="geheim-2")
    assert "geheim" not in repr(settings) and TOKEN not in repr(settings)


NAMES = (
    "host", "port", "token", "extra_tokens", "allowed_devices", "deliver_tokens",
    "allowed_origins", "public_url", "trusted_proxies", "loopback_deliver", "home_device",
    "prompt_ttl", "avatar_url",
)  # fmt: skip


@given(st.sampled_from(NAMES), st.text(max_size=60) | st.integers() | st.lists(st.text()))
def test_no_value_breaks_the_reading(name: str, value: object) -> None:
    for environ, extra in (
        ({"MOBILE_TOKEN": TOKEN} | {f"MOBILE_{name.upper()}": str(value)}, {}),
        ({"MOBILE_TOKEN": TOKEN}, {name: value}),
    ):
        try:
            Settings.from_sources(environ, extra)
        except SettingsError as error:
            assert name.upper() in str(error) or name in str(error)


def test_every_setting_may_stand_in_the_config_file() -> None:
    """Hermes hands over the keys that the plugin names, and no other."""
    assert set(SETTING_NAMES) == {field.name for field in dataclasses.fields(Settings)}
