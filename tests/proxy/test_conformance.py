"""The browser door's conformance kit: the real proxy passes, and every broken one is named."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree import ElementTree

import aiohttp
import pytest
from starlette.types import Receive, Scope, Send

from hermes_client_proxy import Settings, create_app
from hermes_client_proxy.conformance import asking, report, running
from hermes_client_proxy.conformance.browser import Page, vectors
from hermes_client_proxy.conformance.command import headers_of, origin_of, sign_in
from hermes_client_proxy.conformance.suite import FAILED, NOT_RUN, Result, Suite, summary
from tests.proxy.broken_browser_doors import FAULTS, Headers, Layer
from tests.proxy.running import PATIENCE, serving, user_of
from tests.proxy.scripted_hermes import ScriptedHermes
from tests.proxy.small_hermes import KEY

ROOT = Path(__file__).resolve().parents[2]
USER = {"X-Test-User": "ann"}


@asynccontextmanager
async def page(
    layer: type[Layer] | None = None, *, replayable: bool = False, patience: float = PATIENCE
) -> AsyncIterator[Page]:
    """A signed-in page of the real proxy, perhaps behind a layer, with a Hermes that answers."""
    async with ScriptedHermes(replayable=replayable) as hermes:
        settings = Settings(upstream_url=hermes.url, api_key=KEY, poll=0.05)
        app = create_app(settings, authenticate=user_of)
        async with (
            serving(app if layer is None else layer(app)) as url,
            aiohttp.ClientSession() as client,
        ):
            try:
                yield Page(url, client, headers=USER, patience=patience)
            finally:
                await app.aclose()


async def conform(at: Page, *, only: Collection[str] = (), quick: bool = True) -> list[Result]:
    """What the kit finds."""
    return await Suite(only=only, quick=quick).run(at, limit=600.0)


def failures(results: list[Result]) -> dict[str, str]:
    return {r.check.title: r.reason for r in results if r.status == FAILED}


@pytest.mark.parametrize("replayable", [False, True], ids=["basic", "replayable"])
async def test_real_door_passes_every_check(replayable: bool) -> None:
    """On both run interfaces; the slow heartbeat on the first."""
    async with page(replayable=replayable) as at:
        results = await conform(at, quick=replayable)

    assert failures(results) == {}
    assert summary(results)["passed"] >= 145


async def test_a_layer_without_a_fault_changes_nothing() -> None:
    """What the broken doors are made with is itself no fault."""
    async with page(Layer) as at:
        results = await conform(at, only={title for _, title in FAULTS})

    assert failures(results) == {}


@pytest.mark.parametrize(("fault", "title"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
async def test_kit_names_the_fault(fault: type[Layer], title: str) -> None:
    """A door with one fault fails the check of that fault, with a reason."""
    async with page(fault, patience=5.0) as at:
        results = await conform(at, only=[title])

    named = failures(results)
    assert list(named) == [title]
    assert len(named[title]) > 15


async def test_one_fault_that_every_check_meets_is_told_as_one() -> None:
    """Many failures have one line that says what they have in common."""
    async with page(HeadersWithoutTrace) as at:
        results = await conform(at, only=["answers: *"])

    failed = [result for result in results if result.status == FAILED]
    ((why, number), *_) = report.shared_reasons(failed)
    assert number > 10 and why == "X-Request-Id is missing"


class HeadersWithoutTrace(Layer):
    def answer(self, scope: Scope, status: int, headers: Headers, body: bytes) -> tuple[int, bytes]:
        headers[:] = [(n, v) for n, v in headers if n != b"x-request-id"]
        return status, body


def test_faults_are_many() -> None:
    """Every part of the contract has a door that breaks it."""
    assert len(FAULTS) >= 25
    assert {title.partition(":")[0] for _, title in FAULTS} == {
        "sign-in", "same origin", "answers", "requests", "runs",
    }  # fmt: skip


def test_headings_and_names() -> None:
    """Titles are unique, and what a failure refers to is there."""
    checks = Suite().checks
    assert len({check.title for check in checks}) == len(checks)
    text = (ROOT / "docs" / "client-proxy.md").read_text(encoding="utf-8")
    headings = {
        line.lstrip("# ").lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert {check.heading for check in checks} <= headings


def test_what_is_not_run_is_said() -> None:
    """Without an agent, quickly, or with one document only."""
    left = {check.title: check.missing for check in Suite(agent=False, one_document=True).checks}

    assert left["runs: abort, and its end on the stream"] == "needs Hermes with the scripted agent"
    assert left["runs: a run that nobody knows"] is None
    assert "--document" in str(left["session ids: 'mnote_a_b' is of a"])
    quick = {check.title: check.missing for check in Suite(quick=True).checks}
    assert "--quick" in str(quick["runs: heartbeats go on"])


def test_packaged_vectors_are_the_contract() -> None:
    """One truth: the kit reads the files of contracts/client-proxy-v1."""
    for file in sorted((ROOT / "contracts" / "client-proxy-v1" / "vectors").glob("*.json")):
        assert vectors(file.name) == json.loads(file.read_text(encoding="utf-8"))
    assert (ROOT / "proxy" / "contract_files").resolve() == (ROOT / "contracts" / "client-proxy-v1")


def test_every_vector_is_a_check() -> None:
    """No request and no session id of the contract is left out."""
    found = asking.rows()
    bad = vectors("requests.json")["bad"]
    assert sum(" is taken" not in name for name, _, _ in found["requests"]) == len(bad)
    assert len({name for name, _, _ in running.ROWS}) == len(running.ROWS)


async def test_reports(tmp_path: Path) -> None:
    """JUnit and the words of the report; odd characters are still XML."""
    async with page() as at:
        results = await conform(at, only=["answers: models", "runs: heartbeats go on"])
    spoiled = dataclasses.replace(results[0], status=FAILED, reason="got \x00 <b>")

    report.write_junit(tmp_path / "j.xml", at.url, [spoiled, *results[1:]], 1.0)

    tree = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert (tree.get("failures"), tree.get("skipped")) == ("1", "1")
    assert [r.status for r in results][-1] == NOT_RUN


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:0", "http://u:p@h", "h"])
def test_addresses_that_cannot_be(url: str) -> None:
    """Told before anything is sent."""
    with pytest.raises(ValueError, match="must look like"):
        origin_of(url)


def test_headers_of_the_command_line() -> None:
    """NAME: VALUE."""
    assert headers_of(["Authorization: Bearer a:b"]) == {"Authorization": "Bearer a:b"}
    with pytest.raises(ValueError, match="NAME: VALUE"):
        headers_of(["no colon"])


async def test_command_line_with_a_sign_in_link(tmp_path: Path) -> None:
    """`serve` prints a link; the kit signs in with it. The second time it says why it cannot."""
    async with ScriptedHermes() as hermes, _serve(hermes.url) as (url, link):
        first = await _command(
            url, "--login", link, "--only", "runs: a run from", "--only", "sign-in",
            "--json", str(tmp_path / "r.json"),
        )  # fmt: skip
        second = await _command(url, "--login", link)
        nobody = await _command(url)

    assert first[0] == 0, first
    assert "All 12 checks passed" in first[1]
    assert json.loads((tmp_path / "r.json").read_text())["summary"]["failed"] == 0
    assert (second[0], "take a new one" in second[1]) == (2, True)
    assert (nobody[0], "--cookie" in nobody[1]) == (2, True)


@asynccontextmanager
async def _serve(upstream: str) -> AsyncIterator[tuple[str, str]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_client_proxy", "serve", "--port", "0",
        stdout=subprocess.PIPE, cwd=ROOT,
        env={
            "PYTHONPATH": str(ROOT / "proxy"),
            "MNOTE_WEB_HERMES_UPSTREAM_URL": upstream,
            "MNOTE_WEB_HERMES_API_KEY": KEY,
        },
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = b""
        async with asyncio.timeout(PATIENCE):
            while b"login?token=" not in said:
                line = await process.stdout.readline()
                assert line, said
                said += line
        found = re.search(rb"(http://[^/\s]+)(/\S*login\?token=\S+)", said)
        assert found is not None
        yield found[1].decode(), (found[1] + found[2]).decode()
    finally:
        process.terminate()
        await process.wait()
        transport = process._transport  # type: ignore[attr-defined]
        transport.close()


@pytest.mark.parametrize(
    ("status", "headers", "told"),
    [
        (200, {"Content-Type": "text/html"}, "there is no browser door"),
        (404, {}, "there is no browser door"),
        (302, {"Location": "https://a.example/sign-in"}, "sends on to https://a.example/sign-in"),
    ],
    ids=["a web page", "no such page", "a redirect"],
)
async def test_what_is_no_browser_door(
    tmp_path: Path, status: int, headers: dict[str, str], told: str
) -> None:
    """Status 2 with its reason in every report."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": b"<p>hello</p>"})

    junit = tmp_path / "j.xml"
    async with serving(app) as url:
        done, out, err = await _command(
            url, "--cookie", "a=b", "--json", "-", "--junit", str(junit)
        )

    assert done == 2
    report = json.loads(out)
    assert told in report["problem"] and "Nothing can be checked" in err
    errors = list(ElementTree.parse(junit).iter("error"))
    assert [error.get("message") for error in errors] == [report["problem"]]


async def _command(url: str, *arguments: str) -> tuple[int, str, str]:
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_client_proxy", "conform", url, *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    out, err = await done.communicate()
    assert done.returncode is not None
    return done.returncode, out.decode(), err.decode()


async def test_sign_in_is_through_the_address_under_examination() -> None:
    """The cookie has the name and the flags that a browser of that address gets."""
    asked: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(f"{scope['path']}?{scope['query_string'].decode()}")
        cookie = (b"set-cookie", b"session_of_this_port=value; HttpOnly")
        await send({"type": "http.response.start", "status": 303, "headers": [cookie]})
        await send({"type": "http.response.body"})

    async with serving(app) as url, aiohttp.ClientSession() as client:
        found, line = await sign_in(client, "http://127.0.0.1:1/login?token=t", url)

    assert asked == ["/login?token=t"]
    assert (found, line) == ("session_of_this_port=value", "session_of_this_port=value; HttpOnly")


async def test_sign_in_link_that_works_only_where_it_is_written() -> None:
    """Where the address does not pass the sign-in on, the link itself does."""

    async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body"})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        cookie = (b"set-cookie", b"session=value")
        await send({"type": "http.response.start", "status": 303, "headers": [cookie]})
        await send({"type": "http.response.body"})

    async with serving(app) as own, serving(nothing) as url, aiohttp.ClientSession() as client:
        assert (await sign_in(client, f"{own}/login?token=t", url))[0] == "session=value"


async def test_sign_in_link_that_is_none() -> None:
    """A dead address, or one that gives no cookie."""
    async with aiohttp.ClientSession() as client:
        with pytest.raises(ValueError, match="cannot be opened"):
            await sign_in(client, "http://127.0.0.1:1/login")
