//! `toolhold approvals`: lists the calls that need approval, and answers them.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolhold_core::audit;
use toolhold_core::config::{self, Folders};
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{
    Always, HostError, PostedQuestion, Proposal, Question, Questions, Reply, Scope, WiderRules,
};
use toolhold_terminal::table::Table;

use crate::arguments::{AllowCallArguments, ApprovalsArguments, ApprovalsCommand};
use crate::asking::ask_until_answered;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::style::{FAINT, STRONG, warn};
use crate::{ask, shown};

/// The approver's name in the audit log.
const BY: &str = "toolhold approvals";

/// Answers the call in the arguments. If the arguments have no answer, lists the waiting calls, or
/// asks about each call at a terminal.
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

fn scope_of(allow: &AllowCallArguments) -> Scope {
    if allow.always {
        if allow.tool {
            Scope::AlwaysTool
        } else if allow.all {
            Scope::AlwaysSource
        } else {
            Scope::Always
        }
    } else if allow.session {
        if allow.tool {
            Scope::SessionTool
        } else if allow.all {
            Scope::SessionSource
        } else {
            Scope::Session
        }
    } else {
        Scope::Once
    }
}

struct Desk<'a> {
    questions: Questions,
    folders: Folders,
    options: &'a Options,
}

impl Desk<'_> {
    fn waiting(&self) -> Result<Vec<PostedQuestion>, Error> {
        let (waiting, errors) = self.questions.waiting()?;
        for error in errors {
            warn(&neutral_line(&error.to_string()))?;
        }
        Ok(waiting)
    }

    /// Asks about each question, or lists the questions if there is no terminal.
    fn ask_each(&self, waiting: &[PostedQuestion]) -> Result<Exit, Error> {
        let Some(mut dialogue) =
            ask::open_dialogue("your answers are saved, and the other calls still wait")
        else {
            list(waiting)?;
            return Ok(Exit::Success);
        };
        for posted in waiting {
            dialogue.print(heading(posted).trim_end())?;
            let reply = ask_until_answered(&mut dialogue, &posted.question, BY)?;
            self.answer(posted, reply)?;
        }
        Ok(Exit::Success)
    }

    /// Records a reply, writes the rule of a permanent approval, and sends the reply to the waiting
    /// call.
    fn answer(&self, posted: &PostedQuestion, reply: Reply) -> Result<(), Error> {
        let loaded =
            config::load(&self.folders, &self.options.inputs()?).map_err(HostError::from)?;
        let rule = permanent_rule(&posted.question, &reply)?;
        audit::record_answer(&loaded, &self.folders, &posted.question, &reply, BY)?;
        let settings = loaded.values.approvals;
        let mut out = anstream::stdout();
        let result = describe_result(&reply);
        if let Some(rule) = rule {
            let file = rule.write(&self.folders)?;
            write!(out, "In {}:\n{}", shown::path(&file), neutral(&rule.text()))?;
        }
        self.questions.answer(posted, reply, Duration::from_secs(settings.expire_secs.get()))?;
        writeln!(out, "{} is {result}.", neutral_line(&posted.id))?;
        Ok(())
    }
}

/// Describes the effect of a reply.
fn describe_result(reply: &Reply) -> &'static str {
    match reply {
        Reply::Yes { scope: Scope::Once, .. } => "allowed once",
        Reply::Yes { scope: Scope::Session, .. } => "allowed for the session",
        Reply::Yes { scope: Scope::SessionTool, .. } => {
            "allowed for the session, together with all calls of the tool"
        }
        Reply::Yes { scope: Scope::SessionSource, .. } => {
            "allowed for the session, for every tool of its plugin or server, except tools \
             that say that they may destroy something"
        }
        Reply::Yes { scope: Scope::AlwaysSource, .. } => {
            "allowed permanently, for every tool of its plugin or server, except tools that \
             say that they may destroy something"
        }
        Reply::Yes { scope: Scope::Always | Scope::AlwaysTool, .. } => "allowed permanently",
        Reply::No { .. } | Reply::Unasked(_) => "denied",
    }
}

/// Returns the rule that a permanent approval writes. Other replies write no rule.
///
/// # Errors
///
/// Returns an error for an approval that `question` doesn't offer.
fn permanent_rule<'q>(
    question: &'q Question,
    reply: &Reply,
) -> Result<Option<&'q Proposal>, Error> {
    let Reply::Yes { scope, .. } = reply else { return Ok(None) };
    let wider_approvals = question.wider.as_ref();
    let offered = match scope {
        Scope::Once | Scope::Session => return Ok(None),
        // These approvals write no rule, but the question must offer them.
        Scope::SessionTool | Scope::SessionSource if wider_approvals.is_some() => return Ok(None),
        Scope::SessionTool | Scope::SessionSource => None,
        Scope::Always => match &question.always {
            Always::Writes(proposal) => Some(proposal),
            Always::Unavailable(why) => {
                return Err(Error::Usage(format!(
                    "`--always` isn't possible for this call: {why}"
                )));
            }
        },
        Scope::AlwaysTool => wider_approvals.and_then(WiderRules::tool),
        Scope::AlwaysSource => wider_approvals.and_then(WiderRules::all),
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

/// Prints each waiting call and how to answer it.
fn list(waiting: &[PostedQuestion]) -> Result<(), Error> {
    let mut table = Table::new(["ID", "TOOL", "ASKED", "EXPIRES", "SESSION"], &[]);
    for posted in waiting {
        let Question { tool, session, .. } = &posted.question;
        table.row([
            posted.id.clone(),
            tool.clone(),
            describe_age(posted),
            describe_expiry(posted),
            session.clone(),
        ]);
        table.details(&posted.question.to_text());
        // The table removes control characters, so the text must not have colours.
        table.details(&posted.question.always_to_text_with(&|_, text| text.to_owned()));
    }
    let mut out = anstream::stdout().lock();
    table.print(&mut out)?;
    writeln!(
        out,
        "\nTo approve: toolhold approvals allow ID. To deny: toolhold approvals deny ID."
    )?;
    Ok(())
}

/// Returns the line above a question.
fn heading(posted: &PostedQuestion) -> String {
    let session = neutral_line(&posted.question.session);
    format!(
        "{STRONG}{}{STRONG:#}  {FAINT}{session}, asked {}, expires {}{FAINT:#}\n",
        neutral_line(&posted.id),
        describe_age(posted),
        describe_expiry(posted)
    )
}

fn describe_age(posted: &PostedQuestion) -> String {
    format!("{} s ago", now().saturating_sub(posted.asked))
}

fn describe_expiry(posted: &PostedQuestion) -> String {
    format!("in {} s", posted.until.saturating_sub(now()))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Finds the only question whose ID begins with `id`.
fn find<'a>(waiting: &'a [PostedQuestion], id: &str) -> Result<&'a PostedQuestion, Error> {
    let mut matches = Vec::new();
    for posted in waiting {
        // Every ID starts with an empty `id`, which must not match.
        if !id.is_empty() && posted.id.starts_with(id) {
            matches.push(posted);
        }
    }
    match matches[..] {
        [posted] => Ok(posted),
        [] => Err(Error::Usage(format!(
            "no waiting call has the ID {id}; `toolhold approvals` lists the waiting calls"
        ))),
        _ => Err(Error::Usage(format!("several IDs start with {id}; write more digits"))),
    }
}
