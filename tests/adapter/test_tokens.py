"""Who may come in, under which device id, from which page, and who may deliver."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_mobile.protocol import ProtocolError
from hermes_mobile.settings import Settings
from hermes_mobile.tokens import (
    FREE_FAILURES,
    MAX_FAILING_ADDRESSES,
    MAX_FAILURE_DELAY,
    Failures,
    Grant,
    Peer,
    Refused,
    TokenBook,
    check_origin,
    origin_allowed,
)

# --------------------------------------------------------------------------------------------------
# Tokens


def expected(settings: Settings, secret: str, token: str, device: str) -> str | tuple[bool, bool]:
    """The rule of the reference in its plainest form: a code, or (may chat, may deliver)."""
    unbound = {t for d, t in settings.extra_tokens if d is None} | {settings.token} - {""}
    bound = {(d, t) for d, t in settings.extra_tokens if d is not None}
    mine = [d for d, t in settings.extra_tokens if d is not None and t == token]
    deliver = token in settings.deliver_tokens
    internal = bool(secret) and token == secret
    if not token or not (token in unbound or mine or deliver or internal):
        return "auth_failed"
    if internal:
        return (False, True)
    name = device or (mine[0] if mine and token not in unbound else "")
    if name and name not in mine:
        if mine and token not in unbound:
            return "forbidden"
        if name in {d for d, _ in bound}:
            return "forbidden"
    if settings.allowed_devices and name not in settings.allowed_devices:
        return "auth_failed"
    return (token in unbound or bool(mine), deliver)


TOKENS = st.sampled_from(["t1", "t2", "t3", "t4", "über", ""])
DEVICES = st.sampled_from(["tel", "tab", "pc", ""])


@given(
    main=TOKENS,
    extra=st.lists(
        st.tuples(DEVICES.map(lambda d: d or None), TOKENS.filter(bool)), max_size=4
    ).map(tuple),
    deliver=st.lists(TOKENS.filter(bool), max_size=2).map(tuple),
    allowed=st.frozensets(DEVICES.filter(bool), max_size=2),
    secret=st.sampled_from(["", "secret", "t1"]),
    token=TOKENS | st.just("secret"),
    device=DEVICES,
)
def test_every_combination_against_the_plain_rule(
    main: str,
    extra: tuple[tuple[str | None, str], ...],
    deliver: tuple[str, ...],
    allowed: frozenset[str],
    secret: str,
    token: str,
    device: str,
) -> None:
    settings = Settings(
        token=main, extra_tokens=extra, deliver_tokens=deliver, allowed_devices=allowed
    )
    rule = expected(settings, secret, token, device)
    try:
        grant = TokenBook(settings, secret).admit(token, device)
    except ProtocolError as error:
        assert error.fatal
        assert error.code == rule
        assert token == "" or token not in error.message.split()
    else:
        assert (grant.chat, grant.deliver) == rule
        assert grant.device in {device, *(d for d, t in extra if t == token and d)}


@pytest.mark.parametrize("token", [None, "", " ", "wrong", "TOKEN", "token ", "tokentoken"])
def test_a_wrong_token_is_refused_before_the_device(token: str | None) -> None:
    book = TokenBook(Settings(token="token", extra_tokens=(("tel", "bound"),)))
    for device in ("tel", "", None, "free"):
        with pytest.raises(ProtocolError) as caught:
            book.admit(token, device)
        assert caught.value.code == "auth_failed"


def test_the_empty_secret_and_the_empty_main_token_open_nothing() -> None:
    with pytest.raises(ProtocolError):
        TokenBook(Settings(extra_tokens=((None, "x"),))).admit("", "tel")


def test_a_bound_token_names_its_device() -> None:
    book = TokenBook(Settings(extra_tokens=(("tel", "b"),)))
    assert book.admit("b", None).device == "tel"
    assert book.admit("b", "tel").device == "tel"


def test_nothing_shows_a_token() -> None:
    settings = Settings(
        token="geheim-1", extra_tokens=(("tel", "geheim-2"),), deliver_tokens=("g3",)
    )
    book = TokenBook(settings, "geheim-4")
    grant = book.admit("geheim-1", "pc")
    for shown in (repr(settings), repr(grant), str(grant), repr(book)):
        assert "geheim" not in shown and "g3" not in shown
    assert grant.fingerprint == sha256(b"geheim-1").hexdigest()[:8]
    assert isinstance(grant, Grant)


# --------------------------------------------------------------------------------------------------
# Origins


LOCAL = Settings(token="t")
PUBLIC = Settings(
    token="t",
    public_url="https://agent.example.com:8443/path",
    allowed_origins=frozenset({"https://app.example.com", "http://localhost:3000"}),
)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        # The page this door serves, whatever scheme and port.
        ("http://127.0.0.1:8787", "127.0.0.1:8787", True),
        ("http://127.0.0.1:3000", "127.0.0.1:8787", True),
        ("https://127.0.0.1", "127.0.0.1:8787", True),
        ("http://localhost:3000", "localhost:8787", True),
        ("http://LOCALHOST:3000", "localhost:8787", True),
        ("http://localhost.:3000", "localhost:8787", True),
        ("http://[::1]:3000", "[::1]:8787", True),
        ("http://192.168.1.5:3000", "192.168.1.5:8787", True),
        ("http://[fe80::1]:3000", "[fe80::1]:8787", True),
        ("capacitor://localhost", "localhost", True),
        # A name that an attacker may have pointed at this machine.
        ("http://evil.example", "evil.example", False),
        ("http://evil.example:8787", "evil.example:8787", False),
        ("http://127.0.0.1.evil.example", "127.0.0.1.evil.example:8787", False),
        ("http://localhost.evil.example", "localhost.evil.example", False),
        ("http://notlocalhost", "notlocalhost", False),
        ("http://agent.example.com", "agent.example.com", False),
        # Another page reaches this machine.
        ("http://evil.example", "127.0.0.1:8787", False),
        ("http://127.0.0.1", "localhost:8787", False),
        ("http://192.168.1.6", "192.168.1.5:8787", False),
        # No origin at all, in its many forms.
        ("null", "127.0.0.1:8787", False),
        ("", "127.0.0.1:8787", False),
        ("127.0.0.1:8787", "127.0.0.1:8787", False),
        ("//127.0.0.1", "127.0.0.1", False),
        ("http://", "127.0.0.1", False),
        ("file://", "127.0.0.1", False),
        # Tricks.
        ("http://127.0.0.1@evil.example", "127.0.0.1", False),
        ("http://evil.example@127.0.0.1", "127.0.0.1", False),
        ("http://evil.example\\@127.0.0.1", "127.0.0.1", False),
        ("http://127.0.0.1:80:90", "127.0.0.1", False),
        ("http://127.0.0.1:port", "127.0.0.1", False),
        ("http://127.0.0.1/path", "127.0.0.1", False),
        ("http://127.0.0.1?x", "127.0.0.1", False),
        ("http://127.0.0.1#x", "127.0.0.1", False),
        ("http://127.0.0.1, http://evil.example", "127.0.0.1", False),
        ("http://127.0.0.1 ", "127.0.0.1 evil", False),
        ("http://[::1", "[::1", False),
        ("http://[::1].evil.example", "[::1]", False),
        ("http://127.0.0.1", "127.0.0.1@evil.example", False),
        ("http://127.0.0.1", None, False),
    ],
)
def test_which_pages_may_connect(origin: str, host: str | None, allowed: bool) -> None:
    headers = {"origin": [origin], **({"host": [host]} if host is not None else {})}
    if allowed:
        check_origin(headers, LOCAL)
    else:
        with pytest.raises(Refused) as caught:
            check_origin(headers, LOCAL)
        assert caught.value.status == 403
        assert "MOBILE_ALLOWED_ORIGINS" in caught.value.message


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("https://app.example.com", "agent.example.com", True),
        ("HTTPS://APP.EXAMPLE.COM", "whatever", True),
        ("https://agent.example.com", "agent.example.com", True),
        ("https://agent.example.com:8443", "AGENT.example.com:8443", True),
        ("https://agent.example.com.", "agent.example.com", True),
        ("http://agent.example.com", "agent.example.com", True),
        ("https://agent.example.com", "127.0.0.1:8787", False),
        ("http://app.example.com", "agent.example.com", False),
        ("https://app.example.com:444", "agent.example.com", False),
        ("https://app.example.com.evil.example", "agent.example.com", False),
        ("https://agent.example.com.evil.example", "agent.example.com.evil.example", False),
        ("https://xagent.example.com", "xagent.example.com", False),
    ],
)
def test_which_pages_may_connect_in_public(origin: str, host: str, allowed: bool) -> None:
    headers = {"origin": [origin], "host": [host]}
    if allowed:
        check_origin(headers, PUBLIC)
    else:
        with pytest.raises(Refused):
            check_origin(headers, PUBLIC)


def test_several_origins_or_hosts_are_none() -> None:
    both = ["http://127.0.0.1", "http://127.0.0.1"]
    with pytest.raises(Refused):
        check_origin({"origin": both, "host": ["127.0.0.1"]}, LOCAL)
    with pytest.raises(Refused):
        check_origin({"origin": both[:1], "host": ["127.0.0.1", "127.0.0.1"]}, LOCAL)


def test_a_native_client_has_none() -> None:
    check_origin({"host": ["evil.example"]}, LOCAL)
    check_origin({}, PUBLIC)


@given(st.text(max_size=40), st.text(max_size=40) | st.none())
def test_no_text_breaks_the_rule(origin: str, host: str | None) -> None:
    origin_allowed(origin, host, PUBLIC)
    Peer.of(origin, {"host": [host or ""], "x-forwarded-for": [origin]}, PUBLIC)


# --------------------------------------------------------------------------------------------------
# The owner's own machine


def machine(
    remote: str = "127.0.0.1",
    settings: Settings = LOCAL,
    host: str | None = "127.0.0.1:8787",
) -> bool:
    headers = {"host": [host]} if host is not None else {}
    return Peer.of(remote, headers, settings).owner_machine


@pytest.mark.parametrize(
    "remote", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1", "::1%lo", "[::1]"]
)
@pytest.mark.parametrize("host", ["127.0.0.1:8787", "localhost", "[::1]:8787", "LOCALHOST.:1"])
def test_the_owners_own_process_may_deliver(remote: str, host: str) -> None:
    assert machine(remote, host=host)


@pytest.mark.parametrize(
    "remote", ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "::", "0.0.0.0", "", "localhost", "x"]
)
def test_another_machine_may_not(remote: str) -> None:
    assert not machine(remote)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(token="t", host="0.0.0.0"),
        Settings(token="t", host="::"),
        Settings(token="t", host="192.168.1.5"),
        Settings(token="t", public_url="https://agent.example.com"),
        Settings(token="t", trusted_proxies=(Settings.from_sources(
            {"MOBILE_TOKEN": "t", "MOBILE_TRUSTED_PROXIES": "127.0.0.1"}
        ).trusted_proxies)),
        Settings(token="t", loopback_deliver=False),
    ],
)  # fmt: skip
def test_not_where_the_door_may_be_anothers_face(settings: Settings) -> None:
    assert not machine(settings=settings)


@pytest.mark.parametrize(
    "host", [None, "", "agent.example.com", "127.0.0.1.evil.example", "192.168.1.5", "a@localhost"]
)
def test_not_under_another_name(host: str | None) -> None:
    assert not machine(host=host)


@pytest.mark.parametrize(
    "field",
    [
        "origin", "forwarded", "via", "x_forwarded_for", "x_forwarded_proto", "x_forwarded_ssl",
        "x_forwarded_prefix", "x_real_ip", "cf_connecting_ip", "cf_ray", "cf_warp_tag_id",
        "tailscale_user_login", "tailscale_funnel_request", "x_envoy_internal",
        "fly_request_id", "true_client_ip", "x_original_forwarded_for", "cdn_loop",
        "x_amzn_trace_id",
    ],
)  # fmt: skip
def test_not_with_a_forwarding_header_or_a_page(field: str) -> None:
    assert machine()
    name = field.replace("_", "-")
    for value in ("127.0.0.1", ""):
        headers = {"host": ["localhost"], name: [value]}
        assert not Peer.of("127.0.0.1", headers, LOCAL).owner_machine


# --------------------------------------------------------------------------------------------------
# The address behind trusted proxies


def address(remote: str, *forwarded: str, proxies: str = "127.0.0.1,10.0.0.0/8,fd00::/8") -> str:
    settings = Settings.from_sources({"MOBILE_TOKEN": "t", "MOBILE_TRUSTED_PROXIES": proxies})
    return Peer.of(remote, {"x-forwarded-for": list(forwarded)}, settings).address


@pytest.mark.parametrize(
    ("remote", "forwarded", "seen"),
    [
        ("127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("::ffff:127.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["1.1.1.1, 203.0.113.7"], "203.0.113.7"),  # the left one is the client's word
        ("127.0.0.1", ["1.1.1.1", "203.0.113.7"], "203.0.113.7"),
        ("127.0.0.1", ["203.0.113.7, 10.1.2.3"], "203.0.113.7"),  # two proxies of ours
        ("127.0.0.1", ["203.0.113.7:4711"], "203.0.113.7"),
        ("127.0.0.1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        ("127.0.0.1", ["2001:db8::7"], "2001:db8::7"),
        ("fd00::1", ["2001:db8::7"], "2001:db8::7"),
        ("127.0.0.1", ["203.0.113.7, nonsense"], "127.0.0.1"),
        ("127.0.0.1", ["nonsense"], "127.0.0.1"),
        ("127.0.0.1", [""], "127.0.0.1"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["10.0.0.1, 10.0.0.2"], "127.0.0.1"),
        # Someone who is no proxy of ours may write what they want.
        ("203.0.113.9", ["1.1.1.1"], "203.0.113.9"),
        ("203.0.113.9", ["127.0.0.1"], "203.0.113.9"),
    ],
)
def test_whose_address_counts(remote: str, forwarded: list[str], seen: str) -> None:
    assert address(remote, *forwarded) == seen


@pytest.mark.parametrize(
    ("proxies", "remote"),
    [
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.0/104", "10.200.0.1"),
        ("::ffff:198.51.100.0/120", "::ffff:198.51.100.4"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth1"),
        ("fe80::%eth0/64", "fe80::2"),
    ],
)
def test_a_proxy_is_known_however_its_address_is_written(proxies: str, remote: str) -> None:
    assert address(remote, "203.0.113.7", proxies=proxies) == "203.0.113.7"
    assert address("2001:db8::9", "203.0.113.7", proxies=proxies) == "2001:db8::9"


def test_without_trusted_proxies_the_header_is_nothing() -> None:
    assert Peer.of("127.0.0.1", {"x-forwarded-for": ["1.1.1.1"]}, LOCAL).address == "127.0.0.1"


# --------------------------------------------------------------------------------------------------
# Guessing


def test_guessing_gets_slow() -> None:
    failures = Failures()
    delays = [failures.delay("1.1.1.1", second / 10) for second in range(60)]
    assert delays[:FREE_FAILURES] == [0.0] * FREE_FAILURES
    assert delays[FREE_FAILURES] > 0
    assert delays == sorted(delays)
    assert delays[-1] == MAX_FAILURE_DELAY == 5.0
    assert failures.delay("2.2.2.2", 6.0) == 0.0


def test_a_minute_later_it_is_forgotten() -> None:
    failures = Failures()
    for _ in range(FREE_FAILURES + 5):
        failures.delay("1.1.1.1", 0.0)
    assert failures.delay("1.1.1.1", 59.9) > 0
    assert failures.delay("1.1.1.1", 120.0) == 0.0


def test_one_who_never_stops_stays_slow() -> None:
    failures = Failures()
    delays = [failures.delay("1.1.1.1", float(second)) for second in range(600)]
    assert min(delays[100:]) == MAX_FAILURE_DELAY


def test_the_addresses_of_one_ipv6_network_count_as_one() -> None:
    failures = Failures()
    delays = [failures.delay(f"2001:db8::{n:x}", 0.0) for n in range(FREE_FAILURES + 1)]
    assert delays[-1] > 0
    assert failures.delay("2001:db8:0:1::1", 0.0) == 0.0


def test_the_memory_of_failures_is_bounded() -> None:
    failures = Failures()
    for number in range(MAX_FAILING_ADDRESSES + 100):
        failures.delay(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 0.0)
    assert len(failures._by_address) == MAX_FAILING_ADDRESSES
    for _ in range(10_000):
        failures.delay("1.1.1.1", 0.0)
    assert len(failures._by_address["1.1.1.1"]) < 100
