

@tool
def try_store() -> dict:
    """Tries the store: what is written, listed, refused and deleted."""
    from toolhold.store import Change, compare_and_set, delete, get, items, put, write

    def code_of(function, *arguments):
        try:
            return function(*arguments)
        except toolhold.Failure as failure:
            return failure.code

    keys = [f"many/{number:04}" for number in range(1001)]
    write([Change(key, key.encode()) for key in keys[:1000]])
    put(keys[1000], bytearray(keys[1000].encode()))
    put("bytes", bytes(range(256)))
    put("empty", b"")
    found = {
        "listed": [key for key, value in items("many/") if value == key.encode()] == keys,
        "all_bytes": get("bytes") == bytes(range(256)),
        "empty": get("empty") == b"",
        "missing": get("none") is None,
        "other_value": compare_and_set("empty", b"x", b"y"),
        "both_or_none": write([Change("empty", b"y"), Change("bytes", None)], {"none": b""}),
        "unchanged": get("empty") == b"" and get("bytes") is not None,
        "no_key": code_of(get, ""),
        "long_value": code_of(put, "long", bytes((1 << 20) + 1)),
        "quota": code_of(put, "long", bytes(1 << 20)),
        "created": compare_and_set("none", None, b"new"),
        "deleted": compare_and_set("none", b"new", None) and get("none") is None,
    }
    delete("bytes")
    write([Change(key, None) for key in keys[:999]])
    found["left"] = [key for key, _value in items("")]
    return found
