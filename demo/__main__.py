"""`python -m demo`: see `demo.launcher`."""

from __future__ import annotations

import io
import os
import sys

from demo.launcher import Demo
from demo.processes import StartError
from demo.settings import Settings


def main() -> int:
    # Into a pipe or a file Python writes by blocks, and who waits for the address would not see it.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    try:
        settings = Settings.from_environment(os.environ)
    except StartError as problem:
        print(problem, file=sys.stderr)
        return 1
    return Demo(settings).run()


if __name__ == "__main__":
    sys.exit(main())
