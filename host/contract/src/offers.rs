//! The prompts and resources that a source offers in addition to tools.

use serde::{Deserialize, Serialize};

/// Prompts and resources that a source offers in addition to tools.
///
/// Front ends list the offers. To get an offer, the host calls one of the source's tools, so all
/// rules for calls apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offers {
    /// The prompts. A call of [`prompter`](Self::prompter) returns a prompt.
    pub prompts: Vec<PromptOffer>,
    /// The tool that returns a prompt. Its arguments are `name` (the source's name of the prompt)
    /// and `arguments` (an object of strings). Each part of its answer is a message, and the meta
    /// of a part can name the message's `role`.
    pub prompter: String,
    /// The resources, and templates for resources.
    pub resources: Vec<ResourceOffer>,
    /// The tool that reads a resource. Its argument `uri` is the source's address of the resource.
    pub reader: String,
    /// The prefix of the resources' addresses. The source's own address follows.
    pub prefix: String,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptOffer {
    /// The name of the prompt, unique in the host.
    pub name: String,
    /// The source's own name of the prompt.
    pub own_name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the prompt.
    pub description: Option<String>,
    /// The arguments of the prompt.
    pub arguments: Vec<PromptOfferArgument>,
}

/// An argument of a prompt. Its value is a string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptOfferArgument {
    /// The name of the argument.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the argument.
    pub description: Option<String>,
    /// Whether the argument is required.
    pub required: bool,
}

/// A resource, or a template for resource addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOffer {
    /// The address with the [prefix](Offers::prefix), or an RFC 6570 template.
    pub uri: String,
    /// Whether `uri` is a template.
    pub is_template: bool,
    /// The name of the resource.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the resource.
    pub description: Option<String>,
    /// The media type of the resource.
    pub media_type: Option<String>,
}
