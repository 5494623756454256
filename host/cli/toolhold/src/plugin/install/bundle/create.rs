//! Makes a bundle of installed plugins, for `toolhold plugin bundle create`.

use std::collections::BTreeMap;

use toolhold_core::config::{Folders, Inputs};
use toolhold_core::{ApprovedPlugin, HostError, PluginApprovals};
use toolhold_registry::bundle::{EntryContent, Index, NewEntry, create};
use toolhold_signing::{SecretKey, read_signatures_beside};

use super::files::check_ceiling;
use super::{CEILING, CEILING_SIGNATURE, FILTERS, LOCK, bundle_failed, component_name};
use crate::arguments::bundle::CreateArguments;

/// The most signatures of one plugin in a bundle.
const MAX_SIGNATURES: usize = 9;

/// Writes a bundle with the current versions of installed plugins, and with the files that the
/// arguments name. Blocks.
///
/// # Errors
///
/// Returns [`HostError`] if a plugin isn't installed, if its copy is damaged, if a file can't be
/// read, or if the bundle can't be written. In these cases, no bundle remains.
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
        let signatures =
            read_signatures_beside(ceiling).map_err(|error| failed(CEILING_SIGNATURE, &error))?;
        if !signatures.is_empty() {
            let content = EntryContent::Bytes(signatures.concat());
            entries.push(NewEntry { name: CEILING_SIGNATURE.to_owned(), content });
        }
        let content = EntryContent::File(ceiling.clone());
        entries.push(NewEntry { name: CEILING.to_owned(), content });
    }
    create(&arguments.file, entries, key).map_err(|error| bundle_failed(&arguments.file, error))
}

/// Returns the lock entries of the named plugins, or of all installed plugins. The entries have no
/// signers, because each machine trusts its own keys.
fn selected_plugins(
    approvals: &PluginApprovals,
    names: &[String],
) -> Result<BTreeMap<String, ApprovedPlugin>, HostError> {
    let mut installed: BTreeMap<String, ApprovedPlugin> =
        approvals.all()?.into_iter().map(|(name, locked)| (name, locked.approved)).collect();
    installed.retain(|name, locked| {
        locked.source.is_some() && (names.is_empty() || names.contains(name))
    });
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
