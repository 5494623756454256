"""The plugin's own settings: the table `[plugins.NAME.config]` of the operator's configuration."""

import json

from . import _host


def get(key, default=None):
    """The value of a key, or the default if it isn't set."""
    host = _host.config()
    if not host:
        return _host.standin.config.get(key, default)
    value = host.get(key)
    return default if value is None else json.loads(value)


def all():
    """The whole table."""
    host = _host.config()
    return json.loads(host.all()) if host else dict(_host.standin.config)
