"""``python -m hermes_client_proxy`` is ``hermes-client-proxy``."""

from .cli import main

raise SystemExit(main())
