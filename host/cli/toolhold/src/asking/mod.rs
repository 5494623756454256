//! Decides how `toolhold call` gets an approval: with `--yes`, at the terminal, or with a posted
//! question.

pub(crate) mod shown;
mod terminal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toolhold_core::config::{Config, Folders};
use toolhold_core::{
    Approver, BoxFuture, Inquiry, InquiryAnswer, PostingApprover, Question, Questions, Reply, Scope,
};
use toolhold_terminal::{approval, inquiry};

pub(crate) use terminal::ask_until_answered;

/// The way in which `toolhold call` gets an approval.
pub(crate) enum Asker {
    /// The command line has `--yes`, which also answers an earlier question about the call.
    Yes(Questions),
    /// The command line has `--yes`, which this place in the configuration forbids.
    YesForbidden(String),
    /// A person is at the terminal.
    Terminal(Questions),
    /// There is no terminal, but a person may answer with `toolhold approvals`.
    Elsewhere(PostingApprover),
}

impl Asker {
    /// Chooses the approver. `yes` tells whether the command line has `--yes`.
    pub(crate) fn approver(yes: bool, folders: &Folders, loaded: &Config) -> Arc<dyn Approver> {
        let settings = &loaded.values.approvals;
        let questions = Questions::open(folders);
        Arc::new(match (yes, settings.yes_flag) {
            (true, true) => Self::Yes(questions),
            (true, false) => Self::YesForbidden(loaded.place("approvals.yes_flag")),
            (false, _) if crate::ask::is_watched() => Self::Terminal(questions),
            (false, _) => Self::Elsewhere(PostingApprover::new(folders, settings)),
        })
    }

    async fn reply(&self, question: Question) -> Reply {
        match self {
            Self::Yes(questions) => {
                let questions = questions.clone();
                let withdrawal =
                    tokio::task::spawn_blocking(move || approval::withdraw(&questions, &question));
                match withdrawal.await {
                    Ok(()) => Reply::Yes { scope: Scope::Once, by: "--yes".to_owned() },
                    Err(error) => {
                        Reply::Unasked(format!("the earlier question can't be withdrawn: {error}"))
                    }
                }
            }
            Self::YesForbidden(place) => {
                Reply::Unasked(format!("--yes is disabled: `yes_flag = false`, {place}"))
            }
            Self::Terminal(questions) => {
                let questions = questions.clone();
                let given_up = GivenUp::default();
                let is_over = Arc::clone(&given_up.0);
                let reply = tokio::task::spawn_blocking(move || {
                    ask_at_terminal(&questions, &question, is_over)
                });
                match reply.await {
                    Ok(reply) => reply,
                    Err(error) => Reply::Unasked(format!("the question can't be asked: {error}")),
                }
            }
            Self::Elsewhere(posting) => match posting.ask(question).await {
                Reply::Unasked(why) => {
                    Reply::Unasked(format!("{why}; or repeat the call with `--yes`"))
                }
                reply => reply,
            },
        }
    }
}

impl Approver for Asker {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(self.reply(question))
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async move {
            match self {
                Self::Terminal(_) => {
                    let given_up = GivenUp::default();
                    let is_over = Arc::clone(&given_up.0);
                    let answer =
                        tokio::task::spawn_blocking(move || inquiry::ask(&inquiry, is_over));
                    match answer.await {
                        Ok(answer) => answer,
                        Err(error) => InquiryAnswer::Unanswered(error.to_string()),
                    }
                }
                _ => InquiryAnswer::Unanswered("there is no terminal to ask at".to_owned()),
            }
        })
    }

    fn waits(&self) -> bool {
        match self {
            Self::Yes(_) | Self::YesForbidden(_) => false,
            Self::Terminal(_) => true,
            Self::Elsewhere(posting) => posting.waits(),
        }
    }
}

/// Ends a question when it is dropped. Then nobody waits for the answer, for example after Ctrl-C,
/// and text that is typed later belongs to the next question.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks the person here, unless the question was answered elsewhere before.
fn ask_at_terminal(questions: &Questions, question: &Question, is_over: Arc<AtomicBool>) -> Reply {
    if let Some(reply) = approval::before_asking(questions, question) {
        return reply;
    }
    let Some(dialogue) = crate::ask::open_dialogue("the call was not run") else {
        return Reply::Unasked("the terminal is closed".to_owned());
    };
    let mut dialogue = dialogue.until(is_over);
    match ask_until_answered(&mut dialogue, question, "terminal") {
        Ok(reply) => {
            approval::withdraw(questions, question);
            reply
        }
        Err(error) => {
            let (_, message) = error.end();
            Reply::Unasked(message.unwrap_or_else(|| "the terminal is gone".to_owned()))
        }
    }
}
