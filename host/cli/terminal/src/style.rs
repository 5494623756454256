//! The colours of the output, and warnings. `anstream` removes the colours if there is no terminal,
//! or for `NO_COLOR` and `TERM=dumb`.

use std::fmt;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use toolhold_core::text::neutral;

/// Names and headings.
pub const STRONG: Style = Style::new().bold();
/// Details.
pub const FAINT: Style = Style::new().dimmed();
/// Success.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// A warning.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// A failure.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// An added line of a diff.
pub const ADDED: Style = AnsiColor::Green.on_default();
/// A removed line of a diff.
pub const REMOVED: Style = AnsiColor::Red.on_default();

/// Prints a warning on stderr.
pub fn warn(text: &str) -> io::Result<()> {
    writeln!(anstream::stderr(), "{}", Message("warning", text))
}

/// Prints a note on stderr.
pub fn note(text: &str) -> io::Result<()> {
    writeln!(anstream::stderr(), "{}", Message("note", text))
}

/// A message with its kind, such as `warning`. Later lines are indented, so that they don't look
/// like separate messages.
pub struct Message<'a>(pub &'static str, pub &'a str);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, text) = self;
        let style = if *kind == "error" { BAD } else { WARNING };
        let indented = neutral(text).trim_end().replace('\n', "\n  ");
        write!(f, "{style}{kind}{style:#}: {indented}")
    }
}
