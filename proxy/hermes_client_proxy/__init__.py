"""A same-origin proxy between a web page and a Hermes Agent (client proxy contract v1)."""

from .app import ProxyApp, create_app
from .auth import SessionCookie, User
from .settings import Settings, SettingsError, ToolEntry

__all__ = [
    "ProxyApp",
    "SessionCookie",
    "Settings",
    "SettingsError",
    "ToolEntry",
    "User",
    "create_app",
]
