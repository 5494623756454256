"""Messages for the operator's log. Models never see them.

`logging` of the standard library goes there too.
"""

import logging

from . import _host


def debug(message):
    """Writes a message that helps to find a mistake."""
    _host.write_log("debug", message)


def info(message):
    """Writes a message about the usual course."""
    _host.write_log("info", message)


def warn(message):
    """Writes a message about something unexpected."""
    _host.write_log("warn", message)


def error(message):
    """Writes a message about something that failed."""
    _host.write_log("error", message)


class Handler(logging.Handler):
    """Hands records of `logging` to the host."""

    def emit(self, record):
        levels = ((logging.ERROR, "error"), (logging.WARNING, "warn"), (logging.INFO, "info"))
        level = next((name for least, name in levels if record.levelno >= least), "debug")
        try:
            _host.write_log(level, self.format(record))
        except Exception:
            self.handleError(record)


if _host.IN_COMPONENT:
    logging.basicConfig(handlers=[Handler()], level=logging.DEBUG, format="%(name)s: %(message)s")
