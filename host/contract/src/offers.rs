//! The prompts and resources that a source offers in addition to tools.

use serde::{Deserialize, Serialize};

/// Offers of a provider in addition to its tools: prompts for people, and resources to read.
///
/// Front ends list the offers. The host gets an offer by calling one of the provider's tools, so
/// all rules for calls apply to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offers {
    /// The prompts. A call of [`prompter`](Self::prompter) returns a prompt.
    pub prompts: Vec<PromptOffer>,
    /// The tool that returns a prompt. Its arguments are `name`, the provider's own name of the
    /// prompt, and `arguments`, an object of strings. Each part of its answer is a message, and the
    /// part's meta can name the `role`.
    pub prompter: String,
    /// The resources, and templates for resources.
    pub resources: Vec<ResourceOffer>,
    /// The tool that reads a resource. Its argument `uri` is the provider's own address of the
    /// resource.
    pub reader: String,
    /// The prefix of the resources' addresses. The provider's own address follows.
    pub prefix: String,
}

/// A prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptOffer {
    /// The name of the prompt, unique in the host.
    pub name: String,
    /// The provider's own name of the prompt.
    pub own_name: String,
    /// A title for people.
    pub title: Option<String>,
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// The arguments of the prompt.
    pub arguments: Vec<PromptOfferArgument>,
}

/// An argument of a prompt, which is a string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptOfferArgument {
    /// Its name.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the argument.
    pub description: Option<String>,
    /// Whether the argument is required.
    pub required: bool,
}

/// A resource, or a template for the addresses of some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceOffer {
    /// The address of the resource with the provider's [prefix](Offers::prefix), or the template
    /// (RFC 6570).
    pub uri: String,
    /// Whether `uri` is a template.
    pub is_template: bool,
    /// Its name.
    pub name: String,
    /// A title for people.
    pub title: Option<String>,
    /// A description of the resource.
    pub description: Option<String>,
    /// The media type of the resource.
    pub media_type: Option<String>,
}
