//! The contract as Rust types, generated from WIT. The module of a capability has the types of its
//! interface.
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
            import toolhold:host/log@0.1.0;
            import toolhold:host/types@0.1.0;
            export toolhold:tool/tools@0.1.0;
        }
    ",
    world: "toolhold:runtime/plugin",
    imports: {
        "toolhold:host/call.called-by": async | trappable,
        default: trappable,
    },
    exports: { default: async },
});

/// The exports of a plugin with filters.
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
