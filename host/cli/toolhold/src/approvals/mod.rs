//! `toolhold approvals`: lists the calls that need approval, and answers them.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolhold_core::audit;
use toolhold_core::config::{self, Folders};
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{
    Always, HostError, PostedQuestion, Proposal, Question, Questions, Reply, Scope, Wider,
};

use crate::arguments::{AllowCallArguments, ApprovalsArguments, ApprovalsCommand};
use crate::asking::{ask_until_answered, shown};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::style::{FAINT, STRONG, warn};
use crate::{ask, shown as plain};

/// The name of the person who answers, for the audit.
const BY: &str = "toolhold approvals";

/// Runs the command.
pub(crate) fn run(arguments: &ApprovalsArguments, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let desk = Desk { questions: Questions::open(&folders), folders, options };
    let waiting = desk.waiting()?;
    match &arguments.answer {
        Some(ApprovalsCommand::Allow(allow)) => {
            let reply = Reply::Yes { scope: scope_of(allow), by: BY.to_owned() };
            desk.answer(find(&waiting, &allow.id)?, reply)?;
        }
        Some(ApprovalsCommand::Deny { id, because }) => {
            let reason = because.clone().unwrap_or_default();
            desk.answer(find(&waiting, id)?, Reply::No { by: BY.to_owned(), reason })?;
        }
        None if arguments.json => writeln!(std::io::stdout().lock(), "{}", json!(waiting))?,
        None if waiting.is_empty() => writeln!(anstream::stdout(), "No call waits for approval.")?,
        None if std::io::stdout().is_terminal() => return desk.ask_each(&waiting),
        None => list(&waiting)?,
    }
    Ok(Exit::Success)
}

/// Returns how much the flags approve.
fn scope_of(allow: &AllowCallArguments) -> Scope {
    if allow.always {
        match (allow.tool, allow.all) {
            (true, _) => Scope::AlwaysTool,
            (_, true) => Scope::AlwaysSource,
            _ => Scope::Always,
        }
    } else if allow.session {
        match (allow.tool, allow.all) {
            (true, _) => Scope::SessionTool,
            (_, true) => Scope::SessionSource,
            _ => Scope::Session,
        }
    } else {
        Scope::Once
    }
}

/// The stored questions.
struct Desk<'a> {
    questions: Questions,
    folders: Folders,
    options: &'a Options,
}

impl Desk<'_> {
    /// Reads the open questions. An invalid file is skipped with a warning.
    fn waiting(&self) -> Result<Vec<PostedQuestion>, Error> {
        let (waiting, wrong) = self.questions.waiting()?;
        for error in wrong {
            warn(&neutral_line(&error.to_string()))?;
        }
        Ok(waiting)
    }

    /// Asks about each question in turn. Without a terminal, the questions are listed.
    fn ask_each(&self, waiting: &[PostedQuestion]) -> Result<Exit, Error> {
        let Some(mut dialogue) =
            ask::open_dialogue("your answers are saved, and the other calls still wait")
        else {
            list(waiting)?;
            return Ok(Exit::Success);
        };
        for posted in waiting {
            dialogue.print(head(posted).trim_end())?;
            let reply = ask_until_answered(&mut dialogue, &posted.question, BY)?;
            self.answer(posted, reply)?;
        }
        Ok(Exit::Success)
    }

    fn answer(&self, posted: &PostedQuestion, reply: Reply) -> Result<(), Error> {
        let loaded =
            config::load(&self.folders, &self.options.inputs()?).map_err(HostError::from)?;
        let rule = permanent_rule(&posted.question, &reply)?;
        audit::record_answer(&loaded, &self.folders, &posted.question, &reply, BY)?;
        let settings = loaded.values.approvals;
        let mut out = anstream::stdout();
        let result = match &reply {
            Reply::Yes { scope: Scope::Once, .. } => "allowed, once",
            Reply::Yes { scope: Scope::Session, .. } => "allowed for the session",
            Reply::Yes { scope: Scope::SessionTool, .. } => "allowed for the session, for its tool",
            Reply::Yes { scope: Scope::SessionSource, .. } => {
                "allowed for the session, for every tool of its plugin or server"
            }
            Reply::Yes { .. } => "allowed permanently",
            Reply::No { .. } | Reply::Unasked(_) => "denied",
        };
        if let Some(rule) = rule {
            let file = rule.write(&self.folders)?;
            write!(out, "In {}:\n{}", plain::path(&file), neutral(&rule.text()))?;
        }
        self.questions.answer(posted, reply, Duration::from_secs(settings.expire_secs.get()))?;
        writeln!(out, "{} is {result}.", neutral_line(&posted.id))?;
        Ok(())
    }
}

/// Returns the rule that a permanent approval writes. Returns `None` for other replies.
///
/// # Errors
///
/// The question doesn't offer this approval.
fn permanent_rule<'q>(
    question: &'q Question,
    reply: &Reply,
) -> Result<Option<&'q Proposal>, Error> {
    let Reply::Yes { scope, .. } = reply else { return Ok(None) };
    let wider = question.wider.as_ref();
    let offered = match scope {
        Scope::Once | Scope::Session => return Ok(None),
        Scope::SessionTool | Scope::SessionSource if wider.is_some() => return Ok(None),
        Scope::SessionTool | Scope::SessionSource => None,
        Scope::Always => match &question.always {
            Always::Writes(proposal) => Some(proposal),
            Always::Unavailable(why) => {
                return Err(Error::Usage(format!(
                    "`--always` isn't possible for this call: {why}"
                )));
            }
        },
        Scope::AlwaysTool => wider.and_then(Wider::tool),
        Scope::AlwaysSource => wider.and_then(Wider::all),
    };
    match offered {
        Some(proposal) => Ok(Some(proposal)),
        None => Err(Error::Usage(
            "`--tool` and `--all` aren't possible for this call: only the call itself can be \
             approved, or a rule would not be enough"
                .to_owned(),
        )),
    }
}

fn list(waiting: &[PostedQuestion]) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    for posted in waiting {
        write!(out, "{}{}", head(posted), shown::question(&posted.question))?;
        writeln!(out)?;
    }
    writeln!(out, "To approve: toolhold approvals allow ID. To deny: toolhold approvals deny ID.")?;
    Ok(())
}

fn head(posted: &PostedQuestion) -> String {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since_epoch.unwrap_or_default().as_secs();
    let ago = now.saturating_sub(posted.asked);
    let left = posted.until.saturating_sub(now);
    let session = neutral_line(&posted.question.session);
    format!(
        "{STRONG}{}{STRONG:#}  {FAINT}{session}, asked {ago} s ago, expires in {left} s{FAINT:#}\n",
        neutral_line(&posted.id)
    )
}

/// Finds the only question whose ID begins with `id`.
fn find<'a>(waiting: &'a [PostedQuestion], id: &str) -> Result<&'a PostedQuestion, Error> {
    let matches: Vec<&PostedQuestion> =
        waiting.iter().filter(|posted| !id.is_empty() && posted.id.starts_with(id)).collect();
    match matches[..] {
        [posted] => Ok(posted),
        [] => Err(Error::Usage(format!(
            "no waiting call has the ID {id}; `toolhold approvals` lists the waiting calls"
        ))),
        _ => Err(Error::Usage(format!("more than one ID begins with {id}; write more digits"))),
    }
}
