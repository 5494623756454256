//! An entry of the memory: its key, content, category and origin, and how a document holds them.

use serde::{Deserialize, Serialize};
use toolhold_sdk::Failure;
use toolhold_sdk::index::Document;

use crate::scope::Scope;

/// Most characters of an entry.
pub(crate) const MAX_CONTENT: usize = 4096;

/// Most characters of a key.
const MAX_KEY: usize = 64;

/// The beginning of keys that are made of the content, and the number of digits that follow.
const MADE: &str = "m-";
const MADE_DIGITS: usize = 12;

/// Where an entry comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Seconds since 1970.
    pub(crate) time: i64,
    /// The ID of the call, as in the audit.
    pub(crate) call: String,
    /// The front end of the caller.
    pub(crate) front_end: String,
    /// The agent that called, unless it was the primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The version of this plugin.
    pub(crate) version: String,
    pub(crate) category: Category,
    /// Whether the session had been given untrusted text.
    pub(crate) untrusted: bool,
    /// Whether the document's text begins with a line that is the key, so that its words are found.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) keyed: bool,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Category {
    Core,
    Daily,
    Conversation,
}

impl Category {
    /// The category with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let name = name.trim().to_ascii_lowercase();
        [Self::Core, Self::Daily, Self::Conversation].into_iter().find(|one| one.as_str() == name)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Daily => "daily",
            Self::Conversation => "conversation",
        }
    }

    /// The tag of its entries.
    pub(crate) fn tag(self) -> String {
        format!("category:{}", self.as_str())
    }
}

/// An entry that was found.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) scope: Scope,
    pub(crate) content: String,
    pub(crate) origin: Origin,
}

impl Entry {
    /// The entry of a document of `scope`, whose keys begin with `prefix`. What can't be read is
    /// untrusted.
    pub(crate) fn read(document: Document, scope: Scope, prefix: &str) -> Self {
        let origin = serde_json::from_slice(&document.data).unwrap_or_else(|_| Origin {
            time: 0,
            call: String::new(),
            front_end: String::new(),
            agent: None,
            version: String::new(),
            category: Category::Core,
            untrusted: true,
            keyed: false,
        });
        let key = document.key.strip_prefix(prefix).unwrap_or(&document.key).to_owned();
        let content = content(&document.text, origin.keyed).to_owned();
        Self { key, scope, content, origin }
    }
}

/// The content in the text of a document.
pub(crate) fn content(text: &str, keyed: bool) -> &str {
    match text.split_once('\n') {
        Some((_, content)) if keyed => content,
        _ => text,
    }
}

/// The text of a document.
pub(crate) fn with_key(key: &str, content: &str, keyed: bool) -> String {
    if keyed { format!("{key}\n{content}") } else { content.to_owned() }
}

/// The key of an entry whose author named none. `digest`: that of its content.
pub(crate) fn made_key(digest: &str) -> String {
    format!("{MADE}{}", &digest[..MADE_DIGITS])
}

/// Whether an author chose a key, so that its words say something of the content.
pub(crate) fn is_chosen(key: &str) -> bool {
    let digits = key.strip_prefix(MADE).filter(|digits| digits.len() == MADE_DIGITS);
    !digits.is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Checks a key. A key has no spaces, so that it can't be a sentence in an answer.
///
/// # Errors
///
/// The key is empty, too long, or has other characters.
pub(crate) fn check_key(key: &str) -> Result<(), Failure> {
    let length = key.chars().count();
    let wrong = match key.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-/".contains(*c))) {
        // The host has removed a secret before.
        Some('[') if key.contains("[REDACTED:") => "looks like a secret".to_owned(),
        Some(wrong) => format!("has {wrong:?}"),
        None if (1..=MAX_KEY).contains(&length) => return Ok(()),
        None => format!("is {length} characters"),
    };
    Err(Failure::invalid(format!(
        "the key {wrong}; it needs 1 to {MAX_KEY} of letters, digits, `.`, `_`, `-` and `/`"
    ))
    .with_suggestion("Use a short name such as `deploy-command`, or leave the key out."))
}

/// A short name of a content, the same for the same content.
pub(crate) fn digest(content: &str) -> String {
    // FNV-1a of 128 bits is enough: an attacker gains nothing from two contents with one name,
    // since each stays in its own scope.
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    for byte in content.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
    }
    format!("{hash:032x}")
}
