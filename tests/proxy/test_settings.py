"""Settings come from the environment, are checked once, and are all in one table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hermes_client_proxy import Settings, SettingsError
from hermes_client_proxy.guard import check_origin
from hermes_client_proxy.settings import TABLE

URL = "MNOTE_WEB_HERMES_UPSTREAM_URL"


def test_nothing_is_needed() -> None:
    settings = Settings.from_env({URL: ""})

    assert settings.missing == URL
    assert settings.heartbeat == 15 and settings.max_body == 1_048_576


def test_every_field_has_one_variable() -> None:
    fields = [field.name for field in dataclasses.fields(Settings)]

    assert sorted(row.field for row in TABLE) == sorted(fields)
    assert len({row.variable for row in TABLE}) == len(TABLE)


def test_the_documents_table_is_this_table() -> None:
    text = Path(__file__).parents[2].joinpath("docs/proxy-settings.md").read_text()

    for row in TABLE:
        default = getattr(Settings(), row.field)
        shown = ",".join(default) if isinstance(default, tuple) else default
        if isinstance(shown, float):
            shown = int(shown) if shown == int(shown) else shown
        cell = "–" if shown in (None, "") else f"`{shown}`"
        assert f"| `{row.variable}` | {cell} | {row.meaning} |" in text


def test_values_are_read() -> None:
    settings = Settings.from_env(
        {
            URL: " http://127.0.0.1:8642/ ",
            "MNOTE_WEB_HERMES_API_KEY": "key-0123456789abcdef",
            "MNOTE_WEB_TRUSTED_PROXIES": "127.0.0.1, 10.0.0.0/8",
            "MNOTE_WEB_AUTH_HEADER": "X-Forwarded-User",
            "MNOTE_WEB_HERMES_MAX_RUNS": "3",
            "MNOTE_WEB_PUBLIC_ORIGIN": "https://Notes.example.org/",
        }
    )

    assert settings.upstream_url == "http://127.0.0.1:8642"
    assert settings.auth_header == "x-forwarded-user" and settings.max_runs == 3
    assert settings.public_origin == "https://notes.example.org"
    assert "key-0123" not in repr(settings)


@pytest.mark.parametrize(
    ("written", "network"),
    [
        ("10.0.0.7", "10.0.0.7/32"),
        ("10.0.0.7/8", "10.0.0.0/8"),
        ("::ffff:10.0.0.7", "10.0.0.7/32"),
        ("::ffff:10.0.0.7/104", "10.0.0.0/8"),
        ("fe80::1%eth0", "fe80::1/128"),
        ("::/0", "::/0"),
    ],
)
def test_a_trusted_proxy_is_known_however_its_address_is_written(
    written: str, network: str
) -> None:
    settings = Settings.from_env({"MNOTE_WEB_TRUSTED_PROXIES": written})
    assert [str(each) for each in settings.trusted_proxies] == [network]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (URL, "127.0.0.1:8642"),
        (URL, "ftp://x"),
        (URL, "http://user:pw@127.0.0.1"),
        (URL, "http://127.0.0.1?x=1"),
        (URL, "http://127.0.0.1:99999"),
        (URL, "http://"),
        (URL, "http://127.0.0.1:8642#"),
        (URL, "http://127.0.0.1:8642/a b"),
        (URL, "http://127.0.0.1:8642\\x"),
        ("MNOTE_WEB_HERMES_API_KEY", "two words"),
        ("MNOTE_WEB_HERMES_API_KEY", "schlüssel"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://x/path"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "notes.example.org"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://*.example.org"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://a.example,https://b.example"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://a.example https://b.example"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://user@notes.example.org"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://notes.example.org?"),
        ("MNOTE_WEB_PUBLIC_ORIGIN", "https://notes.example.org:0"),
        ("MNOTE_WEB_AUTH", "none"),
        ("MNOTE_WEB_SESSION_SECRET", "short"),
        ("MNOTE_WEB_TRUSTED_PROXIES", "everyone"),
        ("MNOTE_WEB_AUTH_HEADER", "X User"),
        ("MNOTE_WEB_JWT_ALGORITHMS", "HS256"),
        ("MNOTE_WEB_JWT_ALGORITHMS", "none"),
        ("MNOTE_WEB_HERMES_MAX_RUNS", "many"),
        ("MNOTE_WEB_HERMES_MAX_RUNS", "0"),
        ("MNOTE_WEB_HERMES_HEARTBEAT_SECONDS", "-1"),
        ("MNOTE_WEB_HERMES_HEARTBEAT_SECONDS", "nan"),
        ("MNOTE_WEB_HERMES_SILENCE_SECONDS", "inf"),
        ("MNOTE_WEB_HERMES_TOOLS_FILE", "/no/such/file"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        Settings.from_env({name: value})


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("https://Notes.example.org:443/", "https://notes.example.org"),
        ("https://notes.example.org:8443", "https://notes.example.org:8443"),
        ("https://заметки.рф", "https://xn--80akegjk7b.xn--p1ai"),
        ("http://[::1]:8750", "http://[::1]:8750"),
    ],
)
def test_the_public_origin_is_kept_as_browsers_send_it(written: str, seen: str) -> None:
    assert Settings(public_origin=written).public_origin == seen
    host = seen.partition("://")[2].encode()
    check_origin([(b"host", host), (b"origin", seen.encode())], "http", seen)


def test_an_address_of_hermes_is_kept_as_it_is_asked() -> None:
    for written, asked in (
        ("http://127.0.0.1:8642/p/blue/", "http://127.0.0.1:8642/p/blue"),
        ("HTTP://[::1]:8642", "http://[::1]:8642"),
        ("http://bücher.example", "http://xn--bcher-kva.example"),
    ):
        assert Settings(upstream_url=written).upstream_url == asked


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"name": "x"}]', "[", '[{"nam": "x"}]'])
def test_a_tools_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tools.json"
    file.write_text(text)
    with pytest.raises(SettingsError, match="MNOTE_WEB_HERMES_TOOLS_FILE"):
        Settings.from_env({"MNOTE_WEB_HERMES_TOOLS_FILE": str(file)})


def test_a_tools_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    entry = {"name": "mnote.page.get", "scope": "page.read", "schemaVersion": "v1"}
    file.write_text(json.dumps([entry, {**entry, "upstream": "other"}]))

    tools = Settings.from_env({"MNOTE_WEB_HERMES_TOOLS_FILE": str(file)}).tools

    assert [tool.upstream_name for tool in tools] == ["mnote_page_get", "other"]
