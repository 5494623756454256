"""The way to the host: its imports in a component, and plain stand-ins in unit tests.

A stand-in works, within the process: what was emitted, logged and stored can be looked at there.
"""

import json
import sys

try:
    from componentize_py_types import Err
    from wit_world.imports import toolhold_tool_types as types
    from wit_world.imports import call as _call
    from wit_world.imports import config as _config
    from wit_world.imports import log as _log

    IN_COMPONENT = True
except ImportError:
    IN_COMPONENT = False


class Standin:
    """What the stand-ins keep. A test sets and reads it; `reset` empties it."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.emitted, self.log, self.progress = [], [], []
        self.store, self.config, self.secrets = {}, {}, set()
        self.index, self.tasks, self.parts = {}, {}, {}
        self.cancelled, self.remaining, self.meta = False, 30.0, {}


standin = Standin()

# What the caller sent beside the arguments of the call that runs.
call_meta = {}


def imported(name, capability):
    """The module of an interface that the manifest has to ask for."""
    if not IN_COMPONENT:
        raise RuntimeError(f"`{capability}` has no stand-in in unit tests")
    try:
        return _IMPORTED[name]
    except KeyError:
        raise RuntimeError(
            f"this component doesn't import `{capability}`: add a [[capabilities]] of that name to plugin.toml, and build again"
        ) from None


def _load_imported():
    """Loads what there is of the interfaces that a manifest may ask for. Later, nothing can be imported."""
    import importlib

    names = ("index", "parts", "process", "schedule", "search", "secrets", "service", "store")
    names += ("streams", "outgoing_handler", "wasi_http_types")
    for name in names:
        try:
            _IMPORTED[name] = importlib.import_module(f"wit_world.imports.{name}")
        except ImportError:
            pass


_IMPORTED = {}
if IN_COMPONENT:
    _load_imported()


def write_log(level, message):
    """Writes to the operator's log."""
    message = str(message)
    if IN_COMPONENT:
        _log.write(_log.Level[level.upper()], message)
    else:
        standin.log.append((level, message))
        print(f"{level}: {message}", file=sys.stderr)


def call():
    """The interface `toolhold:host/call`. None in unit tests."""
    return _call if IN_COMPONENT else None


def config():
    """The interface `toolhold:host/config`. None in unit tests."""
    return _config if IN_COMPONENT else None


def to_wit(part):
    """A part of an answer as the contract has it."""
    if part.text is not None:
        body = types.Body_Text(part.text)
    elif part.bytes is not None:
        body = types.Body_Bytes(part.bytes)
    else:
        body = types.Body_Link(part.link)
    return types.Content(body, part.media_type, None if part.meta is None else json.dumps(part.meta))


def from_wit(part):
    """An attachment from what the contract has."""
    from ._schema import Attachment

    meta = None if part.meta is None else json.loads(part.meta)
    match part.body:
        case types.Body_Text(value):
            return Attachment(text=value, media_type=part.media_type, meta=meta)
        case types.Body_Bytes(value):
            return Attachment(bytes=value, media_type=part.media_type, meta=meta)
        case types.Body_Link(value):
            return Attachment(link=value, media_type=part.media_type, meta=meta)
        case other:
            return Attachment(text=other.value[1], media_type="application/json", meta=meta)


def as_bytes(value, what):
    """A value as the contract has bytes. What isn't bytes would end the call as a crash."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} has to be bytes, not {type(value).__name__}")


def as_text(value, what):
    """A value as the contract has a text."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{what} has to be a str, not {type(value).__name__}")


def checked(function, *arguments):
    """Calls a function of the host. Its error becomes a Failure with the same words."""
    from ._failure import Failure

    try:
        return function(*arguments)
    except Err as error:
        raise Failure(error.value.message, code=error.value.code) from None
