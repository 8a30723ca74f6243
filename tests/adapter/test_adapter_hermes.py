"""The adapter object inside each supported Hermes: loops, reconnects, ports."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from demo import home
from tests.e2e.hermes_process import VERSIONS, environment_of

SCRIPT = Path(__file__).with_name("hermes_adapter_script.py")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_adapter_by_itself(version: str, tmp_path: Path) -> None:
    """The script's own assertions; it imports Hermes, this process does not."""
    python = environment_of(version) / "bin" / "python"
    done = subprocess.run(
        [str(python), "-W", "ignore", str(SCRIPT)],
        env=home.environment(tmp_path / "hermes-home"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything holds" in done.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_loading_the_plugin_is_cheap(version: str, tmp_path: Path) -> None:
    """Every `hermes` command loads it: neither the door nor its packages are imported."""
    python = environment_of(version) / "bin" / "python"
    code = (
        "import sys, hermes_mobile\n"
        "class Context:\n"
        "    def register_platform(self, **k): self.k = k\n"
        "    def register_hook(self, *a): pass\n"
        "    def register_cli_command(self, **k): pass\n"
        "context = Context(); hermes_mobile.register(context)\n"
        "assert context.k['check_fn']()\n"
        "loaded = {'picows', 'msgspec', 'regex', 'hermes_mobile.server', 'hermes_mobile.adapter'}\n"
        "assert not loaded & set(sys.modules), loaded & set(sys.modules)\n"
    )
    done = subprocess.run(
        [str(python), "-W", "ignore", "-c", code],
        env=home.environment(tmp_path / "hermes-home"),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_package_is_named(version: str, tmp_path: Path) -> None:
    """The door stays closed and says how to install what it needs."""
    python = environment_of(version) / "bin" / "python"
    code = (
        "import asyncio, sys\n"
        "sys.modules['picows'] = None\n"
        "import gateway.config, hermes_mobile.adapter as a\n"
        "from gateway.platform_registry import platform_registry\n"
        "class Context:\n"
        "    def register_platform(self, **k):\n"
        "        from gateway.platform_registry import PlatformEntry\n"
        "        platform_registry.register(PlatformEntry(source='plugin', **k))\n"
        "import hermes_mobile; hermes_mobile.register(Context())\n"
        "adapter = a.MobileAdapter(gateway.config.PlatformConfig(enabled=True))\n"
        "assert not asyncio.run(adapter.connect())\n"
        "print(adapter.fatal_error_message)\n"
    )
    done = subprocess.run(
        [str(python), "-W", "ignore", "-c", code],
        env=home.environment(tmp_path / "hermes-home"),
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "picows" in done.stdout and "-m pip install picows" in done.stdout
