//! The prompts and resources that a source offers beside tools.

use serde::{Deserialize, Serialize};

/// Offers of a provider next to its tools: prompts for people, and resources to read.
///
/// Front ends list them. The host gets each by a call of one of the provider's tools, so that it is
/// decided on, shaped and recorded like every call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offers {
    /// The prompts. A prompt is got by a call of [`prompter`](Self::prompter).
    pub prompts: Vec<PromptOffer>,
    /// The tool that gets a prompt, with the arguments `name`, the provider's own name of it, and
    /// `arguments`, an object of texts. Each part of its answer is a message; its meta can name
    /// the `role`.
    pub prompter: String,
    /// The resources and templates of them.
    pub resources: Vec<ResourceOffer>,
    /// The tool that reads a resource, with the argument `uri`, the provider's own address of it.
    pub reader: String,
    /// The beginning of the addresses of its resources. The provider's own address follows.
    pub prefix: String,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptOffer {
    /// Its name, unique in the host.
    pub name: String,
    /// The provider's own name of it.
    pub own_name: String,
    /// A title for people.
    pub title: Option<String>,
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// Its arguments.
    pub arguments: Vec<PromptOfferArgument>,
}

/// An argument of a prompt: a text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptOfferArgument {
    /// Its name.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the argument.
    pub description: Option<String>,
    /// Whether it has to be given.
    pub required: bool,
}

/// A resource, or a template for the addresses of some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOffer {
    /// Its address with the provider's [prefix](Offers::prefix); of a template, the template (RFC
    /// 6570).
    pub uri: String,
    /// Whether it is a template.
    pub is_template: bool,
    /// Its name.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the resource.
    pub description: Option<String>,
    /// Its media type.
    pub media_type: Option<String>,
}
