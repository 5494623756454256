//! `toolhold token`: makes, lists and revokes tokens for callers of `toolhold serve --http`.

mod new;
mod revoke;

use std::io::Write;

use jiff::Timestamp;
use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;
use toolhold_mcp_server::{LocalTokens, TokenRecord};
use toolhold_terminal::table::Table;

use crate::arguments::token::TokenCommand;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::style::warn;

pub(crate) fn run(command: &TokenCommand, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let tokens = LocalTokens::new(&folders);
    match command {
        TokenCommand::New(arguments) => new::run(arguments, options, &folders, &tokens),
        TokenCommand::List { json } => list(&tokens, *json),
        TokenCommand::Revoke(arguments) => revoke::run(arguments, &folders, &tokens),
    }
}

fn list(tokens: &LocalTokens, as_json: bool) -> Result<Exit, Error> {
    let (records, errors) = tokens.list()?;
    for error in errors {
        warn(&neutral_line(&error.to_string()))?;
    }
    let mut out = anstream::stdout().lock();
    if as_json {
        let records: Vec<Value> = records.iter().map(to_json).collect();
        writeln!(out, "{:#}", json!(records))?;
        return Ok(Exit::Success);
    }
    if records.is_empty() {
        writeln!(out, "There are no tokens.")?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(["NAME", "ID", "EXPIRES", "GROUPS", "LIMITS"], &[]);
    for record in records {
        let expires = time(record.expires);
        let limits = describe_limits(&record);
        table.row([record.name, record.id, expires, record.groups.join(", "), limits]);
    }
    table.print(&mut out)?;
    Ok(Exit::Success)
}

fn to_json(record: &TokenRecord) -> Value {
    json!({
        "id": record.id, "name": record.name, "groups": record.groups, "for": record.table,
        "made": time(record.made), "expires": time(record.expires),
        "narrowed": !record.bounds.is_empty(),
    })
}

/// Names the options of `toolhold token new` that limit a token.
fn describe_limits(record: &TokenRecord) -> String {
    let mut limits = Vec::new();
    if let Some(table) = &record.table {
        limits.push(format!("[principals.{table}]"));
    }
    if !record.bounds.is_empty() {
        limits.push("narrowed".to_owned());
    }
    limits.join(", ")
}

/// Returns a Unix time as text, such as `2026-12-01T08:00:00Z`.
fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
}
