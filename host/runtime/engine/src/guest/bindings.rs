//! The contract as Rust types for the host's side, generated from its WIT.
#![allow(missing_docs, unreachable_pub, reason = "generated; the WIT documents it")]

wasmtime::component::bindgen!({
    path: [
        "../../../wit/deps/io",
        "../../../wit/tool",
        "../../../wit/host",
    ],
    inline: "
        package toolhold:runtime;

        world plugin {
            import toolhold:host/call@0.1.0;
            import toolhold:host/config@0.1.0;
            import toolhold:host/embeddings@0.1.0;
            import toolhold:host/log@0.1.0;
            import toolhold:host/parts@0.1.0;
            import toolhold:host/process@0.1.0;
            import toolhold:host/schedule@0.1.0;
            import toolhold:host/search@0.1.0;
            import toolhold:host/secrets@0.1.0;
            import toolhold:host/store@0.1.0;
            import toolhold:host/index@0.1.0;
            import toolhold:host/service@0.1.0;
            export toolhold:tool/tools@0.1.0;
        }
    ",
    world: "toolhold:runtime/plugin",
    imports: {
        "toolhold:host/call.called-by": async | trappable,
        "toolhold:host/embeddings.embed": async | trappable,
        "toolhold:host/schedule": async | trappable,
        "toolhold:host/search": async | trappable,
        "toolhold:host/store": async | trappable,
        "toolhold:host/index": async | trappable,
        "toolhold:host/parts": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "toolhold:host/process.child": crate::guest::child::Child,
        "toolhold:host/service.connection": crate::guest::connection::Connection,
        "wasi:io/poll": wasmtime_wasi::p2::bindings::io::poll,
    },
});

/// The exports of a plugin that filters output.
pub mod filter {
    wasmtime::component::bindgen!({
        path: "../../../wit/tool",
        inline: "
            package toolhold:runtime;

            world filters {
                export toolhold:tool/filter@0.1.0;
            }
        ",
        world: "toolhold:runtime/filters",
        exports: { default: async },
        with: { "toolhold:tool/types": super::toolhold::tool::types },
    });
}
