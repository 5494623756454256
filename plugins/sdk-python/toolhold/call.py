"""The call that is running."""

from . import _host
from ._output import part


def id():
    """The ID of this call. The audit has the same."""
    host = _host.call()
    return host.id() if host else "test"


def remaining():
    """The seconds that the call has left."""
    host = _host.call()
    return host.remaining_ms() / 1000 if host else _host.standin.remaining


def cancelled():
    """Whether the caller has gone away. For tools that can end early with a useful answer."""
    host = _host.call()
    return host.cancelled() if host else _host.standin.cancelled


def progress(fraction, message):
    """Shows progress to the waiting user. fraction: of the work, from 0 to 1, or None."""
    host, message = _host.call(), str(message)
    if host:
        host.progress(None if fraction is None else float(fraction), message)
    else:
        _host.standin.progress.append((fraction, message))


def emit(content):
    """Sends a part of the answer at once: a str, bytes or a Content.

    False: the limit is reached, and this part was dropped. Stop then.
    """
    host = _host.call()
    if host:
        return host.emit(_host.to_wit(part(content)))
    _host.standin.emitted.append(part(content))
    return True


def meta():
    """What the caller sent beside the arguments: an object."""
    return _host.call_meta if _host.IN_COMPONENT else _host.standin.meta
