//! Chooses how a command asks for approval: not at all with `--yes`, at the terminal, or with a
//! posted question.

mod shown;
mod terminal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use toolhold_core::config::{Config, Folders};
use toolhold_core::{
    Approver, BoxFuture, Inquiry, InquiryAnswer, PostingApprover, Question, Questions, Reply, Scope,
};
use toolhold_terminal::{approval, inquiry};

pub(crate) use terminal::ask_until_answered;

pub(crate) enum Asker {
    /// `--yes` is set. It also answers a posted question about the call.
    Yes(Questions),
    /// `--yes` is set, but a configuration file forbids it. The string names this file.
    YesForbidden(String),
    /// The person is asked at the terminal.
    Terminal(Questions),
    /// There is no terminal, so the question is posted for `toolhold approvals`. The string says
    /// how to use `--yes`. It is `None` if the configuration forbids `--yes`.
    Elsewhere(PostingApprover, Option<&'static str>),
}

impl Asker {
    /// Makes the approver of a single call. `has_yes` says whether `--yes` is set.
    pub(crate) fn approver(has_yes: bool, folders: &Folders, loaded: &Config) -> Arc<dyn Approver> {
        let posting = PostingApprover::new(folders, &loaded.values.approvals);
        Self::posting_to(posting, "repeat the call with `--yes`", has_yes, folders, loaded)
    }

    /// Makes the approver of an agent's calls. `has_yes` says whether `--yes` is set.
    pub(crate) fn agent_approver(
        has_yes: bool,
        folders: &Folders,
        loaded: &Config,
    ) -> Arc<dyn Approver> {
        // After the approval, the person continues the task, and the model repeats the call.
        let posting = PostingApprover::new(folders, &loaded.values.approvals)
            .and_then("`toolhold run --continue again`");
        Self::posting_to(posting, "start with `--yes`", has_yes, folders, loaded)
    }

    /// Makes the approver. If nobody can be asked, the reply also says how the person can use
    /// `--yes` next time, which is `how_to_use_yes`. `has_yes` says whether `--yes` is set.
    fn posting_to(
        posting: PostingApprover,
        how_to_use_yes: &'static str,
        has_yes: bool,
        folders: &Folders,
        loaded: &Config,
    ) -> Arc<dyn Approver> {
        let is_yes_allowed = loaded.values.approvals.yes_flag;
        let questions = Questions::open(folders);
        let asker = if has_yes && is_yes_allowed {
            Self::Yes(questions)
        } else if has_yes {
            Self::YesForbidden(loaded.place("approvals.yes_flag"))
        } else if crate::ask::is_watched() {
            Self::Terminal(questions)
        } else {
            Self::Elsewhere(posting, is_yes_allowed.then_some(how_to_use_yes))
        };
        Arc::new(asker)
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
                // If the caller stops waiting, `given_up` is dropped together with this future,
                // which ends the question.
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
            Self::Elsewhere(posting, how_to_use_yes) => {
                match (posting.ask(question).await, how_to_use_yes) {
                    (Reply::Unasked(why), Some(how_to_use_yes)) => {
                        Reply::Unasked(format!("{why}; or {how_to_use_yes}"))
                    }
                    (reply, _) => reply,
                }
            }
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
                    // If the caller stops waiting, `given_up` is dropped together with this future,
                    // which ends the question.
                    let given_up = GivenUp::default();
                    let is_over = Arc::clone(&given_up.0);
                    let answer =
                        tokio::task::spawn_blocking(move || inquiry::ask(&inquiry, is_over));
                    match answer.await {
                        Ok(answer) => answer,
                        Err(error) => InquiryAnswer::Unanswered(error.to_string()),
                    }
                }
                Self::Yes(_) | Self::YesForbidden(_) | Self::Elsewhere(..) => {
                    InquiryAnswer::Unanswered("there is no terminal to ask at".to_owned())
                }
            }
        })
    }

    fn waits(&self) -> bool {
        match self {
            Self::Yes(_) | Self::YesForbidden(_) => false,
            Self::Terminal(_) => true,
            Self::Elsewhere(posting, _) => posting.waits(),
        }
    }
}

/// Ends a question that nobody waits for, for example after Ctrl-C. Otherwise, the old question
/// would take the next input.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks the person, unless `toolhold approvals` has already answered. The question ends when
/// `is_over` becomes `true`.
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
            Reply::Unasked(message.unwrap_or_else(|| "the terminal was closed".to_owned()))
        }
    }
}
