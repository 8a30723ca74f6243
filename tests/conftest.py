"""What holds for all tests: how hypothesis looks for examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A slow machine is no finding, so no example has a deadline. The same examples come in every run;
# `--hypothesis-profile default` looks for new ones.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# Set where these tests are written, it hid that a program says nothing into a pipe before it ends.
os.environ.pop("PYTHONUNBUFFERED", None)
