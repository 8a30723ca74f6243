"""`GET /metrics`: what the door has counted, in the text format that Prometheus reads.

The hub's plain counters are read when somebody asks; between two scrapes this module costs nothing.
`prometheus-client` is an optional extra: without it the answer says how to install it. Names,
labels and their closed lists are described in `docs/metrics.md`.
"""

from __future__ import annotations

import hashlib
import hmac
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from .cards import OUTCOMES
from .counters import FIRST, SECOND, Counters, Spread
from .hub import Hub, end_reasons
from .prompts import CardKind
from .protocol import PROTOCOL_VERSION, ClientFrame, Code, ServerFrame
from .settings import Settings
from .tokens import Headers, Refused, from_this_machine

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "hermes_mobile_"

_IN = {frame: str(frame.__struct_config__.tag) for frame in get_args(ClientFrame)}


def _place(tag: str) -> int:
    """Where the frames of a type are counted."""
    begins = f'{{"t":"{tag}","'.encode()
    return begins[FIRST] - begins[SECOND]


_OUT = {tag: _place(tag) for tag in (str(f.__struct_config__.tag) for f in get_args(ServerFrame))}
_HELLOS = ("chat", "deliver", "timeout", "crowded", *get_args(Code))
_MESSAGES = ("text", "voice", "image", "video", "document", "audio")
_STATUSES = (401, 403, 404, 426, 501)
_CARD_OUTCOMES = (*OUTCOMES, "choice", "expired", "withdrawn")


@dataclass(frozen=True, slots=True)
class Scrape:
    """What is read: a hub, the product's version, and how long the door has been open."""

    hub: Hub
    version: str
    uptime: float


def scrape(what: Scrape, headers: Headers) -> bytes:
    """The metrics for who asks with `headers`.

    Raises `Refused`: 401 or 403 for one who may not read them, 501 without `prometheus-client`.
    """
    check_reader(headers, what.hub.settings)
    return exposition(what)


def check_reader(headers: Headers, settings: Settings) -> None:
    """Raises `Refused` for one who may not read the metrics.

    With MOBILE_METRICS_TOKEN only that token opens them, whoever asks. Without it a process of this
    machine may read them, on a door that nothing says others can reach.
    """
    if settings.metrics_token:
        offered = headers.get("authorization", [])
        scheme, _, token = offered[0].partition(" ") if len(offered) == 1 else ("", "", "")
        known = hmac.compare_digest(_digest(token.strip()), _digest(settings.metrics_token))
        if scheme.lower() != "bearer" or not known:
            raise Refused(401, "/metrics needs `Authorization: Bearer` with MOBILE_METRICS_TOKEN")
    elif not from_this_machine(headers, settings):
        raise Refused(
            403,
            "without MOBILE_METRICS_TOKEN only a process of this machine may read /metrics, on a "
            "door without a proxy before it: set that token, and send it as `Authorization: "
            "Bearer`",
        )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def exposition(what: Scrape) -> bytes:
    """Everything in the text format. Raises `Refused` (501) without `prometheus-client`."""
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    except ImportError:
        raise Refused(
            501,
            "/metrics needs the package prometheus-client in the Python that runs this door: "
            "pip install 'hermes-mobile[metrics]'",
        ) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(what))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Collector:
    """What `prometheus-client` asks for families of samples."""

    def __init__(self, what: Scrape) -> None:
        self._what = what

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        for family in families(self._what):
            name = PREFIX + family.name
            if family.spread is not None:
                made: Any = core.HistogramMetricFamily(name, family.text)
                made.add_metric([], _buckets(family.spread), family.spread.sum)
                yield made
                continue
            kind = core.CounterMetricFamily if family.total else core.GaugeMetricFamily
            made = kind(name, family.text, labels=family.labels)
            for labels, number in family.samples:
                made.add_metric(labels, number)
            yield made


def _buckets(spread: Spread) -> list[tuple[str, int]]:
    bounds = [*map(str, spread.bounds), "+Inf"]
    below = 0
    buckets = []
    for bound, count in zip(bounds, spread.counts, strict=True):
        below += count
        buckets.append((bound, below))
    return buckets


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: a counter (`total`), a gauge or a spread, and its samples by label values."""

    name: str
    text: str
    samples: tuple[tuple[tuple[str, ...], float], ...] = ()
    labels: tuple[str, ...] = ()
    total: bool = False
    spread: Spread | None = None


def _one(name: str, text: str, number: float, *, total: bool = False) -> Family:
    return Family(name, text, (((), number),), total=total)


def _by(
    name: str,
    text: str,
    label: str,
    values: Iterable[object],
    counted: Mapping[Any, float],
    *,
    total: bool = True,
    other: bool = False,
) -> Family:
    """A family with one label; `other`: what is counted beside `values` goes there."""
    known = list(values)
    samples = [((str(value),), float(counted.get(value, 0))) for value in known]
    if other:
        rest = sum(number for key, number in counted.items() if key not in known)
        samples.append((("other",), rest))
    return Family(name, text, tuple(samples), (label,), total)


def families(what: Scrape) -> Iterator[Family]:
    """Every metric of the door, as it is now."""
    hub, counted = what.hub, what.hub.counters
    yield Family(
        "build_info",
        "The product and what it runs on; always 1.",
        (((what.version, str(PROTOCOL_VERSION), platform.python_version()), 1.0),),
        ("version", "protocol", "python"),
    )
    yield _one("uptime_seconds", "How long the door has been open.", what.uptime)
    yield from _connections(hub, counted)
    yield from _traffic(hub, counted)
    yield from _turns(hub, counted)
    yield from _waiting(hub, counted)
    yield from _cards(hub, counted)


def _connections(hub: Hub, counted: Counters) -> Iterator[Family]:
    here: Counter[str] = Counter(
        "unsigned" if c.grant is None else "chat" if c.device is not None else "other"
        for c in hub.connections.values()
    )
    yield _by(
        "connections",
        "Open connections: before hello, of a device, or another (deliveries, replaced ones).",
        "state",
        ("unsigned", "chat", "other"),
        here,
        total=False,
    )
    yield _one("connections_opened", "Connections since the start.", counted.opened, total=True)
    yield _by(
        "connections_closed",
        "Connections that have ended, by why; client: the other side went.",
        "reason",
        end_reasons(),
        counted.closed,
        other=True,
    )
    yield Family(
        "connection_seconds", "How long ended connections lasted.", spread=counted.connections
    )
    yield _by(
        "hellos",
        "First frames by outcome; all but chat and deliver are refusals.",
        "outcome",
        _HELLOS,
        counted.hellos,
    )
    yield _by(
        "http_refused",
        "HTTP requests that were refused, by status; 403 at an upgrade: a foreign page.",
        "status",
        _STATUSES,
        counted.refused_requests,
        other=True,
    )
    devices: Counter[str] = Counter(
        "online" if device.conn is not None else "away" for device in hub.known()
    )
    yield _by(
        "devices",
        "Devices that are connected, or away with something waiting for them.",
        "state",
        ("online", "away"),
        devices,
        total=False,
    )


def _traffic(hub: Hub, counted: Counters) -> Iterator[Family]:
    bytes_in, bytes_out = counted.bytes_in, counted.bytes_out
    for connection in hub.connections.values():
        bytes_in += connection.bytes_in
        bytes_out += connection.bytes_out
    received = {tag: counted.received.get(frame, 0) for frame, tag in _IN.items()}
    received["other"] = counted.received.get(type(None), 0)
    received["invalid"] = counted.unread
    sent = {tag: counted.sent[place] for tag, place in _OUT.items()}
    sent["other"] = sum(counted.sent) - sum(sent.values())
    samples = [(("in", tag), float(number)) for tag, number in received.items()]
    samples += [(("out", tag), float(number)) for tag, number in sent.items()]
    yield Family(
        "frames",
        "Frames by direction and type; in/other: an unknown type, in/invalid: no frame at all.",
        tuple(samples),
        ("direction", "type"),
        total=True,
    )
    yield Family(
        "bytes",
        "Bytes of frames by direction, without WebSocket's own.",
        ((("in",), float(bytes_in)), (("out",), float(bytes_out))),
        ("direction",),
        total=True,
    )
    yield _by("errors", "Error frames by code.", "code", get_args(Code), counted.errors)


def _turns(hub: Hub, counted: Counters) -> Iterator[Family]:
    yield _one(
        "turns_open",
        "Devices for which the agent works right now.",
        sum(device.in_turn for device in hub.known()),
    )
    yield Family("turn_seconds", "How long turns took.", spread=counted.turns)
    yield Family(
        "turn_first_words_seconds",
        "From the start of a turn to its first words or file.",
        spread=counted.first_words,
    )
    yield _by(
        "messages",
        "Messages that the agent has taken, by kind.",
        "kind",
        _MESSAGES,
        counted.taken,
        other=True,
    )
    yield _one(
        "messages_not_taken",
        "Messages that the agent did not take; their senders were told.",
        counted.not_taken,
        total=True,
    )
    yield _by(
        "dedup_hits",
        "Messages and deliveries that had come before and were not carried out again.",
        "of",
        ("message", "delivery"),
        {"message": counted.repeats, "delivery": counted.delivery_repeats},
    )
    yield _one("dedup_entries", "Ids that are remembered.", len(hub.dedup))
    yield _one("deliveries", "Deliveries carried out.", counted.deliveries, total=True)


def _waiting(hub: Hub, counted: Counters) -> Iterator[Family]:
    frames = waiting = most = uploads = buffered = 0
    dropped = counted.uploads_dropped
    for device in hub.known():
        frames += device.box.frames
        waiting += device.box.bytes
        most = max(most, device.box.bytes)
        uploads += len(device.uploads.open)
        buffered += device.uploads.size
        dropped += device.uploads.dropped
    yield _one("queue_frames", "Frames that wait for devices, about.", frames)
    yield _one("queue_bytes", "Bytes that wait for devices, about.", waiting)
    yield _one("queue_bytes_max", "Bytes that wait for the device with most.", most)
    yield _one("cuts", "Connections cut off because they did not keep up.", counted.cut, total=True)
    yield _one(
        "not_kept", "Answers not kept for absent devices: too much waits.", counted.not_kept,
        total=True,
    )  # fmt: skip
    yield _one("uploads_open", "Files of which not all parts are here yet.", uploads)
    yield _one("upload_buffer_bytes", "Bytes held of them.", buffered)
    yield _by(
        "uploads",
        "Files of devices: complete, dropped for their size, or abandoned with the connection.",
        "outcome",
        ("complete", "dropped", "abandoned"),
        {
            "complete": counted.files,
            "dropped": dropped,
            "abandoned": counted.uploads_abandoned,
        },
    )
    yield _one("upload_bytes", "Bytes of complete files.", counted.file_bytes, total=True)


def _cards(hub: Hub, counted: Counters) -> Iterator[Family]:
    kinds = get_args(CardKind)
    now = Counter(opened.card.kind for opened in hub.cards.prompts.open.values())
    yield _by("cards_open", "Cards that wait for an answer.", "kind", kinds, now, total=False)
    yield _by("cards", "Cards asked.", "kind", kinds, counted.cards)
    yield Family(
        "card_outcomes",
        "How cards ended; withdrawn: settled elsewhere, choice: a choice of a question.",
        tuple(
            ((kind, outcome), float(counted.outcomes.get((kind, outcome), 0)))
            for kind in kinds
            for outcome in _CARD_OUTCOMES
        ),
        ("kind", "outcome"),
        total=True,
    )
