//! Colours, which `anstream` removes if they can't be shown: no terminal, `NO_COLOR`, `TERM=dumb`.

use std::fmt;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use berth_core::text::neutral;

/// Names and headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// Details.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// Success.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// A warning.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// A failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Prints a warning on stderr.
pub(crate) fn warn(text: &str) -> io::Result<()> {
    writeln!(anstream::stderr(), "{}", Message("warning", text))
}

/// Prints on stderr what a person may want to know.
pub(crate) fn note(text: &str) -> io::Result<()> {
    writeln!(anstream::stderr(), "{}", Message("note", text))
}

/// A message of a kind, in the one form that all have: no further line of it looks like another
/// message.
pub(crate) struct Message<'a>(pub(crate) &'static str, pub(crate) &'a str);

impl fmt::Display for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(kind, text) = self;
        let style = if *kind == "error" { BAD } else { WARNING };
        write!(f, "{style}{kind}{style:#}: {}", neutral(text).trim_end().replace('\n', "\n  "))
    }
}
