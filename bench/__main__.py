"""`make bench`: both doors beside their bare counterparts, one after the other."""

from __future__ import annotations

import platform
import subprocess
import sys

import psutil

from . import door


def machine() -> str:
    """What the figures were measured on."""
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{psutil.cpu_count()} CPUs, {psutil.virtual_memory().total // 2**30} GiB, "
        f"load {psutil.getloadavg()[0]:.1f} at the start"
    )


print(f"{machine()}\nRead the ratios, not the figures: every row was measured in one run.\n")
print(door.report(door.run()), flush=True)
print()
sys.exit(subprocess.call([sys.executable, "-m", "bench.proxy"]))
