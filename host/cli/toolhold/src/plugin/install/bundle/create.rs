//! Makes a bundle of installed plugins.

use std::collections::BTreeMap;

use toolhold_core::config::{Folders, Inputs};
use toolhold_core::{ApprovedPlugin, HostError, PluginApprovals};
use toolhold_registry::bundle::{EntryContent, Index, NewEntry, create};
use toolhold_signing::{SecretKey, read_signatures_beside};

use super::files::check_ceiling;
use super::{CEILING, FILTERS, LOCK, bundle_failed, component_name};
use crate::arguments::bundle::CreateArguments;

/// The most signatures of a plugin in a bundle.
const MAX_SIGNATURES: usize = 9;

/// Writes a bundle of installed plugins and of the files in `arguments`. The bundle is removed
/// after an error. Blocks.
pub(crate) fn create_bundle(
    arguments: &CreateArguments,
    key: &SecretKey,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<Index, HostError> {
    let approvals = PluginApprovals::open(folders);
    let mut entries = Vec::new();
    let lock = selected_plugins(&approvals, &arguments.only)?;
    for (name, locked) in &lock {
        let component = component_name(name);
        let copy = approvals.copy_path(locked);
        let signatures = read_signatures_beside(&copy).map_err(|error| failed(name, &error))?;
        for (number, signature) in (1..=MAX_SIGNATURES).zip(signatures) {
            let name = match number {
                1 => format!("{component}.minisig"),
                _ => format!("{component}.{number}.minisig"),
            };
            entries.push(NewEntry { name, content: EntryContent::Bytes(signature) });
        }
        entries.push(NewEntry { name: component, content: EntryContent::File(copy) });
    }
    let text = serde_json::to_vec_pretty(&lock).map_err(|error| failed(LOCK, &error))?;
    entries.push(NewEntry { name: LOCK.to_owned(), content: EntryContent::Bytes(text) });
    if let Some(filters) = &arguments.filters {
        let content = EntryContent::File(filters.clone());
        entries.push(NewEntry { name: FILTERS.to_owned(), content });
    }
    if let Some(ceiling) = &arguments.ceiling {
        check_ceiling(ceiling, folders, inputs)?;
        let content = EntryContent::File(ceiling.clone());
        entries.push(NewEntry { name: CEILING.to_owned(), content });
    }
    create(&arguments.file, entries, key).map_err(|error| bundle_failed(&arguments.file, error))
}

/// Returns the lock entries of the plugins `names`, or of all plugins if `names` is empty. The
/// signers and earlier bundles of a plugin are left out, because they concern only this machine.
fn selected_plugins(
    approvals: &PluginApprovals,
    names: &[String],
) -> Result<BTreeMap<String, ApprovedPlugin>, HostError> {
    let mut installed = BTreeMap::new();
    for (name, locked) in approvals.all()? {
        let is_selected = names.is_empty() || names.contains(&name);
        // A plugin without a source wasn't installed, but only approved.
        if is_selected && locked.approved.source.is_some() {
            installed.insert(name, locked.approved);
        }
    }
    if let Some(name) = names.iter().find(|name| !installed.contains_key(*name)) {
        return Err(failed(
            name,
            &"the plugin isn't installed; `toolhold plugin list` shows the installed plugins",
        ));
    }
    for (name, locked) in &mut installed {
        if approvals.component(name, locked)?.is_none() {
            return Err(failed(
                name,
                &"the stored component is damaged; for details: toolhold plugin verify",
            ));
        }
        if let Some(source) = &mut locked.source {
            source.signer = None;
            source.bundle = None;
        }
    }
    Ok(installed)
}

fn failed(what: &str, reason: &impl ToString) -> HostError {
    HostError::Load { plugin: what.to_owned(), reason: reason.to_string() }
}
