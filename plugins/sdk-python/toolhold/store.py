"""Data of the plugin's own that outlives its calls: keys and bytes. Ask for `store` in the manifest."""

import dataclasses

from . import _host


@dataclasses.dataclass
class Change:
    """One change of a transaction. value: the new bytes, or None to delete the key."""

    key: str
    value: bytes | None


def get(key):
    """The bytes of a key. None: there is none."""
    key = _host.as_text(key, "a key")
    if not _host.IN_COMPONENT:
        return _host.standin.store.get(key)
    return _host.checked(_interface().get, key)


def put(key, value):
    """Writes the bytes of a key."""
    write([Change(key, value)])


def delete(key):
    """Deletes a key."""
    write([Change(key, None)])


def compare_and_set(key, expected, value):
    """Writes if the key has the expected bytes (None: if it is missing). Returns whether it did."""
    return write([Change(key, value)], {key: expected})


def write(changes, expected=None):
    """Makes all changes at once, or none if a key doesn't have its expected bytes. Returns whether it did."""
    expected = {_host.as_text(key, "a key"): _value(value) for key, value in (expected or {}).items()}
    changes = [Change(_host.as_text(each.key, "a key"), _value(each.value)) for each in changes]
    if not _host.IN_COMPONENT:
        held = _host.standin.store
        if any(held.get(key) != value for key, value in expected.items()):
            return False
        for change in changes:
            if change.value is None:
                held.pop(change.key, None)
            else:
                held[change.key] = change.value
        return True
    store = _interface()
    expectations = [store.Expectation(key, value) for key, value in expected.items()]
    return _host.checked(store.write, expectations, [store.Change(each.key, each.value) for each in changes])


def items(prefix=""):
    """The keys that begin with the prefix, with their bytes, sorted by key."""
    prefix = _host.as_text(prefix, "a prefix")
    if not _host.IN_COMPONENT:
        yield from sorted(item for item in _host.standin.store.items() if item[0].startswith(prefix))
        return
    cursor = None
    while True:
        page = _host.checked(_interface().list, prefix, cursor, 1000)
        yield from ((entry.key, entry.value) for entry in page.entries)
        cursor = page.cursor
        if cursor is None:
            return


def _value(value):
    return None if value is None else _host.as_bytes(value, "a value")


def _interface():
    return _host.imported("store", "store")
