"""The seed of a test with faults: printed with every failure, and taken from FAULT_SEED again."""

from __future__ import annotations

import os
import random


def fault_seed() -> int:
    """The seed of FAULT_SEED, or a new one. Pytest shows the line when the test fails."""
    given = os.environ.get("FAULT_SEED", "")
    seed = int(given) if given else random.SystemRandom().randrange(1_000_000)
    print(f"to see the same faults again: FAULT_SEED={seed}")
    return seed
