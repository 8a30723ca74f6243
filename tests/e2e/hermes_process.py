"""A real Hermes Agent for tests: a gateway of its own in a temporary home.

    def test_something(hermes: HermesProcess) -> None: ...

`hermes` (session-wide, both versions) and `new_hermes` (one for a single test) are fixtures of
`tests/e2e/conftest.py`. The offline model answers, the API server and the device door listen on
free loopback ports, and everything is ended by process group at the end.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo import home
from demo.offline_model import MODEL
from demo.processes import Child, free_port, start, stop, wait_for
from demo.settings import ROOT

VERSIONS = ("0.19.0", "0.22.2.post1")
# A deadline tells a hanging program from a busy machine; nothing waits for it to pass.
PATIENCE = 150.0
TOKEN = "e2e-token-0123456789abcdef"
API_KEY = "e2e-api-key-0123456789abcdef"
DELIVER_TOKEN = "e2e-deliver-0123456789abcdef"


def environment_of(version: str) -> Path:
    """The virtual environment of one Hermes version.

    Raises:
        RuntimeError: it has not been made; the text names the command.
    """
    folder = ROOT / ".hermes-env" / version
    if not (folder / "bin" / "hermes").exists():
        raise RuntimeError(f"Hermes Agent {version} is not in {folder}. Run: make setup")
    return folder


@dataclass
class HermesProcess:
    """One gateway, its home and its model. Use as a context manager, or start() and close()."""

    version: str
    folder: Path
    door: bool = True
    """Whether to wait for the device door as well as for the API server."""
    mobile: Mapping[str, str] = field(default_factory=dict)
    """More `MOBILE_…` settings of the device door."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Sections laid over the demo's config.yaml."""
    approval_timeout: int = 60
    clarify_timeout: int = 60
    tool_progress: str = "off"
    directory_plugin: bool = False
    """Install the adapter as a directory plugin instead of the pip entry point."""

    def __post_init__(self) -> None:
        self.env = environment_of(self.version)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = self.folder / "hermes-home"
        self.media = self.folder / "media"
        self.model_log = self.folder / "model.jsonl"
        self.token = self.mobile.get("MOBILE_TOKEN", TOKEN)
        self.deliver_token = DELIVER_TOKEN
        self.api_key = API_KEY
        self.model_port = free_port()
        self.api_port = free_port()
        self.door_port = free_port()
        self._model: Child | None = None
        self._gateway: Child | None = None
        self._starts = 0

    # What a test needs to know

    @property
    def api_url(self) -> str:
        """The API server, without a slash at the end."""
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def door_url(self) -> str:
        """The device door's WebSocket address."""
        return f"ws://127.0.0.1:{self.door_port}/ws"

    @property
    def pid(self) -> int:
        """The gateway's process id."""
        assert self._gateway is not None, "the gateway is not running"
        return self._gateway.process.pid

    def alive(self) -> bool:
        return self._gateway is not None and self._gateway.alive()

    def process_environment(self) -> dict[str, str]:
        """The environment of the gateway, for `hermes send` and other commands beside it."""
        return home.environment(self.home)

    def logs(self) -> str:
        """What the gateway has printed since its last start."""
        return self._gateway.log.read_text(errors="replace") if self._gateway else ""

    async def logged(self, words: str) -> None:
        """Until the owner can read these words: they need not be there before a device's are."""
        async with asyncio.timeout(PATIENCE):
            while words not in self.logs():
                await asyncio.sleep(0.1)

    def model_requests(self) -> list[dict[str, Any]]:
        """Bodies of all requests the model got, oldest first."""
        if not self.model_log.exists():
            return []
        # The model may be in the middle of the next line.
        whole = self.model_log.read_text().rpartition("\n")[0]
        records = [json.loads(line) for line in whole.splitlines()]
        return [record["request"] for record in records if "request" in record]

    def api(self, path: str, body: object = None, *, method: str | None = None) -> Any:
        """One JSON request to the API server with its key; raises HTTPError as urllib does."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api_url + path, data=data, method=method)
        request.add_header("Authorization", f"Bearer {self.api_key}")
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=PATIENCE) as response:
            return json.loads(response.read() or b"null")

    # Life

    def start(self) -> HermesProcess:
        """Start the model and the gateway; returns when both answer."""
        if self._model is None:
            self._start_model()
        self._write_home()
        self._start_gateway()
        return self

    def restart(self) -> None:
        """End the gateway as its owner would (SIGTERM) and start it in the same home."""
        self.stop()
        self._start_gateway()

    def stop(self, patience: float = 60.0) -> None:
        """SIGTERM to the gateway, and SIGKILL after so many seconds, as a service manager does;
        returns when it has ended."""
        if self._gateway is not None:
            stop([self._gateway], patience=patience)

    def kill(self) -> None:
        """SIGKILL to the gateway, as a crash; `revive()` starts it again."""
        assert self._gateway is not None
        with suppress(ProcessLookupError):
            self._gateway.process.send_signal(signal.SIGKILL)
        self._gateway.process.wait(PATIENCE)
        stop([self._gateway], patience=1.0)  # what it has started itself

    def revive(self) -> None:
        """Start the gateway again in the same home after stop() or kill()."""
        self._start_gateway()

    def stop_model(self) -> None:
        """End the model server, so that every call of the agent fails."""
        if self._model is not None:
            stop([self._model], patience=3.0)
            self._model = None

    def start_model(self) -> None:
        """Start the model server again on the same port."""
        if self._model is None:
            self._start_model()

    def close(self) -> None:
        """End everything."""
        stop([child for child in (self._model, self._gateway) if child is not None], patience=10.0)

    def __enter__(self) -> HermesProcess:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exception: object) -> None:
        self.close()

    def command(self, *arguments: str) -> list[str]:
        """A `hermes …` command line of this version, with the plugin installed the same way."""
        if self.directory_plugin:
            hidden = Path(__file__).with_name("without_entry_point.py")
            return [str(self.env / "bin" / "python"), str(hidden), *arguments]
        return [str(self.env / "bin" / "hermes"), *arguments]

    def _start_model(self) -> None:
        command = [sys.executable, "-m", "demo.offline_model", "--port", str(self.model_port)]
        command += ["--media", str(self.media), "--log", str(self.model_log)]
        self._model = start(
            "The offline model",
            command,
            log=self.folder / "model.log",
            env={**home.environment(self.home), "PYTHONPATH": str(ROOT)},
            cwd=self.folder,
        )
        wait_for(f"http://127.0.0.1:{self.model_port}/v1/models", [self._model], PATIENCE)

    def _write_home(self) -> None:
        model = home.Model(f"http://127.0.0.1:{self.model_port}/v1", MODEL)
        mobile = {
            "MOBILE_TOKEN": self.token,
            "MOBILE_DELIVER_TOKENS": self.deliver_token,
            "MOBILE_HOST": "127.0.0.1",
            "MOBILE_PORT": str(self.door_port),
            "MOBILE_HOME_CHANNEL": "home-device",
            "MOBILE_HOME_DEVICE": "home-device",
            **self.mobile,
        }
        options = home.Options(
            model=model,
            api_port=self.api_port,
            api_key=self.api_key,
            mobile=mobile,
            approval_timeout=self.approval_timeout,
            clarify_timeout=self.clarify_timeout,
            tool_progress=self.tool_progress,
            config=self.config,
        )
        home.write_home(self.home, options)
        if self.directory_plugin:
            shutil.copytree(
                ROOT / "adapter" / "hermes_mobile",
                self.home / "plugins" / "mobile",
                ignore=shutil.ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )

    def _start_gateway(self) -> None:
        self._starts += 1
        self._gateway = start(
            f"Hermes Agent {self.version}",
            self.command("gateway", "run"),
            log=self.folder / f"gateway-{self._starts}.log",
            env=self.process_environment(),
            cwd=self.folder,
        )
        wait_for(f"{self.api_url}/health", [self._gateway], PATIENCE)
        if self.door:
            wait_for(f"http://127.0.0.1:{self.door_port}/health", [self._gateway], PATIENCE)
