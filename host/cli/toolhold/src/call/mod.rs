//! `toolhold call`: calls a tool in the session of this user and directory, or in a named one.

mod answer;
mod attachments;
mod values;

use std::sync::Arc;

use toolhold_core::config::{self, Folders};
use toolhold_core::text::neutral_line;
use toolhold_core::{Audience, Events, NoEvents, Request, Session};

pub(crate) use answer::explain;
pub(crate) use values::arguments;

use crate::arguments::CallArguments;
use crate::asking::Asker;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use toolhold_terminal::{interrupt, live};

/// The most bytes of a session's name, which is in every record of a call.
const MAX_SESSION: usize = 128;

/// Runs the command.
pub(crate) fn run(call: &CallArguments, options: &Options) -> Result<Exit, Error> {
    let attachments = attachments::read(&call.attach)?;
    let cancel = interrupt::cancellation()?;
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let session = session(call.session.as_deref(), &folders)?;
    let approver = Asker::approver(call.yes, &folders, &loaded);
    let (answer, live) = host::block_on(async {
        let host =
            host::build_for_call(options, folders, loaded, &call.tool, call.for_model).await?;
        let arguments = arguments(&call.arguments, &call.tool, &host).map_err(Error::usage)?;
        attachments::all_are_named(&call.attach, &arguments)?;
        // The form for a model isn't written to files.
        let live = if call.for_model { None } else { live::Live::on_terminal() };
        let events: Arc<dyn Events> = match &live {
            Some(live) => live.events(),
            None => Arc::new(NoEvents),
        };
        let session = Some(session);
        let approver = Some(approver);
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

/// Opens the named session. Without a name, opens the session of this user in this directory.
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
