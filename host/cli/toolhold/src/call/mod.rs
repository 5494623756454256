//! `toolhold call`: calls a tool.

mod answer;
mod attachments;
mod values;

use std::sync::Arc;

use toolhold_core::config::{self, Folders};
use toolhold_core::text::neutral_line;
use toolhold_core::{Audience, Events, NoEvents, Request, Session};
use toolhold_net::drain_ended_relays;

pub(crate) use answer::explain;
pub(crate) use values::arguments;

use crate::arguments::CallArguments;
use crate::asking::Asker;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use toolhold_terminal::{interrupt, live};

/// The most bytes of a session's name, which is in every record of the audit log.
const MAX_SESSION: usize = 128;

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
        attachments::check_all_are_named(&call.attach, &arguments)?;
        // With `--for-model`, the host changes the whole answer, so text can only be shown after
        // the call.
        let live = if call.for_model { None } else { live::Live::on_terminal() };
        let events: Arc<dyn Events> = match &live {
            Some(live) => live.events(),
            None => Arc::new(NoEvents),
        };
        // People and pipes get the whole output.
        let audience = if call.for_model { Audience::Model } else { Audience::Person };
        let request = Request {
            attachments,
            session: Some(session),
            audience,
            approver: Some(approver),
            events,
            cancel,
            ..Request::new(&call.tool, arguments)
        };
        let answer = host.call(request).await;
        // The networks of the session's commands end with the host.
        drop(host);
        drain_ended_relays().await;
        Ok((answer, live))
    })?;
    let shown = live.map(live::Live::end).unwrap_or_default();
    answer::show(call, &answer, &shown)
}

/// Returns the session `name`, or the session of this user in this directory if there is no name.
pub(crate) fn session(name: Option<&str>, folders: &Folders) -> Result<Session, Error> {
    let user = rustix::process::geteuid().as_raw();
    let full_name = match name {
        Some(name) => {
            let has_control_characters = neutral_line(name) != name;
            if name.is_empty() || name.len() > MAX_SESSION || has_control_characters {
                return Err(Error::Usage(format!(
                    "--session takes a name of at most {MAX_SESSION} bytes on one line"
                )));
            }
            format!("user {user}: {name}")
        }
        None => format!("user {user} in {}", config::working_directory()?.display()),
    };
    Ok(Session::on_disk(folders, full_name))
}
