//! `wasi:filesystem` as Rust types, generated from WIT.
#![allow(missing_docs, unreachable_pub, reason = "generated; the WIT documents it")]

wasmtime::component::bindgen!({
    path: ["wit/io", "wit/clocks", "wit/filesystem"],
    inline: "
        package toolhold:wasi;

        world files {
            import wasi:filesystem/types@0.2.12;
            import wasi:filesystem/preopens@0.2.12;
        }
    ",
    world: "toolhold:wasi/files",
    imports: {
        "wasi:filesystem/types": async | trappable,
        default: trappable,
    },
    with: {
        "wasi:io/error": wasmtime_wasi::p2::bindings::io::error,
        "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
        "wasi:io/streams": wasmtime_wasi::p2::bindings::io::streams,
        "wasi:clocks/wall-clock": wasmtime_wasi::p2::bindings::clocks::wall_clock,
        "wasi:filesystem/types.descriptor": crate::wasi::Descriptor,
        "wasi:filesystem/types.directory-entry-stream": crate::wasi::EntryStream,
    },
    trappable_error_type: {
        "wasi:filesystem/types.error-code" => crate::wasi::FsError,
    },
});
