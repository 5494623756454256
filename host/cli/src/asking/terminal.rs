use std::io::{BufRead, Write};

use berth_host::{Always, Question, Reply, Scope};

use super::shown;
use crate::ask::Dialogue;
use crate::error::Error;

/// Shows a question and asks until the answer is one. Enter says no.
pub(crate) fn answered<R: BufRead, W: Write>(dialogue: &mut Dialogue<R, W>, question: &Question, by: &str) -> Result<Reply, Error> {
    dialogue.tell(shown::question(question).trim_end())?;
    let always = matches!(question.always, Always::Writes(_));
    let choice = if always { "[y/session/always/N]" } else { "[y/session/N]" };
    loop {
        let yes = |scope| Ok(Reply::Yes { scope, by: by.to_owned() });
        match dialogue.ask(&format!("Allow it? {choice}"))?.to_ascii_lowercase().as_str() {
            "y" | "yes" => return yes(Scope::Once),
            "s" | "session" => return yes(Scope::Session),
            "a" | "always" if always => return yes(Scope::Always),
            "" | "n" | "no" => return Ok(Reply::No { by: by.to_owned() }),
            _ if always => dialogue.tell("  Please answer y (this call), session (calls that are the same), always, or n.")?,
            _ => dialogue.tell("  Please answer y (this call), session (calls that are the same), or n.")?,
        }
    }
}
