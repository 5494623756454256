//! `toolhold approvals`: lists the calls that need approval, and answers them.

use std::io::{IsTerminal, Write};
use std::time::{Duration, SystemTime};

use serde_json::json;
use toolhold_core::audit::{self, EntryOrigin};
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
    let desk = Desk { folders, options };
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
        None if arguments.json => {
            let posted: Vec<_> = waiting.iter().map(|waiting| &waiting.posted).collect();
            writeln!(std::io::stdout().lock(), "{}", json!(posted))?;
        }
        None if waiting.is_empty() => writeln!(anstream::stdout(), "No call waits for approval.")?,
        None if arguments.url => desk.print_links(&waiting)?,
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
    folders: Folders,
    options: &'a Options,
}

/// A question that waits for an answer.
struct Waiting {
    /// The questions of the same user or principal, with which the answer is stored.
    questions: Questions,
    posted: PostedQuestion,
}

impl Desk<'_> {
    /// Lists the questions of the user and of all principals of a server, the oldest first.
    fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        let mut waiting = Vec::new();
        for questions in Questions::all(&self.folders)? {
            let (open, errors) = questions.waiting()?;
            for error in errors {
                warn(&neutral_line(&error.to_string()))?;
            }
            for posted in open {
                waiting.push(Waiting { questions: questions.clone(), posted });
            }
        }
        waiting.sort_by_key(|waiting| waiting.posted.asked);
        Ok(waiting)
    }

    /// Asks about each question, or lists the questions if there is no terminal.
    fn ask_each(&self, waiting: &[Waiting]) -> Result<Exit, Error> {
        let Some(mut dialogue) =
            ask::open_dialogue("your answers are saved, and the other calls still wait")
        else {
            list(waiting)?;
            return Ok(Exit::Success);
        };
        for question in waiting {
            let posted = &question.posted;
            dialogue.print(heading(posted).trim_end())?;
            let reply = ask_until_answered(&mut dialogue, &posted.question, BY)?;
            self.answer(question, reply)?;
        }
        Ok(Exit::Success)
    }

    /// Prints a one-time link to each question.
    fn print_links(&self, waiting: &[Waiting]) -> Result<(), Error> {
        let loaded =
            config::load(&self.folders, &self.options.inputs()?).map_err(HostError::from)?;
        let server = &loaded.values.serve.url;
        if server.is_empty() {
            return Err(Error::Host(HostError::Config(
                "`--url` needs the address of `toolhold serve --http` for browsers: set `url = \
                 \"https://toolhold.example.com\"` in [serve]"
                    .to_owned(),
            )));
        }
        let mut out = anstream::stdout().lock();
        for Waiting { questions, posted } in waiting {
            let link = questions.link(posted, server)?;
            // No table, because a table would cut the link at a terminal.
            let line = format!("{}  {}  {link}", posted.id, posted.question.tool);
            writeln!(out, "{}", neutral_line(&line))?;
        }
        Ok(())
    }

    /// Records a reply, writes the rule of a permanent approval, and sends the reply to the waiting
    /// call.
    fn answer(&self, waiting: &Waiting, reply: Reply) -> Result<(), Error> {
        let Waiting { questions, posted } = waiting;
        let loaded =
            config::load(&self.folders, &self.options.inputs()?).map_err(HostError::from)?;
        let rule = permanent_rule(&posted.question, &reply)?;
        if rule.is_some() && questions.is_of_principal() {
            return Err(Error::Usage(
                "`--always` isn't possible for the call of a principal: the rule would be yours, \
                 and would apply to everybody"
                    .to_owned(),
            ));
        }
        let origin = EntryOrigin::new(BY, &self.folders);
        audit::record_answer(&loaded, &self.folders, &posted.question, &reply, origin)?;
        let mut out = anstream::stdout();
        let result = describe_result(&reply);
        if let Some(rule) = rule {
            let file = rule.write(&self.folders)?;
            write!(out, "In {}:\n{}", shown::path(&file), neutral(&rule.text()))?;
        }
        let lasting = Duration::from_secs(loaded.values.approvals.expire_secs.get());
        questions.answer(posted, reply, lasting)?;
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
fn list(waiting: &[Waiting]) -> Result<(), Error> {
    let mut table = Table::new(["ID", "TOOL", "ASKED", "EXPIRES", "SESSION"], &[]);
    for Waiting { posted, .. } in waiting {
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
fn find<'a>(waiting: &'a [Waiting], id: &str) -> Result<&'a Waiting, Error> {
    let mut matches = Vec::new();
    for question in waiting {
        // Every ID starts with an empty `id`, which must not match.
        if !id.is_empty() && question.posted.id.starts_with(id) {
            matches.push(question);
        }
    }
    match matches[..] {
        [question] => Ok(question),
        [] => Err(Error::Usage(format!(
            "no waiting call has the ID {id}; `toolhold approvals` lists the waiting calls"
        ))),
        _ => Err(Error::Usage(format!("several IDs start with {id}; write more digits"))),
    }
}
