"""Pages of our own origin may ask; pages of others, and rebound names, may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_client_proxy.contract import ProxyError
from hermes_client_proxy.guard import check_json, check_origin

PUBLIC = "https://notes.example.org"


def headers(**values: str) -> list[tuple[bytes, bytes]]:
    return [(k.replace("_", "-").encode(), v.encode()) for k, v in values.items()]


def allowed(public: str | None = None, scheme: str = "http", **values: str) -> bool:
    try:
        check_origin(headers(**values), scheme, public)
    except ProxyError as error:
        assert (error.code, error.status) == ("hermes_client_forbidden", 403)
        return False
    return True


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8750", "127.0.0.1:80", "[::1]:8750", "192.168.1.5:8750", "10.1.1.1"],
)
def test_loopback_and_address_hosts_pass(host: str) -> None:
    assert allowed(host=host)
    assert allowed(host=host, origin=f"http://{host}", sec_fetch_site="same-origin")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "notes.example.org",
        "",
        "localhost@evil.example",
        "127.1",
        "0x7f000001",
    ],
)
def test_other_hosts_are_refused_and_the_setting_is_named(host: str) -> None:
    with pytest.raises(ProxyError, match="MNOTE_WEB_PUBLIC_ORIGIN"):
        check_origin(headers(host=host), "http", None)


def test_no_host_and_two_hosts_are_refused() -> None:
    assert not allowed()
    with pytest.raises(ProxyError):
        check_origin([(b"host", b"localhost"), (b"host", b"evil.example")], "http", None)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", "", "strange"])
def test_other_sites_are_refused(site: str) -> None:
    assert not allowed(host="localhost", sec_fetch_site=site)


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_own_pages_and_typed_addresses_pass(site: str) -> None:
    assert allowed(host="localhost", sec_fetch_site=site)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "https://localhost:8750",
        "http://localhost:8751",
        "http://localhost",
        "http://localhost:8750/",
        "http://localhost:8750@evil.example",
        "file://",
        "",
    ],
)
def test_foreign_origins_are_refused(origin: str) -> None:
    assert not allowed(host="localhost:8750", origin=origin)


def test_two_origins_are_refused() -> None:
    with pytest.raises(ProxyError):
        check_origin(
            [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"null")],
            "http",
            None,
        )


def test_the_default_port_may_be_left_out() -> None:
    assert allowed(host="localhost:80", origin="http://localhost")
    assert allowed(scheme="https", host="localhost", origin="https://localhost:443")


def test_behind_a_proxy_the_public_origin_counts() -> None:
    host = "notes.example.org"
    assert allowed(PUBLIC, host=host, origin=PUBLIC, sec_fetch_site="same-origin")
    assert allowed(PUBLIC, host=host)
    assert allowed(PUBLIC, host="127.0.0.1:8750", origin=PUBLIC)
    assert not allowed(PUBLIC, host=host, origin="http://notes.example.org")
    assert not allowed(PUBLIC, host="other.example.org", origin=PUBLIC)
    assert not allowed(PUBLIC, host=host, origin="https://other.example.org")


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_header_is_judged(host: str, origin: str) -> None:
    raw = [(b"host", host.encode("utf-8")), (b"origin", origin.encode("utf-8"))]
    try:
        check_origin(raw, "http", PUBLIC)
    except ProxyError:
        return
    assert origin.strip().lower() in (PUBLIC, f"http://{host.strip().lower()}", PUBLIC + ":443")


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'],
)
def test_json_is_taken(kind: str) -> None:
    check_json(headers(content_type=kind))


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "",
        "json",
        "application/json;charset=latin1",
    ],
)
def test_what_a_form_could_send_is_refused(kind: str) -> None:
    with pytest.raises(ProxyError) as refused:
        check_json(headers(content_type=kind))

    assert refused.value.status == 415


def test_no_content_type_is_refused() -> None:
    with pytest.raises(ProxyError):
        check_json([])
