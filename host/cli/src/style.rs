//! Colours, which `anstream` removes if they can't be shown: no terminal, `NO_COLOR`, `TERM=dumb`.

use anstyle::{AnsiColor, Style};

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
