"""The built pages that the door serves: the avatar and the chat, each with its own policy.

Pure but for reading the files: what is answered is a status, a body and header fields.
"""

from __future__ import annotations

from pathlib import Path

from .tokens import Refused

Answer = tuple[int, bytes, dict[str, str]]

# What the pages' build leaves beside this file; a checkout without Node.js has none.
BUILT = Path(__file__).parent / "pages"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_POLICIES = {
    "avatar": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'"
    ),
    # The chat connects to the doors that the person enters, embeds their avatar pages, and shows
    # files that an agent names by their address once the person asks for them.
    "chat": (
        "default-src 'none'; script-src 'self'; style-src 'self'; worker-src 'self'; "
        "manifest-src 'self'; connect-src 'self' ws: wss:; frame-src http: https:; "
        "img-src 'self' data: blob: http: https:; media-src 'self' blob: http: https:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}


def page(root: Path, path: str) -> Answer:
    """A page of the product below `root`; nothing outside of it. Raises `Refused` (404)."""
    folder, slash, rest = path.removeprefix("/").partition("/")
    if not slash:
        return 301, b"", {"Location": f"/{folder}/", "Cache-Control": "no-store"}
    name = rest + "index.html" if path.endswith("/") else rest
    kind = _TYPES.get(Path(name).suffix)
    if not (root / folder).is_dir():
        raise Refused(404, "the pages are not built: they need Node.js and `npm run build` in web/")
    file = root / folder / name
    # An empty part would make the rest an absolute path.
    inside = not {"", ".", ".."} & set(name.split("/")) and "\0" not in name and "\\" not in name
    if not inside or kind is None or not file.is_file():
        raise Refused(404, "there is no such page")
    # A file below assets/ carries the hash of its content in its name.
    lasting = name.startswith("assets/")
    headers = {
        "Content-Type": kind,
        "Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache",
        "Referrer-Policy": "no-referrer",
        "Content-Security-Policy": _POLICIES[folder],
    }
    return 200, file.read_bytes(), headers
