"""``GET /metrics``: what the proxy has counted, in the text format that Prometheus reads.

Names, labels and their closed lists are described in ``docs/metrics.md``.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, core, generate_latest
from prometheus_client.registry import Collector
from starlette.types import Scope

from .contract import FORBIDDEN, STATUS, TERMINAL_EVENTS, UNAUTHORIZED, ProxyError
from .counters import OPERATIONS, ROUTES, Counters, Spread
from .headers import Headers, values
from .runs import Runs
from .settings import Settings

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
PREFIX = "hermes_client_proxy_"

_STATUSES = ("2xx", "3xx", "4xx", "5xx", "none")
_UPSTREAM = ("2xx", "3xx", "4xx", "5xx", "unreachable", "slow", "broken")

# Marks of a proxy: a request with any of them is not of a process on this machine.
_FORWARDING = (
    b"forwarded",
    b"x-forwarded",
    b"x-real-ip",
    b"x-client-ip",
    b"x-original-",
    b"x-cluster-client-ip",
    b"x-envoy-",
    b"x-amzn-",
    b"x-azure-",
    b"true-client-ip",
    b"client-ip",
    b"cf-",
    b"cdn-loop",
    b"fly-",
    b"fastly-",
    b"tailscale-",
    b"ngrok-",
    b"via",
    b"origin",
    b"sec-fetch-",
)


def check_reader(headers: Headers, scope: Scope, settings: Settings) -> None:
    """Refuses one who may not read the metrics.

    With MNOTE_WEB_METRICS_TOKEN only that token opens them, whoever asks. Without it a process of
    this machine may read them, on a proxy that nothing says others can reach.

    Raises ProxyError (unauthorized, forbidden).
    """
    headers = list(headers)
    if settings.metrics_token is not None:
        offered = values(headers, b"authorization")
        scheme, _, token = offered[0].partition(" ") if len(offered) == 1 else ("", "", "")
        known = hmac.compare_digest(_digest(token.strip()), _digest(settings.metrics_token))
        if scheme.lower() != "bearer" or not known:
            raise ProxyError(
                UNAUTHORIZED,
                "The metrics need Authorization: Bearer with MNOTE_WEB_METRICS_TOKEN.",
            )
    elif not _from_this_machine(headers, scope, settings):
        raise ProxyError(
            FORBIDDEN,
            "Without MNOTE_WEB_METRICS_TOKEN only a process of this machine may read the metrics, "
            "of a proxy that stands behind no other; set that token and send it as a Bearer token.",
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _from_this_machine(
    headers: list[tuple[bytes, bytes]], scope: Scope, settings: Settings
) -> bool:
    client = scope.get("client")
    hosts = values(headers, b"host")
    return (
        settings.public_origin is None
        and not settings.trusted_proxies
        and client is not None
        and _is_loopback(str(client[0]))
        and len(hosts) == 1
        and _is_loopback(hosts[0].rpartition(":")[0] or hosts[0])
        and not any(name.lower().startswith(_FORWARDING) for name, _ in headers)
    )


def _is_loopback(name: str) -> bool:
    name = name.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def exposition(runs: Runs, counted: Counters, version: str) -> bytes:
    """Everything in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(runs, counted, version))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collected(Collector):
    """The families of one scrape."""

    def __init__(self, runs: Runs, counted: Counters, version: str) -> None:
        self._runs = runs
        self._counted = counted
        self._version = version

    def collect(self) -> Iterator[core.Metric]:
        build = core.GaugeMetricFamily(
            PREFIX + "build_info",
            "The product and what it runs on; always 1.",
            labels=("version", "python"),
        )
        build.add_metric((self._version, platform.python_version()), 1)
        yield build
        yield from self._requests()
        yield from self._upstream()
        yield from self._of_runs()
        yield from self._streams()

    def _requests(self) -> Iterator[core.Metric]:
        counted = self._counted
        yield _pairs(
            "requests",
            "Requests of browsers, by route and class of status; none: gone before the answer.",
            ("route", "status"),
            ROUTES,
            _STATUSES,
            counted.requests,
        )
        yield _spreads(
            "request_seconds",
            "How long answers took; of event streams, until their head.",
            "route",
            counted.request_seconds,
        )
        yield _by("errors", "Errors by code of the contract.", "code", STATUS, counted.errors)
        yield _by(
            "refused",
            "Who was not let in, by what was missing: a page of this origin, a session, the right "
            "to the document, the sign-in link, the metrics token.",
            "reason",
            ("origin", "session", "document", "login", "metrics"),
            counted.refused,
        )
        bodies = {"in": counted.body_bytes_in, "out": counted.body_bytes_out}
        yield _by(
            "body_bytes", "Bytes of bodies, without event streams.", "direction", bodies, bodies
        )

    def _upstream(self) -> Iterator[core.Metric]:
        counted = self._counted
        yield _pairs(
            "upstream_requests",
            "Requests to Hermes by operation and outcome.",
            ("operation", "outcome"),
            OPERATIONS,
            _UPSTREAM,
            counted.upstream,
        )
        yield _spreads(
            "upstream_seconds",
            "How long Hermes took to answer, event streams excepted.",
            "operation",
            counted.upstream_seconds,
        )
        yield _gauge(
            "upstream_streams_open",
            "Event streams of Hermes being read.",
            counted.upstream_streams,
        )
        yield _by(
            "upstream_streams_lost",
            "Event streams of Hermes that were over before their run.",
            "how",
            ("refused", "none", "broke"),
            counted.upstream_lost,
        )

    def _of_runs(self) -> Iterator[core.Metric]:
        counted, runs = self._counted, self._runs
        yield _gauge("runs_active", "Runs under way.", runs.running)
        yield _by(
            "runs",
            "Runs: started here, found again upstream, or asked for again and not started anew.",
            "how",
            ("started", "attached", "repeated"),
            counted.runs,
        )
        yield _by(
            "runs_ended",
            "How runs ended.",
            "outcome",
            [kind.removeprefix("run.") for kind in sorted(TERMINAL_EVENTS)] + ["other"],
            counted.runs_ended,
        )
        yield _spread("run_seconds", "How long runs were followed.", counted.run_seconds)
        kept = list(runs.known())
        events = counted.events + sum(run.log.next for run in kept if not run.ended_at)
        yield _total("run_events", "Events taken into the logs of runs.", events)
        yield _gauge("runs_kept", "Runs whose events are kept for replay.", len(kept))
        yield _gauge("log_bytes", "Bytes of those events.", sum(run.log.size for run in kept))
        waiting = sum(len(run.approvals.open) for run in kept if not run.ended_at)
        yield _gauge("approvals_open", "Approvals that wait for an answer.", waiting)
        yield _by(
            "approvals",
            "Answers to approvals by choice; failed: Hermes did not take it.",
            "choice",
            ("once", "session", "always", "deny", "failed"),
            counted.approvals,
        )

    def _streams(self) -> Iterator[core.Metric]:
        counted, runs = self._counted, self._runs
        yield _gauge("streams_open", "Event streams of browsers.", runs.streams)
        yield _by(
            "streams",
            "Event streams of browsers that are over; slow: cut off, it took nothing.",
            "how",
            ("ended", "left", "closing", "slow"),
            counted.streams,
        )
        yield _spread("stream_seconds", "How long they lasted.", counted.stream_seconds)
        sent = counted.stream_bytes + sum(reader.sent for reader in runs.readers)
        yield _total("stream_bytes", "Bytes of events sent to browsers.", sent)
        behind = max((reader.behind for reader in runs.readers), default=0)
        yield _gauge("stream_behind_events_max", "Events the slowest browser has not got.", behind)
        yield _by(
            "replays",
            "Browsers that came back with an event id: known, unknown (sent everything), or "
            "nothing left to send.",
            "outcome",
            ("hit", "miss", "ended"),
            counted.replays,
        )


def _gauge(name: str, text: str, value: float) -> core.Metric:
    return core.GaugeMetricFamily(PREFIX + name, text, value=value)


def _total(name: str, text: str, value: float) -> core.Metric:
    return core.CounterMetricFamily(PREFIX + name, text, value=value)


def _by(
    name: str, text: str, label: str, known: Iterable[str], counted: Mapping[str, float]
) -> core.Metric:
    family = core.CounterMetricFamily(PREFIX + name, text, labels=(label,))
    for value in known:
        family.add_metric((value,), counted.get(value, 0))
    return family


def _pairs(
    name: str,
    text: str,
    labels: tuple[str, str],
    first: Iterable[str],
    second: Iterable[str],
    counted: Mapping[tuple[str, str], float],
) -> core.Metric:
    family = core.CounterMetricFamily(PREFIX + name, text, labels=labels)
    seconds = list(second)
    for one in first:
        for two in seconds:
            family.add_metric((one, two), counted.get((one, two), 0))
    return family


def _buckets(spread: Spread) -> list[Any]:
    below = 0
    buckets: list[Any] = []
    for bound, count in zip([*map(str, spread.bounds), "+Inf"], spread.counts, strict=True):
        below += count
        buckets.append((bound, below))
    return buckets


def _spread(name: str, text: str, spread: Spread) -> core.Metric:
    return core.HistogramMetricFamily(
        PREFIX + name, text, buckets=_buckets(spread), sum_value=spread.sum
    )


def _spreads(name: str, text: str, label: str, spreads: Mapping[str, Spread]) -> core.Metric:
    family = core.HistogramMetricFamily(PREFIX + name, text, labels=(label,))
    for value, spread in spreads.items():
        family.add_metric((value,), _buckets(spread), spread.sum)
    return family
