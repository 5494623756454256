//! The contract and the file system interface of WASI as Rust types, generated from their WIT.
//!
//! These are the types of the newest version of the contract, [`CURRENT`]. The host functions, and
//! everything behind them, know only these. An older version has an adapter beside this module.
//!
//! [`CURRENT`]: crate::guest::contract::CURRENT
#![allow(missing_docs, unreachable_pub, reason = "generated; the WIT documents it")]

wasmtime::component::bindgen!({
    path: [
        "../../wit/deps/io",
        "../../wit/tool",
        "../../wit/host",
        "wit/io",
        "wit/clocks",
        "wit/filesystem",
    ],
    inline: "
        package berth:runtime;

        world plugin {
            import berth:host/call@0.2.0;
            import berth:host/config@0.2.0;
            import berth:host/log@0.2.0;
            import berth:host/process@0.2.0;
            import berth:host/schedule@0.2.0;
            import berth:host/search@0.2.0;
            import berth:host/secrets@0.2.0;
            import berth:host/store@0.2.0;
            import wasi:filesystem/types@0.2.12;
            import wasi:filesystem/preopens@0.2.12;
            export berth:tool/tools@0.2.0;
        }
    ",
    world: "berth:runtime/plugin",
    imports: {
        "wasi:filesystem/types": async | trappable,
        "berth:host/schedule": async | trappable,
        "berth:host/search": async | trappable,
        "berth:host/store": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "berth:host/process.child": crate::guest::process_functions::Child,
        "wasi:io/error": wasmtime_wasi::p2::bindings::io::error,
        "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
        "wasi:io/streams": wasmtime_wasi::p2::bindings::io::streams,
        "wasi:clocks/wall-clock": wasmtime_wasi::p2::bindings::clocks::wall_clock,
        "wasi:filesystem/types.descriptor": crate::guest::wasi::Descriptor,
        "wasi:filesystem/types.directory-entry-stream": crate::guest::wasi::EntryStream,
    },
    trappable_error_type: {
        "wasi:filesystem/types.error-code" => crate::guest::wasi::FsError,
    },
});

/// The exports of a plugin that filters output.
pub mod filter {
    wasmtime::component::bindgen!({
        path: "../../wit/tool",
        inline: "
            package berth:runtime;

            world filters {
                export berth:tool/filter@0.2.0;
            }
        ",
        world: "berth:runtime/filters",
        exports: { default: async },
        with: { "berth:tool/types": super::berth::tool::types },
    });
}
