//! `toolhold plugin approve`: shows a component, asks the person, and approves exactly this
//! component.

use std::io::Write;

use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;
use toolhold_core::{Ask, PluginApprovals, ask_hosts};

use super::Setting;
use crate::ask;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin_description::{Card, Differences};
use crate::style::STRONG;

/// Shows the component, asks, and approves exactly what was shown.
pub(super) fn approve(
    name: &str,
    yes: bool,
    digest: Option<&str>,
    options: &Options,
) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let candidate = setting.candidate(name)?;
    let info = std::sync::Arc::clone(candidate.info());
    if info.manifest.name != name {
        let real = &info.manifest.name;
        return Err(Error::Usage(format!(
            "the component of `{name}` has the name `{real}` in its manifest, so it would not be \
             loaded"
        )));
    }
    if let Some(prefix) = digest {
        let is_same = info.digest.starts_with(&prefix.to_ascii_lowercase());
        if prefix.len() < 8 || !is_same {
            return Err(Error::Usage(format!("the component has another digest: {}", info.digest)));
        }
    }
    let mut out = anstream::stdout().lock();
    let approvals = PluginApprovals::open(&setting.folders);
    if approvals.all()?.get(name).is_some_and(|locked| locked.approved.digest == info.digest) {
        writeln!(out, "{name} {} is approved already.", neutral_line(&info.manifest.version))?;
        return Ok(Exit::Success);
    }
    // Inspecting consumes a candidate, so the component is opened again.
    let inspected = setting.inspect(setting.candidate(name)?)?;
    if inspected.info.digest != info.digest {
        return Err(Error::Usage(
            "the component changed while it was checked; try again".to_owned(),
        ));
    }
    let signer = setting.signer_change(&inspected)?;
    match setting.difference(&inspected)? {
        Some(difference) => {
            writeln!(
                out,
                "{STRONG}{name}{STRONG:#}, changes since the approved version:\n{}",
                Differences(&difference, signer.as_ref())
            )?;
            writeln!(out, "  sha256: {}", info.digest)?;
        }
        None => {
            writeln!(out, "{}\n{STRONG}Tools{STRONG:#}", Card(&info))?;
            super::list_tools(&mut out, &inspected)?;
        }
    }
    out.flush()?;
    if !yes && digest.is_none() && !confirm(name)? {
        writeln!(out, "{name} is not approved.")?;
        return Ok(Exit::Denied);
    }
    approvals.approve(&candidate)?;
    writeln!(
        out,
        "\nApproved. The plugin has the grants of [plugins.{name}] in your configuration. A \
         changed component needs approval again."
    )?;
    tell_hosts(&mut out, &setting.folders, name, &info.digest)?;
    Ok(Exit::Success)
}

/// Makes the running hosts load the approved component, and reports which hosts use it.
pub(super) fn tell_hosts(
    out: &mut impl Write,
    folders: &Folders,
    name: &str,
    digest: &str,
) -> Result<(), Error> {
    for host in ask_hosts(folders, Ask::Reload)? {
        let pid = host.pid;
        let state = host.plugins.iter().find(|state| state.name == name);
        if state.is_some_and(|state| state.digest.as_deref() == Some(digest)) {
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

fn confirm(name: &str) -> Result<bool, Error> {
    let Some(mut dialogue) = ask::open_dialogue("the component is not approved") else {
        let message = "there is no terminal to ask at; `--yes` approves the current component, \
             `--digest SHA256` only the component with that digest";
        return Err(Error::Unasked(message.to_owned()));
    };
    dialogue.yes_or_no(&format!("Approve {name}?"), false)
}
