tool({
  name: "try_store",
  description: "Tries the store: what is written, listed, refused and deleted.",
  call() {
    const codeOf = (function_) => {
      try {
        return function_();
      } catch (failure) {
        return failure.code;
      }
    };
    const keys = Array.from({ length: 1001 }, (_, number) => `many/${String(number).padStart(4, "0")}`);
    store.write(keys.slice(0, 1000).map((key) => ({ key, value: key })));
    store.put(keys[1000], keys[1000]);
    const bytes = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    store.put("bytes", bytes);
    store.put("empty", "");
    const listed = [...store.items("many/")];
    const found = {
      listed: listed.length === 1001 && listed.every(([key, value], at) => key === keys[at] && value.length === key.length),
      all_bytes: String(store.get("bytes")) === String(bytes),
      empty: store.getText("empty") === "",
      missing: store.get("none") === undefined,
      other_value: store.compareAndSet("empty", "x", "y"),
      both_or_none: store.write([{ key: "empty", value: "y" }, { key: "bytes", value: null }], [{ key: "none", value: "" }]),
      unchanged: store.getText("empty") === "" && store.get("bytes") !== undefined,
      no_key: codeOf(() => store.get("")),
      long_value: codeOf(() => store.put("long", new Uint8Array((1 << 20) + 1))),
      quota: codeOf(() => store.put("long", new Uint8Array(1 << 20))),
      created: store.compareAndSet("none", null, "new"),
      deleted: store.compareAndSet("none", "new", null) && store.get("none") === undefined,
    };
    store.delete("bytes");
    store.write(keys.slice(0, 999).map((key) => ({ key, value: null })));
    found.left = [...store.items()].map(([key]) => key);
    return found;
  },
});
