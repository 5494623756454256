//! Tells the running hosts about a component.

use std::io::Write;

use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;
use toolhold_core::{Ask, ask_hosts};

use crate::error::Error;

/// Makes the running hosts load changed plugins, and prints which hosts use the component with this
/// digest.
pub(super) fn tell_hosts(
    out: &mut impl Write,
    folders: &Folders,
    name: &str,
    digest: &str,
) -> Result<(), Error> {
    for host in ask_hosts(folders, Ask::Reload)? {
        let pid = host.pid;
        let state = host.plugins.iter().find(|state| state.name == name);
        let is_used = state.is_some_and(|state| state.digest.as_deref() == Some(digest));
        if is_used {
            writeln!(out, "The host with process {pid} uses the component now.")?;
            continue;
        }
        let reason = match state.and_then(|state| state.waiting.as_ref()) {
            Some(waiting) => neutral_line(&waiting.reason),
            None => "the host uses another configuration".to_owned(),
        };
        writeln!(out, "The host with process {pid} does not use the component: {reason}")?;
    }
    Ok(())
}
