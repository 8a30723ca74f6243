"""demo/settings.py: what the environment decides."""

from __future__ import annotations

import pytest

from demo.processes import StartError
from demo.settings import Settings


def test_defaults_are_loopback_and_the_offline_model() -> None:
    settings = Settings.from_environment({})

    assert (settings.mobile_host, settings.mobile_port) == ("127.0.0.1", 8787)
    assert settings.model is None
    assert settings.folder.name == ".demo"


def test_a_key_alone_does_not_choose_a_provider() -> None:
    """A key in a developer's environment must not be spent by a demo."""
    assert Settings.from_environment({"OPENAI_API_KEY": "sk"}).model is None


def test_a_provider_of_ones_own() -> None:
    settings = Settings.from_environment(
        {
            "DEMO_MODEL_BASE_URL": "https://models.example/v1",
            "DEMO_MODEL": "big",
            "OPENAI_API_KEY": "sk",
        }
    )

    assert settings.model is not None
    assert settings.model.base_url == "https://models.example/v1"
    assert (settings.model.name, settings.model.api_key) == ("big", "sk")


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"MOBILE_PORT": "http"}, "MOBILE_PORT"),
        ({"MOBILE_PORT": "70000"}, "MOBILE_PORT"),
        ({"DEMO_WEB_PORT": "-1"}, "DEMO_WEB_PORT"),
        ({"DEMO_MODEL_BASE_URL": "https://models.example/v1"}, "DEMO_MODEL"),
    ],
)
def test_what_makes_no_sense_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(StartError, match=named):
        Settings.from_environment(environ)
