"""The operator's secrets for requests. The host adds them; a plugin never sees one."""

from . import _host


def exists(name):
    """Whether the plugin's requests have a secret of this name."""
    if not _host.IN_COMPONENT:
        return name in _host.standin.secrets
    return _host.imported("secrets", "http").exists(name)
