"""A long run of one target with atheris: `python -m tests.fuzz.run TARGET [SECONDS] [OPTION…]`.

Begins with the corpus in the tree. What it finds interesting goes to a folder of its own below
`.fuzz/`; an input that fails is left there as `crash-…`. Put a mended one, small, into
tests/fuzz/corpus/TARGET/, and it is tested for ever.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")


def main(arguments: list[str]) -> int:
    try:
        import atheris
    except ImportError:
        print("atheris is not installed here: pip install atheris (CPython 3.11 to 3.13, Linux)")
        return 2
    with atheris.instrument_imports(include=["hermes_mobile", "hermes_client_proxy"]):
        from tests.fuzz.targets import TARGETS
    if not arguments or arguments[0] not in TARGETS:
        print(f"usage: python -m tests.fuzz.run {{{'|'.join(TARGETS)}}} [SECONDS]")
        return 2
    name, *more = arguments
    seconds = more.pop(0) if more and more[0].isdigit() else "120"
    found = Path(os.environ.get("FUZZ_FOLDER", ".fuzz")) / name
    found.mkdir(parents=True, exist_ok=True)
    options = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-timeout=10",
        "-rss_limit_mb=1024",
        f"-artifact_prefix={found}/",
        "-print_final_stats=1",
    ]
    command = [sys.argv[0], *options, *more, str(found), str(CORPUS / name)]
    atheris.Setup(command, TARGETS[name])
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
