//! Exports a parser as a part.

#[allow(missing_docs, unsafe_code, unreachable_pub, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../wit/tool",
        world: "toolhold:tool/part-component",
        pub_export_macro: true,
        export_macro_name: "export_part",
        default_bindings_module: "grammars::part::bindings",
    });
}

pub use bindings::{export_part, exports};

/// Makes a part of a grammar.
#[macro_export]
macro_rules! part {
    ($grammar:ident) => {
        struct Part;

        impl $crate::part::exports::toolhold::tool::part::Guest for Part {
            fn run(input: Vec<u8>) -> Result<Vec<u8>, String> {
                $crate::answer::<$crate::$grammar>(&input)
            }
        }

        #[cfg(target_arch = "wasm32")]
        $crate::part::export_part!(Part with_types_in $crate::part);
    };
}
