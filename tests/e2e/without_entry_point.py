"""Run the `hermes` command as if the adapter were not installed with pip.

For tests of the directory plugin: the Hermes environments have the adapter's entry point, which
would win over the plugin in the home.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

_real = importlib.metadata.entry_points


def _without_ours(**selection: Any) -> Any:
    found: Any = _real(**selection)
    return importlib.metadata.EntryPoints(
        point for point in found if point.name != "mobile-platform"
    )


importlib.metadata.entry_points = _without_ours
# The adapter's package itself is hidden as well: only the copy in the home can be loaded.
sys.modules["hermes_mobile"] = None  # type: ignore[assignment]

from hermes_cli.main import main  # noqa: E402

sys.argv[0] = "hermes"
sys.exit(main())
