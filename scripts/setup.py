"""Build the environments of this checkout: quietly, side by side, and only what has changed.

    python scripts/setup.py run      what `make run` needs: .venv and one Hermes
    python scripts/setup.py          everything: both Hermes versions, linters, Node packages
    python scripts/setup.py python   everything but the Node packages

Each environment carries a stamp of the files it was made from, so a second call only compares
hashes. Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
STAMP = ".setup-stamp"
SHOWN_LINES = 8


class SetupError(Exception):
    """Something could not be installed; the text says what, and what to do."""


@dataclass(frozen=True)
class Environment:
    """One virtual environment: where, from which pins, with which of our distributions."""

    label: str
    path: Path
    pins: Path
    distributions: tuple[str, ...]


HERMES_VERSIONS = ("0.19.0", "0.22.2.post1")
OURS = ("adapter", "proxy", "sdk/python")


def hermes_environment(version: str) -> Environment:
    return Environment(
        label=f"Hermes Agent {version}",
        path=ROOT / ".hermes-env" / version,
        pins=REQUIREMENTS / f"hermes-{version}.txt",
        distributions=("adapter",),
    )


def main_environment(pins: str) -> Environment:
    return Environment("Hermes Mobile", ROOT / ".venv", REQUIREMENTS / pins, OURS)


def digest(files: Iterable[Path]) -> str:
    """Hash of names and contents; a missing file counts as its absence."""
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(str(file.relative_to(ROOT)).encode())
        total.update(file.read_bytes() if file.is_file() else b"\0missing")
    return total.hexdigest()


def run(command: list[str], *, failure: str, cwd: Path = ROOT) -> None:
    """Run one quiet command; on failure raise with its last lines."""
    # The caller's own Python settings must not leak into the environments.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    env["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    done = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        # npm says the reason first and pip last.
        if len(lines) > 2 * SHOWN_LINES:
            lines = [*lines[:SHOWN_LINES], "…", *lines[-SHOWN_LINES:]]
        shown = "\n".join(f"    {line}" for line in lines)
        raise SetupError(f"{failure}\n  `{' '.join(command)}` said:\n{shown}")


def pins_of(file: Path) -> list[Path]:
    """The file and every file it includes with `-r`."""
    files = [file]
    for line in file.read_text().splitlines():
        if line.startswith("-r "):
            files += pins_of(file.parent / line.removeprefix("-r ").strip())
    return files


def modules(folder: Path) -> str:
    """The packages and modules of a distribution: an editable install knows them by name."""
    files = [*folder.glob("*/__init__.py"), *folder.glob("*.py")]
    return " ".join(sorted(str(file.relative_to(ROOT)) for file in files))


def present(environment: Environment) -> list[Path]:
    """The distributions of ours that exist in this checkout."""
    folders = [ROOT / name for name in environment.distributions]
    return [folder for folder in folders if (folder / "pyproject.toml").is_file()]


def build(environment: Environment) -> bool:
    """Make or refresh one environment; False when it was fresh already."""
    projects = present(environment)
    pins = pins_of(environment.pins)
    python = environment.path / "bin" / "python"
    stamp = environment.path / STAMP
    base = environment.path / f"{STAMP}-base"
    # A checkout that was moved has scripts that point to the old place.
    place = f"{environment.path} {sys.version_info[:2]}"
    works = base.is_file() and base.read_text() == place and starts(python)

    def state(pins: list[Path]) -> str:
        hashed = digest([*pins, *(folder / "pyproject.toml" for folder in projects)])
        return f"{hashed} {' '.join(modules(folder) for folder in projects)}"

    wanted = state(pins)
    if works and stamp.is_file() and wanted in stamp.read_text().splitlines():
        return False
    if not works:
        shutil.rmtree(environment.path, ignore_errors=True)
        run(
            [sys.executable, "-m", "venv", str(environment.path)],
            failure=f"The virtual environment {environment.path} could not be made. "
            "On Debian or Ubuntu: sudo apt-get install python3-venv",
        )
        base.write_text(place)
    stamp.unlink(missing_ok=True)
    command = [str(python), "-m", "pip", "install", "-q", "-r", str(environment.pins)]
    command += ["-c", str(environment.pins)]
    for folder in projects:
        command += ["-e", str(folder)]
    run(
        command,
        failure=f"The packages of {environment.label} could not be installed. Is the package "
        f"registry reachable? `rm -rf {environment.path}` and try again if not sure.",
    )
    run(
        [str(python), "-m", "pip", "check"],
        failure=f"The packages in {environment.path} do not fit together.",
    )
    # dev.txt contains runtime.txt, so a development environment serves `make run` as well.
    known = [wanted, *(state(pins_of(file)) for file in pins[1:])]
    stamp.write_text("\n".join(known) + "\n")
    return True


def starts(python: Path) -> bool:
    """Whether an environment's interpreter starts (it does not after its base Python left)."""
    if not python.exists():
        return False
    return subprocess.run([str(python), "-c", ""], capture_output=True).returncode == 0


MADE = ("node_modules", "dist", "screenshots")


def node_sources(folder: Path) -> Iterator[Path]:
    """What a package is built from, without what npm and the build put beside it."""
    for path, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if f not in MADE and f[0] != "."]
        yield from (Path(path) / name for name in files if not name.startswith("."))


def build_node(name: str) -> bool:
    """`npm ci` and `npm run build` for one package, when it or its sources changed."""
    folder = ROOT / name
    modules = folder / "node_modules"
    lock = folder / "package-lock.json"
    # The SDK is a dependency of the pages: its change rebuilds them.
    shared = [] if name == SDK else [f for f in node_sources(ROOT / SDK) if f.suffix == ".ts"]
    installed = digest([folder / "package.json", lock])
    built = digest([*node_sources(folder), *shared])
    install_stamp, build_stamp = modules / STAMP, modules / f"{STAMP}-build"
    fresh = install_stamp.is_file() and install_stamp.read_text() == installed
    if fresh and build_stamp.is_file() and build_stamp.read_text() == built:
        return False
    if not fresh:
        install = ["npm", "ci"] if lock.is_file() else ["npm", "install"]
        run([*install, "--no-fund", "--no-audit"], cwd=folder, failure=f"npm failed in {name}/.")
        install_stamp.write_text(digest([folder / "package.json", lock]))
    run(["npm", "run", "build", "--if-present"], cwd=folder, failure=f"{name}/ does not build.")
    build_stamp.write_text(digest([*node_sources(folder), *shared]))
    return True


PAGES = "TypeScript SDK and pages"
SDK = "sdk/typescript"
NODE_PACKAGES = (SDK, "web")


def build_all_node() -> bool:
    """The Node packages that exist, the SDK first."""
    packages = [name for name in NODE_PACKAGES if (ROOT / name / "package.json").is_file()]
    return any([build_node(name) for name in packages])


@contextmanager
def only_one() -> Iterator[None]:
    """Two setups at once would install over each other: the second one waits."""
    folder = ROOT / ".setup"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("  Another setup is running in this checkout; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    print(text, flush=True)


def main(arguments: list[str]) -> int:
    """Build what was asked for; 0 on success, 1 with an explanation otherwise."""
    if arguments not in ([], ["run"], ["python"]):
        say("usage: setup.py [run|python]")
        return 2
    everything = arguments != ["run"]
    environments = [main_environment("dev.txt" if everything else "runtime.txt")]
    environments += [
        hermes_environment(version) for version in HERMES_VERSIONS[: None if everything else 1]
    ]
    jobs: list[tuple[str, Callable[[], bool]]] = [
        (f"{e.label} ({e.path.relative_to(ROOT)})", lambda e=e: build(e))  # type: ignore[misc]
        for e in environments
    ]
    packages = any((ROOT / name / "package.json").is_file() for name in NODE_PACKAGES)
    node = packages and arguments != ["python"] and shutil.which("npm") is not None
    if node:
        jobs.append((PAGES, build_all_node))

    def timed(label: str, job: Callable[[], bool]) -> bool:
        started = time.monotonic()
        try:
            if job():
                say(f"  ready: {label}, {time.monotonic() - started:.0f} s")
        except SetupError as problem:
            if label == PAGES and not everything:
                say(f"  The pages are left out: {problem}")
                return True
            print(f"\nSetup failed: {problem}", file=sys.stderr)
            return False
        return True

    first = not (ROOT / ".venv" / STAMP).is_file()
    with only_one():
        if first:
            say("Setting up Hermes Mobile (the first time takes about a minute) …")
        with ThreadPoolExecutor(max_workers=2) as pool:
            results = list(pool.map(lambda job: timed(*job), jobs))
    if packages and not node and arguments != ["python"]:
        say("  Node.js is not installed: the TypeScript SDK and the pages are left out.")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
