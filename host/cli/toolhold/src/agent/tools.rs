//! `toolhold tools --for`: shows which tools the agent's filter chooses for a task, and why.

use std::io::Write;

use serde_json::json;
use toolhold_agent::AgentStart;
use toolhold_core::text::neutral_line;
use toolhold_core::{Phase, Session};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{FAINT, STRONG, warn};

use crate::agent::{MakeHost, Surroundings, failed};

pub(crate) async fn tools_for(
    task: &str,
    session: &Session,
    as_json: bool,
    around: &Surroundings<'_>,
    host: impl MakeHost,
) -> Result<Exit, CommandError> {
    let start = AgentStart {
        config: around.config,
        folders: around.folders,
        directory: around.directory,
        front_end: around.front_end,
        model: None,
        session: None,
        phase: Phase::Executor,
        instructions: &[],
        skills: "",
    };
    let host = host().await?;
    let (selection, notices) = match start.tools_for(&host, session, task).await {
        Ok(chosen) => chosen,
        Err(error) => return Err(failed(error, around)),
    };
    for notice in notices {
        warn(&neutral_line(&notice))?;
    }
    let mut out = anstream::stdout().lock();
    if as_json {
        let value = json!({
            "included": selection.included,
            "excluded": selection.excluded,
            "tokens": selection.tokens,
            "all_tokens": selection.all_tokens,
        });
        writeln!(out, "{value:#}")?;
        return Ok(Exit::Success);
    }
    let width = selection.included.iter().map(|tool| tool.name.len()).max().unwrap_or(0);
    for tool in &selection.included {
        let reason = tool.reason.as_str();
        writeln!(out, "{STRONG}{:width$}{STRONG:#}  {FAINT}{reason}{FAINT:#}", tool.name)?;
    }
    let chosen = selection.included.len();
    let left_out = selection.excluded.len();
    writeln!(
        out,
        "\n{chosen} of {} tools, about {} of {} tokens",
        chosen + left_out,
        selection.tokens,
        selection.all_tokens
    )?;
    Ok(Exit::Success)
}
