//! `toolhold call`.

mod answer;
mod values;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use toolhold_core::config::{self, Folders};
use toolhold_core::text::neutral_line;
use toolhold_core::{Audience, Body, Content, Events, Host, NoEvents, Request, Session};

pub(crate) use answer::explain;

use crate::arguments::CallArguments;
use crate::asking::Asker;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use toolhold_terminal::{interrupt, live};

/// Bytes of JSON on stdin: the host's limit, and room for spaces and line ends.
const MAX_STDIN: u64 = 4 * 1024 * 1024;

/// Bytes of a session's name, which is in every record of a call.
const MAX_SESSION: usize = 128;

/// Bytes of an attachment, which is held in memory and copied into the sandbox.
const MAX_ATTACHMENT: u64 = 64 * 1024 * 1024;

/// Runs the command.
pub(crate) fn run(call: &CallArguments, options: &Options) -> Result<Exit, Error> {
    let attachments = call.attach.iter().map(|file| attachment(file)).collect::<Result<_, _>>()?;
    let cancel = interrupt::cancellation()?;
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let session = session(call.session.as_deref(), &folders)?;
    let approver = Asker::approver(call.yes, &folders, &loaded);
    let (answer, live) = host::block_on(async {
        let host =
            host::build_for_call(options, folders, loaded, &call.tool, call.for_model).await?;
        let arguments = arguments(&call.arguments, &call.tool, &host)?;
        all_are_named(&call.attach, &arguments)?;
        // The form for a model isn't written to files.
        let live = if call.for_model { None } else { live::Live::on_terminal() };
        let events: Arc<dyn Events> = match &live {
            Some(live) => live.events(),
            None => Arc::new(NoEvents),
        };
        let (session, approver) = (Some(session), Some(approver));
        // A person, or a file behind a pipe, takes the whole output.
        let audience = if call.for_model { Audience::Model } else { Audience::Person };
        let request = Request {
            attachments,
            session,
            audience,
            approver,
            events,
            cancel,
            ..Request::new(&call.tool, arguments)
        };
        Ok((host.call(request).await, live))
    })?;
    let shown = live.map(live::Live::end).unwrap_or_default();
    answer::show(call, &answer, &shown)
}

/// The session of the call: the named one, otherwise the one of this user in this directory.
pub(crate) fn session(name: Option<&str>, folders: &Folders) -> Result<Session, Error> {
    let user = rustix::process::geteuid().as_raw();
    let name = match name {
        Some(name) if name.is_empty() || name.len() > MAX_SESSION || neutral_line(name) != name => {
            return Err(Error::Usage(format!(
                "--session takes a name of at most {MAX_SESSION} bytes on one line"
            )));
        }
        Some(name) => format!("user {user}: {name}"),
        None => format!("user {user} in {}", config::working_directory()?.display()),
    };
    Ok(Session::on_disk(folders, name))
}

/// The typed arguments as the JSON object of the tool.
pub(crate) fn arguments(words: &[String], tool: &str, host: &Host) -> Result<Value, Error> {
    let arguments = match words {
        [word] if word == "-" => {
            let attaches = host.tool(tool).is_some_and(|definition| definition.takes_attachments());
            stdin(attaches).and_then(|text| values::from_json(&text))
        }
        [word] if word.trim_start().starts_with('{') => values::from_json(word),
        [first, _, ..] if first == "-" || first.trim_start().starts_with('{') => Err(
            "the arguments are either one JSON object (`-`: on stdin) or KEY=VALUE pairs, not both"
                .to_owned(),
        ),
        words => match host.tool(tool) {
            Some(definition) => values::from_words(&definition, words),
            // The host has the best error for an unknown tool.
            None => Ok(Value::Object(serde_json::Map::new())),
        },
    };
    arguments.map_err(Error::Usage)
}

/// Checks that an argument names each attached file: a tool wouldn't see another one.
fn all_are_named(files: &[PathBuf], arguments: &Value) -> Result<(), Error> {
    fn names(value: &Value, index: usize) -> bool {
        match value {
            Value::Object(fields) => {
                fields.get("$attachment").and_then(Value::as_u64) == Some(index as u64)
                    || fields.values().any(|field| names(field, index))
            }
            Value::Array(items) => items.iter().any(|item| names(item, index)),
            _ => false,
        }
    }
    match files.iter().enumerate().find(|(index, _)| !names(arguments, *index)) {
        None => Ok(()),
        Some((index, file)) => {
            let how = format!(
                "give {{\"$attachment\": {index}}} to one that takes it; `toolhold tools TOOL` shows which does"
            );
            Err(Error::Usage(format!("--attach {}: no argument names it; {how}", file.display())))
        }
    }
}

fn stdin(attaches: bool) -> Result<String, String> {
    let mut text = String::new();
    match std::io::stdin().lock().take(MAX_STDIN + 1).read_to_string(&mut text) {
        Ok(length) if length as u64 > MAX_STDIN => {
            let instead =
                if attaches { "; hand large content over with --attach FILE" } else { "" };
            Err(format!("more than 4 MiB of JSON on stdin{instead}"))
        }
        Ok(_) if text.trim().is_empty() => {
            Err("stdin is empty; `-` takes the arguments from there, as one JSON object".to_owned())
        }
        Ok(_) => Ok(text),
        Err(error) => Err(format!("stdin can't be read: {error}")),
    }
}

/// A file as an attachment: text if it is UTF-8, otherwise bytes.
fn attachment(path: &Path) -> Result<Content, Error> {
    let usage = |why: String| Error::Usage(format!("--attach {}: {why}", path.display()));
    let mut bytes = Vec::new();
    // Non-blocking: opening a FIFO would wait for a writer.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(|error| usage(error.to_string()))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(usage("isn't a regular file; write its content to one first".to_owned()));
    }
    file.take(MAX_ATTACHMENT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| usage(error.to_string()))?;
    if bytes.len() as u64 > MAX_ATTACHMENT {
        return Err(usage("more than 64 MiB".to_owned()));
    }
    let body =
        String::from_utf8(bytes).map_or_else(|error| Body::Bytes(error.into_bytes()), Body::Text);
    Ok(Content { body, media_type: None, meta: None })
}
