//! Colours, which `anstream` leaves out where nobody sees them: no terminal, `NO_COLOR`,
//! `TERM=dumb`.

use anstyle::{AnsiColor, Style};

/// Names and headings.
pub(crate) const STRONG: Style = Style::new().bold();
/// What is there for those who look for it.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// It worked.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// It is not as somebody wants it.
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// It failed.
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
