//! A question at a terminal: its words, in colours.

use anstyle::Style;
use berth_core::{Mark, Question};

use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};

/// Everything that a yes would allow, why it is asked, and what `always` would write.
pub(crate) fn question(question: &Question) -> String {
    question.marked(&coloured) + &question.marked_always(&coloured)
}

fn coloured(mark: Mark, text: &str) -> String {
    let style: Style = match mark {
        Mark::Strong => STRONG,
        Mark::Faint => FAINT,
        Mark::Added => GOOD,
        Mark::Removed => BAD,
        Mark::Warning => WARNING,
    };
    format!("{style}{text}{style:#}")
}
