//! `toolhold plugin approve`: shows the component of a plugin, asks, and approves it.

use std::io::Write;

use toolhold_core::PluginApprovals;
use toolhold_core::config::insert::WrittenGrants;
use toolhold_core::text::neutral_line;

use super::Setting;
use super::install::grants::write_missing;
use super::running_hosts::tell_hosts;
use crate::ask;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin_description::{Card, Differences};
use crate::style::STRONG;

/// Approves exactly the shown component, even if the file changes.
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
    let locked = approvals.all()?.remove(name);
    let is_approved = locked.is_some_and(|locked| locked.approved.digest == info.digest)
        || setting.loaded.is_pinned(name, &info.digest);
    if is_approved {
        writeln!(out, "{name} {} is approved already.", neutral_line(&info.manifest.version))?;
        return Ok(Exit::Success);
    }
    // `inspect` consumes a candidate, so the component is opened again.
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
    write_missing(&mut out, &info, &WrittenGrants::default(), &setting.loaded)?;
    tell_hosts(&mut out, &setting.folders, name, &info.digest)?;
    Ok(Exit::Success)
}

/// Asks whether to approve the component. Fails if there is no terminal.
fn confirm(name: &str) -> Result<bool, Error> {
    let Some(mut dialogue) = ask::open_dialogue("the component is not approved") else {
        let message = "there is no terminal to ask at; `--yes` approves the current component, \
                       `--digest SHA256` approves only the component with that digest";
        return Err(Error::Unasked(message.to_owned()));
    };
    let default_answer = false;
    dialogue.yes_or_no(&format!("Approve {name}?"), default_answer)
}
