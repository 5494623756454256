//! The contract as Rust types, generated from their WIT.
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
    ],
    inline: "
        package berth:runtime;

        world plugin {
            import berth:host/call@0.2.0;
            import berth:host/config@0.2.0;
            import berth:host/embeddings@0.2.0;
            import berth:host/log@0.2.0;
            import berth:host/parts@0.2.0;
            import berth:host/process@0.2.0;
            import berth:host/schedule@0.2.0;
            import berth:host/search@0.2.0;
            import berth:host/secrets@0.2.0;
            import berth:host/store@0.2.0;
            import berth:host/index@0.2.0;
            import berth:host/service@0.2.0;
            export berth:tool/tools@0.2.0;
        }
    ",
    world: "berth:runtime/plugin",
    imports: {
        "berth:host/call.called-by": async | trappable,
        "berth:host/embeddings.embed": async | trappable,
        "berth:host/schedule": async | trappable,
        "berth:host/search": async | trappable,
        "berth:host/store": async | trappable,
        "berth:host/index": async | trappable,
        "berth:host/parts": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "berth:host/process.child": crate::guest::process_functions::Child,
        "berth:host/service.connection": crate::guest::service_functions::Connection,
        "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
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
