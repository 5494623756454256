use schemars::{JsonSchema, Schema};
use serde::de::DeserializeOwned;

use crate::{Call, Failure, Output};

/// One tool.
///
/// It is a type without data: every call gets its own sandbox, so no data outlives a call.
pub trait Tool {
    /// `[a-z0-9_-]`, at most 38 characters, unique in the plugin. Callers see it behind the
    /// plugin's name and `__`.
    const NAME: &'static str;

    /// A name for people.
    const TITLE: Option<&'static str> = None;

    /// What it does, when to use it, what it returns, how it fails: at most 4 KiB. Models choose
    /// tools by it.
    const DESCRIPTION: &'static str;

    /// How the tool behaves. By default a tool counts as acting, destructive and open to the world.
    const ANNOTATIONS: Annotations = Annotations::ACTING;

    /// Which arguments say what a call acts on. The operator's permissions match on them, prompts
    /// and the audit show them.
    const SUBJECTS: &'static [Subject] = &[];

    /// Other names of the tool, which resolve but are not listed. They count only for built-in
    /// plugins.
    const ALIASES: &'static [&'static str] = &[];

    /// Other names of arguments, under which models and programs know them:
    /// `("command", &["cmd", "script"])`. A call that uses one means the argument itself, and the
    /// host puts it under its own name before it looks at anything: tool and rules see no other.
    /// None may be the name of another argument.
    const ARGUMENT_ALIASES: &'static [(&'static str, &'static [&'static str])] = &[];

    /// The argument that is meant where the arguments are one text instead of an object.
    const BARE_ARGUMENT: Option<&'static str> = None;

    /// The argument that takes a glob over paths, and the one that names the folder where it
    /// begins: `("pattern", "path")`. Where a call has an absolute glob and names no folder, the
    /// host parts it before its first wildcard (`/src/*.rs` becomes `/src` and `./*.rs`), so that
    /// the folder is checked like any other that a call acts on.
    const PATTERN_BASE: Option<(&'static str, &'static str)> = None;

    /// When a call of an acting tool only looks: where each of these arguments, by its RFC 6901
    /// pointer, has one of the values. The host then holds the call to it, as it does for a tool
    /// that is read-only. It counts only for built-in plugins.
    const READS_WHEN: &'static [(&'static str, &'static [&'static str])] = &[];

    /// What a call changes, for the diff that a person sees before approving it. It counts only for
    /// built-in plugins.
    const PREVIEW: Option<Preview> = None;

    /// The tag of a fenced block by which a model without native tool use calls it.
    const FENCE: Option<&'static str> = None;

    /// Whether a model should read the text of an answer, and the structured value beside it is for
    /// programs. A front end whose models may see only one of the two then leaves out the value. A
    /// tool without an output schema always answers in text.
    const ANSWERS_IN_TEXT: bool = false;

    /// The arguments. Their JSON Schema is what callers see
    /// ([`schema::for_arguments`](crate::schema::of_arguments)): doc comments become descriptions,
    /// and an `Option` is an argument that may be left out. `#[serde(deny_unknown_fields)]` lets a
    /// misspelt name fail instead of passing silently.
    type Arguments: DeserializeOwned + JsonSchema;

    /// The JSON Schema of [`Output::structured`], where the tool always gives it:
    /// `Some(berth_sdk::schema::for_type::<Answer>())`.
    fn output_schema() -> Option<Schema> {
        None
    }

    /// Does the work.
    ///
    /// # Errors
    ///
    /// Why the tool couldn't do it. The model reads it.
    fn call(arguments: Self::Arguments, call: &Call) -> Result<Output, Failure>;
}

/// How a tool behaves, in the meanings of MCP's tool annotations.
///
/// Start from [`READ_ONLY`](Self::READ_ONLY) or [`ACTING`](Self::ACTING):
///
/// ```
/// use berth_sdk::Annotations;
///
/// const WRITES_A_FILE: Annotations = Annotations { open_world: false, idempotent: true, ..Annotations::ACTING };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotations {
    /// Changes nothing. Enforced by the host: every directory of such a call is read-only.
    pub read_only: bool,
    /// May destroy what is there.
    pub destructive: bool,
    /// Calling it again with the same arguments changes nothing more.
    pub idempotent: bool,
    /// Deals with things outside the machine.
    pub open_world: bool,
    /// The answer may be cached while its sources stay the same.
    pub cacheable: bool,
}

impl Annotations {
    /// Read-only, idempotent, nothing outside the machine.
    pub const READ_ONLY: Self = Self {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
        cacheable: false,
    };

    /// The strictest: acts, may destroy, reaches the world.
    pub const ACTING: Self = Self {
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
        cacheable: false,
    };
}

/// The names of the arguments that say how a file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preview {
    /// All that the file holds is replaced.
    Whole {
        /// The file.
        file: &'static str,
        /// What it shall hold.
        content: &'static str,
    },
    /// A text in the file is replaced by another.
    Part {
        /// The file.
        file: &'static str,
        /// The text.
        old: &'static str,
        /// What takes its place.
        new: &'static str,
        /// Whether it does so wherever the text stands.
        all: &'static str,
    },
}

/// An argument that says what a call acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// RFC 6901 pointer into the arguments, to a string or an array of strings: `/path`. An
    /// argument that is absent is no subject.
    pub pointer: &'static str,
    /// What the argument names.
    pub kind: SubjectKind,
    /// What is done to it.
    pub access: Access,
}

impl Subject {
    /// A file or directory that is read. The host checks it before the tool runs, and the tool gets
    /// it absolute.
    pub const fn reads_path(pointer: &'static str) -> Self {
        Self { pointer, kind: SubjectKind::Path, access: Access::Read }
    }

    /// A file or directory that is made, changed, moved or removed. Otherwise as
    /// [`reads_path`](Self::reads_path).
    pub const fn writes_path(pointer: &'static str) -> Self {
        Self { pointer, kind: SubjectKind::Path, access: Access::Write }
    }

    /// A name that is made, replaced or taken away: where it is a link, the link itself, not what
    /// it leads to. Otherwise as [`writes_path`](Self::writes_path).
    pub const fn changes_name(pointer: &'static str) -> Self {
        Self { pointer, kind: SubjectKind::Name, access: Access::Write }
    }

    /// Any other kind.
    pub const fn new(pointer: &'static str, kind: SubjectKind, access: Access) -> Self {
        Self { pointer, kind, access }
    }
}

/// What a subject names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// A file or directory.
    Path,
    /// A file or directory, or the link itself where it is one.
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

/// What is done to a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is looked at.
    Read,
    /// It is made, changed, moved or removed.
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
