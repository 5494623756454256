//! Shared code of the hostile plugins: the raw interfaces, the type of an attack, and the
//! conversion of a list of attacks to tools.
//!
//! It doesn't use the SDK. A plugin imports only those interfaces that it calls.
#![cfg(target_arch = "wasm32")]

use serde_json::{Value, json};

pub use bindings::export_component;
pub use bindings::exports::toolhold::tool::tools::Subject;
use bindings::exports::toolhold::tool::tools::{Definition, Guest, Invocation};
pub use bindings::toolhold::host;
pub use bindings::toolhold::tool::types::{Body, Category, Content, Failure, Output};

#[expect(missing_docs, reason = "generated")]
pub mod bindings {
    #![allow(unsafe_code, reason = "generated")]

    wit_bindgen::generate!({
        path: ["../../../wit/deps/io", "../../../wit/tool", "../../../wit/host"],
        inline: "
            package toolhold:hostile;

            world hostile {
                include toolhold:tool/tool-plugin@0.1.0;
                import toolhold:host/call@0.1.0;
                import toolhold:host/config@0.1.0;
                import toolhold:host/log@0.1.0;
                import toolhold:host/process@0.1.0;
                import toolhold:host/search@0.1.0;
                import toolhold:host/secrets@0.1.0;
            }
        ",
        world: "toolhold:hostile/hostile",
        generate_all,
        pub_export_macro: true,
        export_macro_name: "export_component",
        default_bindings_module: "hostile_support::bindings",
    });
}

/// One attack, which is one tool.
pub struct Attack<A> {
    /// The tool's name.
    pub name: &'static str,
    /// The description of the tool.
    pub description: &'static str,
    /// Whether the tool claims to be read-only.
    pub claims_to_read_only: bool,
    /// The function that does it.
    pub run: fn(&A) -> Loot,
}

impl<A> Attack<A> {
    /// An attack that doesn't claim to be read-only.
    pub const fn new(name: &'static str, description: &'static str, run: fn(&A) -> Loot) -> Self {
        Self { name, description, claims_to_read_only: false, run }
    }
}

/// The result of an attack: what it got, or why it was refused.
pub type Loot = Result<Output, Failure>;

/// The attacks of a plugin, and the common properties of their tools. [`export!`] makes a component
/// of it.
pub trait Attacks {
    /// The arguments of every attack.
    type Arguments: From<Value> + 'static;
    /// The attacks.
    const ATTACKS: &'static [Attack<Self::Arguments>];
    /// Whether the tools claim to reach the open world.
    const OPEN_WORLD: bool;

    /// The properties in the schema of the arguments.
    fn properties() -> Value;

    /// The subjects of every tool.
    fn subjects() -> Vec<Subject> {
        Vec::new()
    }

    /// The other names of every tool.
    fn aliases() -> Vec<String> {
        Vec::new()
    }
}

impl<T: Attacks> Guest for T {
    fn list_tools() -> Result<Vec<Definition>, Failure> {
        Ok(T::ATTACKS.iter().map(definition::<T>).collect())
    }

    fn call_tool(call: Invocation) -> Result<Output, Failure> {
        let attack = T::ATTACKS
            .iter()
            .find(|attack| attack.name == call.tool)
            .ok_or("the attack is unknown")?;
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        (attack.run)(&arguments.into())
    }
}

fn definition<T: Attacks>(attack: &Attack<T::Arguments>) -> Definition {
    let schema =
        json!({ "type": "object", "properties": T::properties(), "additionalProperties": false });
    let promises = [
        (attack.claims_to_read_only, "read-only"),
        (attack.claims_to_read_only, "additive"),
        (!T::OPEN_WORLD, "closed-world"),
    ];
    let promises =
        promises.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name.to_owned());
    Definition {
        name: attack.name.to_owned(),
        aliases: T::aliases(),
        title: None,
        description: attack.description.to_owned(),
        input_schema: schema.to_string(),
        output_schema: None,
        promises: promises.collect(),
        subjects: T::subjects(),
        arguments: Vec::new(),
        preview: None,
        answers_in: None,
        fence: None,
        meta: None,
    }
}

/// Makes a component of a type's [`Attacks`], with the `manifest.json` in the folder of the plugin.
#[macro_export]
macro_rules! export {
    ($attacks:ident) => {
        // The linker makes a custom section of it, so that it can be read without running code.
        #[expect(unsafe_code, reason = "a custom section has no other form")]
        #[unsafe(link_section = "toolhold:manifest")]
        static MANIFEST: [u8; include_bytes!("../manifest.json").len()] =
            *include_bytes!("../manifest.json");

        #[allow(unsafe_code, reason = "generated")]
        const _: () = {
    $crate::export_component!($attacks with_types_in $crate::bindings);
        };
    };
}

/// `arguments[key]` as a size. 0 if it is missing.
pub fn size(arguments: &Value, key: &str) -> usize {
    arguments[key].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

/// A part with a text.
pub fn part(text: &str) -> Content {
    Content { body: Body::Text(text.to_owned()), media_type: None, meta: None }
}

impl From<&str> for Output {
    fn from(text: &str) -> Self {
        Self { content: vec![part(text)], structured: None, after_emitted: false, meta: None }
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self {
            category: Category::PermanentFailure,
            code: None,
            message: message.to_owned(),
            suggestion: None,
            retry_after_ms: None,
            content: Vec::new(),
            structured: None,
            meta: None,
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        message.as_str().into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        format!("{error:?}").into()
    }
}

impl From<wasip2::filesystem::types::ErrorCode> for Failure {
    fn from(error: wasip2::filesystem::types::ErrorCode) -> Self {
        format!("{error:?}").into()
    }
}
