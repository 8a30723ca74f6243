"""The owner's guide: what stands there is complete and closes the loopback trap."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hermes_mobile.settings import Settings
from hermes_mobile.tokens import Peer

GUIDE = (Path(__file__).parents[2] / "docs" / "owner-guide.md").read_text(encoding="utf-8")
RECIPES = ("Caddy", "nginx", "Cloudflare Tunnel", "Tailscale")


def part(title: str) -> str:
    """The text below a heading of the third level."""
    found = re.search(rf"^### {re.escape(title)}$(.*?)(?=^##)", GUIDE, re.M | re.S)
    assert found is not None, title
    return found[1]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_closes_the_loopback_trap(recipe: str) -> None:
    """Its settings are taken as they stand, and a proxy on this machine has no rights by them."""
    (listed,) = [block for block in blocks(part(recipe), "sh") if "MOBILE_TOKEN=" in block]
    environ = dict(line.split("=", 1) for line in listed.splitlines() if line)
    environ["MOBILE_TOKEN"] = "t" * 32
    settings = Settings.from_sources(environ)
    assert settings.public_url and settings.trusted_proxies and not settings.loopback_only
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert not Peer.of(address, {"host": ["127.0.0.1:8787"]}, settings).owner_machine


def test_nginx_speaks_the_version_of_http_that_the_door_knows() -> None:
    """Its own default, HTTP/1.0, knows no upgrade and is answered with 400."""
    (config,) = blocks(part("nginx"), "nginx")
    locations = re.findall(r"location [^{]+\{(.*?)\n    \}", config, re.S)
    passing = [location for location in locations if "proxy_pass" in location]
    assert len(passing) == 2
    for location in passing:
        assert "proxy_http_version 1.1;" in location
        assert "proxy_set_header Host $host;" in location
        assert "X-Forwarded-For" in location
