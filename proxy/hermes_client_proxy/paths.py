"""The path of a request as the contract, the metrics and the log name it."""

from __future__ import annotations

from starlette.types import Scope

from .contract import LEGACY_PATH, PREFIX

METRICS_PATH = "/metrics"


def contract_path(scope: Scope) -> str:
    """The path as the contract names it, wherever the application is mounted.

    The contract's own path may begin anywhere in ``root_path`` or right after it: a host mounts the
    application at the prefix, and may itself be mounted somewhere.
    """
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if not root:
        return path
    # Some frameworks leave the mount out of the path.
    whole = path if path == root or path.startswith(root + "/") else root + path
    for begin in (PREFIX, LEGACY_PATH):
        at = whole.find(begin)
        if 0 <= at <= len(root) and whole[at + len(begin) :][:1] in ("", "/"):
            return whole[at:]
    return path


_PLAIN_ROUTES = {
    LEGACY_PATH: "legacy",
    METRICS_PATH: "metrics",
    **{
        f"{PREFIX}/{name}": name
        for name in ("sessions", "runs", "models", "tools", "health", "login", "metrics")
    },
}


def route_label(path: str) -> str:
    """The route of a path for the metrics: one of ``counters.ROUTES``."""
    plain = _PLAIN_ROUTES.get(path)
    if plain is not None or not path.startswith(PREFIX + "/"):
        return plain or "other"
    match path[len(PREFIX) + 1 :].split("/"):
        case ["sessions", _]:
            return "session"
        case ["events", _]:
            return "events"
        case ["runs", _, ("abort" | "approval") as what]:
            return what
    return "other"


def path_shape(path: str) -> str:
    """The route of a path for the log, ids left out."""
    if not path.startswith(PREFIX):
        return path if path in (LEGACY_PATH, METRICS_PATH) else "?"
    parts = path[len(PREFIX) :].split("/")
    known = ("sessions", "runs", "events", "abort", "approval", "models", "tools", "health")
    own = (*known, "login", "metrics", "")
    return "/".join(part if part in own else "*" for part in parts[:5])
