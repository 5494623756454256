//! Contract 0.1 as Rust types, generated from its frozen WIT.
#![allow(missing_docs, unreachable_pub, reason = "generated; the WIT documents it")]

wasmtime::component::bindgen!({
    path: ["../../wit/frozen-0.1/tool", "../../wit/frozen-0.1/host"],
    inline: "
        package berth:runtime;

        world plugin {
            import berth:host/call@0.1.0;
            import berth:host/log@0.1.0;
            import berth:host/process@0.1.0;
            import berth:host/search@0.1.0;
            import berth:host/secrets@0.1.0;
            export berth:tool/tools@0.1.0;
        }
    ",
    world: "berth:runtime/plugin",
    imports: {
        "berth:host/search": async | trappable,
        default: trappable,
    },
    exports: { default: async },
    with: {
        "berth:host/process.child": crate::guest::process_functions::Child,
    },
});

/// The exports of a plugin that filters output.
pub mod filter {
    wasmtime::component::bindgen!({
        path: "../../wit/frozen-0.1/tool",
        inline: "
            package berth:runtime;

            world filters {
                export berth:tool/filter@0.1.0;
            }
        ",
        world: "berth:runtime/filters",
        exports: { default: async },
        with: { "berth:tool/types": super::berth::tool::types },
    });
}
