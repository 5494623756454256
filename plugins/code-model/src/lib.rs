//! The results of a parser for a source: definitions, references, and the words of its lines.
//!
//! The parsers are parts, components of their own. The plugin that searches code asks them. Both
//! know these types, and the bytes of a question and its answer. No I/O.

mod chunk;
mod language;
mod wire;
pub mod words;

pub use chunk::{Chunk, chunks};
pub use language::Language;
pub use wire::Malformed;

/// Most bytes of a source that a parser takes. Larger files are generated or data.
pub const MAX_SOURCE: usize = 4 << 20;

/// Most definitions of one source.
pub const MAX_DEFINITIONS: usize = 50_000;

/// Most references of one source.
pub const MAX_REFERENCES: usize = 200_000;

/// Most bytes of a name, and of the path of a container. Longer names are left out.
pub const MAX_NAME: usize = 256;

/// A question to a parser, in addition to the definitions of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParserQuestion {
    /// The chunks, for an index.
    Chunks,
    /// The references.
    References,
}

/// The results for one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// In the order of the source.
    pub definitions: Vec<Definition>,
    /// In the order of the source. Empty unless the [`ParserQuestion`] was for them.
    pub references: Vec<Reference>,
    /// In the order of the source. Empty unless the [`ParserQuestion`] was for them.
    pub chunks: Vec<Chunk>,
    /// Whether a part of the source isn't valid in the language. The text around it was read.
    pub has_errors: bool,
    /// Whether something was left out, since a limit was reached.
    pub limited: bool,
}

/// Something that a source defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its own name, without that of its container.
    pub name: String,
    /// The kind of the definition.
    pub kind: Kind,
    /// The names of its containers, from the outside in, with `.` between them. Empty: the
    /// definition has no container.
    pub container: String,
    /// Its first line, from 1: with the attributes and modifiers that belong to it in the grammar,
    /// without the comment before it.
    pub start: u32,
    /// Its last line, from 1.
    pub end: u32,
    /// The line of its name, from 1.
    pub line: u32,
    /// The bytes of the line before its name.
    pub column: u32,
}

/// A name that a source uses, at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The last part of a path: `c` of `a::b.c`.
    pub name: String,
    /// Its line, from 1.
    pub line: u32,
    /// The bytes of the line before it.
    pub column: u32,
}

/// The kind of a definition. Languages with other kinds use the nearest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A function that belongs to no type.
    Function = 0,
    /// A function of a type, also a constructor.
    Method = 1,
    /// A class, also a record of Java or C#.
    Class = 2,
    /// A struct or a union.
    Struct = 3,
    /// An enumeration.
    Enum = 4,
    /// One value of an enumeration.
    Variant = 5,
    /// An interface, a trait or a protocol.
    Interface = 6,
    /// Another name for a type.
    Type = 7,
    /// A constant.
    Constant = 8,
    /// A variable that is no local one.
    Variable = 9,
    /// A field or a property of a type.
    Field = 10,
    /// A module, a namespace or a package.
    Module = 11,
    /// A macro.
    Macro = 12,
}

impl Kind {
    /// All kinds. The place of a kind is its number.
    pub const ALL: [Self; 13] = [
        Self::Function,
        Self::Method,
        Self::Class,
        Self::Struct,
        Self::Enum,
        Self::Variant,
        Self::Interface,
        Self::Type,
        Self::Constant,
        Self::Variable,
        Self::Field,
        Self::Module,
        Self::Macro,
    ];

    /// Its name for people and models.
    pub fn name(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Method => "method",
            Self::Class => "class",
            Self::Struct => "struct",
            Self::Enum => "enum",
            Self::Variant => "variant",
            Self::Interface => "interface",
            Self::Type => "type",
            Self::Constant => "constant",
            Self::Variable => "variable",
            Self::Field => "field",
            Self::Module => "module",
            Self::Macro => "macro",
        }
    }

    /// The kind with this [`name`](Self::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_the_place_of_their_number() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("gadget"), None);
    }
}
