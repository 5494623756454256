//! The `Tool` trait of a Rust plugin, with a tool's promises, subjects and preview.

use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;

use crate::{Call, Failure, Output};

/// One tool.
///
/// A tool is a type without data: every call gets its own sandbox, and no data outlives a call.
pub trait Tool {
    /// The name: `[a-z0-9_-]`, at most 38 characters, unique in the plugin. Callers see it after
    /// the plugin's name and `__`.
    const NAME: &'static str;

    /// A name for people.
    const TITLE: Option<&'static str> = None;

    /// A description for models, by which they choose tools: what the tool does, when to use it,
    /// what it returns and how it fails. At most 4 KiB.
    const DESCRIPTION: &'static str;

    /// The promises of the tool about its calls. By default it promises nothing.
    const PROMISES: Promises = Promises::NONE;

    /// The arguments that say what a call acts on. The operator's permissions match on them.
    /// Prompts and the audit show them.
    const SUBJECTS: &'static [Subject] = &[];

    /// Other names of the tool. They resolve, but they aren't listed. The host honours them for
    /// built-in plugins only.
    const ALIASES: &'static [&'static str] = &[];

    /// Other names of arguments that models and programs use: `("command", &["cmd", "script"])`.
    /// The host renames such an argument before anything else, so that the tool and the rules see
    /// only its own name. An alias can't be the name of another argument.
    const ARGUMENT_ALIASES: &'static [(&'static str, &'static [&'static str])] = &[];

    /// The argument that gets the text if the arguments are one text instead of an object.
    const BARE_ARGUMENT: Option<&'static str> = None;

    /// The argument that takes a glob over paths, and the argument that names the folder where the
    /// glob starts: `("pattern", "path")`. If a call has an absolute glob and no folder, the host
    /// splits the glob before its first wildcard (`/src/*.rs` becomes `/src` and `./*.rs`). So the
    /// folder is checked like every other path of a call.
    const PATTERN_BASE: Option<(&'static str, &'static str)> = None;

    /// The argument with the time limit of the call: a number of seconds. The host then sets the
    /// deadline of the call by it.
    const TIMEOUT_ARGUMENT: Option<&'static str> = None;

    /// The argument, a boolean, with which a call says that its commands need the network. The
    /// operator's rules decide on it.
    const NETWORK_ARGUMENT: Option<&'static str> = None;

    /// The arguments that the tool keeps after the call. The host redacts secrets in them before
    /// the tool gets them.
    const KEPT_ARGUMENTS: &'static [&'static str] = &[];

    /// When a call of an acting tool only reads: if each of these arguments has one of the values.
    /// A missing argument counts as its default. The host enforces it, as it does for a read-only
    /// tool.
    const READS_WITH: &'static [(&'static str, &'static [&'static str])] = &[];

    /// The arguments that say what a call changes, for the diff that a person sees before approving
    /// it. The host honours them for built-in plugins only.
    const PREVIEW: Option<Preview> = None;

    /// The tag of a fenced block by which a model without native tool use calls the tool.
    const FENCE: Option<&'static str> = None;

    /// Whether models should read the text of an answer, and only programs the structured value. A
    /// front end that can show a model only one of the two then leaves out the value. A tool
    /// without an output schema always answers in text.
    const ANSWERS_IN_TEXT: bool = false;

    /// The arguments. Callers see their JSON Schema
    /// ([`schema::for_arguments`](crate::schema::for_arguments)). Doc comments become descriptions.
    /// An `Option` is an argument that may be left out. `#[serde(deny_unknown_fields)]` makes a
    /// misspelt name an error.
    type Arguments: DeserializeOwned + JsonSchema;

    /// The JSON Schema of [`Output::structured`], if every answer has it:
    /// `Some(toolhold_sdk::schema::for_type::<Answer>())`.
    fn output_schema() -> Option<Schema> {
        None
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// If the tool can't do its work. The model reads the failure.
    fn call(arguments: Self::Arguments, call: &Call) -> Result<Output, Failure>;
}

/// The promises of a tool about its calls. Without a promise, the opposite is assumed. Except
/// `read_only`, promises count for built-in and approved plugins only.
///
/// Start from [`READ_ONLY`](Self::READ_ONLY) or [`NONE`](Self::NONE):
///
/// ```
/// use toolhold_sdk::Promises;
///
/// const WRITES_A_FILE: Promises =
///     Promises { closed_world: true, idempotent: true, ..Promises::NONE };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The tool changes nothing. The host enforces this: every directory of such a call is
    /// read-only.
    pub read_only: bool,
    /// The tool may change things, but destroys nothing.
    pub additive: bool,
    /// A second call with the same arguments changes nothing more.
    pub idempotent: bool,
    /// The tool reaches nothing outside the machine.
    pub closed_world: bool,
    /// The answer may be used again while nothing that it was made of has changed.
    pub cacheable: bool,
}

impl Promises {
    /// No promise: the strictest.
    pub const NONE: Self = Self {
        read_only: false,
        additive: false,
        idempotent: false,
        closed_world: false,
        cacheable: false,
    };

    /// Of a tool that only reads, and nothing outside the machine.
    pub const READ_ONLY: Self = Self {
        read_only: true,
        additive: true,
        idempotent: true,
        closed_world: true,
        cacheable: false,
    };

    /// The names in the contract.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.read_only, "read-only"),
            (self.additive, "additive"),
            (self.idempotent, "idempotent"),
            (self.closed_world, "closed-world"),
            (self.cacheable, "cacheable"),
        ];
        all.into_iter().filter(|(is_made, _)| *is_made).map(|(_, name)| name)
    }
}

/// The names of the arguments that say how a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preview {
    /// The whole content of the file is replaced.
    Whole {
        /// The argument with the file.
        file: &'static str,
        /// The argument with the new content.
        content: &'static str,
    },
    /// A text in the file is replaced by another.
    Part {
        /// The argument with the file.
        file: &'static str,
        /// The argument with the old text.
        old: &'static str,
        /// The argument with the new text.
        new: &'static str,
        /// The argument that says whether to replace every occurrence.
        all: &'static str,
    },
}

/// An argument that says what a call acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// RFC 6901 pointer into the arguments, to a string or an array of strings: `/path`. If the
    /// argument is absent, the call doesn't have this subject.
    pub pointer: &'static str,
    /// The kind of thing that the argument names.
    pub kind: SubjectKind,
    /// The access of the tool to it.
    pub access: Access,
}

impl Subject {
    /// A file or directory that is read. The host checks the path before the tool runs, and makes
    /// it absolute.
    pub const fn reads_path(pointer: &'static str) -> Self {
        Self { pointer, kind: SubjectKind::Path, access: Access::Read }
    }

    /// A file or directory that is created, changed, moved or removed. Otherwise the same as
    /// [`reads_path`](Self::reads_path).
    pub const fn writes_path(pointer: &'static str) -> Self {
        Self { pointer, kind: SubjectKind::Path, access: Access::Write }
    }

    /// A name that is created, replaced or removed. If it is a link, it means the link and not the
    /// target. Otherwise the same as [`writes_path`](Self::writes_path).
    pub const fn changes_name(pointer: &'static str) -> Self {
        Self { pointer, kind: SubjectKind::Name, access: Access::Write }
    }

    /// A subject of any kind.
    pub const fn new(pointer: &'static str, kind: SubjectKind, access: Access) -> Self {
        Self { pointer, kind, access }
    }
}

/// The kind of thing that a subject names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// A file or directory.
    Path,
    /// A file or directory, or a link and not its target.
    Name,
    /// A URL.
    Url,
    /// A shell command.
    Command,
    /// Any other text.
    Text,
}

impl SubjectKind {
    /// The name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Name => "name",
            Self::Url => "url",
            Self::Command => "command",
            Self::Text => "text",
        }
    }
}

/// The access of a tool to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The tool reads it.
    Read,
    /// The tool creates, changes, moves or removes it.
    Write,
}

impl Access {
    /// The name in the contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}
