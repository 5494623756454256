//! Colours the text of a question for a terminal.

use anstyle::Style;
use toolhold_core::{Mark, Question};

use crate::style::{BAD, FAINT, GOOD, STRONG, WARNING};

pub(crate) fn question(question: &Question) -> String {
    question.to_text_with(&coloured) + &question.always_to_text_with(&coloured)
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
