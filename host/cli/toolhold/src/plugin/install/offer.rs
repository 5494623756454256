//! Examines a downloaded component before it is installed. Also checks whether an update can do
//! more than the previous version.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{MemfdFlags, memfd_create};
use toolhold_core::config::{Config, Folders};
use toolhold_core::{Candidate, Difference, HostError, PluginInspection, PluginSource};
use toolhold_registry::{Fetched, Source};

use crate::plugin::install::signatures::{check_signatures, check_source};
use crate::plugin_description::SignedBy;

/// A component that was fetched and examined.
pub(crate) struct Offer {
    pub(crate) candidate: Candidate,
    /// The plugin's manifest, requests, imports and tools.
    pub(crate) inspection: PluginInspection,
    /// The source of the component.
    pub(crate) source: PluginSource,
    /// The plugin's signer.
    pub(crate) signed_by: SignedBy,
    /// The signatures of the component.
    pub(crate) signatures: Vec<Vec<u8>>,
}

impl Offer {
    /// Examines a downloaded component. The component is compiled and asked for its tools, without
    /// any grants. `given`: the source as the user wrote it.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Load`] if plugins from this source aren't allowed, if the file isn't a
    /// component, if its manifest is invalid or requests less than it imports, if a required
    /// signature is missing, or if the component doesn't load.
    pub(crate) async fn examine(
        fetched: &Fetched,
        given: &Source,
        folders: &Folders,
        loaded: &Config,
    ) -> Result<Self, HostError> {
        check_source(loaded, &fetched.resolved)?;
        let resolved = fetched.resolved.to_string();
        let candidate = open_in_memory(&fetched.bytes, &resolved)?;
        let name = &candidate.info().manifest.name;
        let signed_by = check_signatures(fetched, name, &candidate.info().digest, loaded)?;
        let command = loaded.command_of_plugin(name)?;
        // Inspecting consumes a candidate. The other candidate is installed.
        let inspected = open_in_memory(&fetched.bytes, &resolved)?;
        let inspection = PluginInspection::new(inspected, folders, command).await?;
        let installed_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let source = PluginSource {
            given: given.to_string(),
            resolved,
            signer: signed_by.key().map(str::to_owned),
            installed_at: installed_at.as_secs(),
            bundle: None,
        };
        let signatures = fetched.signatures.clone();
        Ok(Self { candidate, inspection, source, signed_by, signatures })
    }

    /// The plugin's name.
    pub(crate) fn name(&self) -> &str {
        &self.candidate.info().manifest.name
    }

    /// The plugin's version.
    pub(crate) fn version(&self) -> &str {
        &self.candidate.info().manifest.version
    }

    /// SHA-256 of the component.
    pub(crate) fn digest(&self) -> &str {
        &self.candidate.info().digest
    }
}

/// Opens a component that is only in memory. `shown`: the name that errors use instead of a path.
fn open_in_memory(bytes: &[u8], shown: &str) -> Result<Candidate, HostError> {
    let file = memory_file(bytes).map_err(HostError::io(format!("reading {shown}")))?;
    Candidate::opened(file, Path::new(shown))
}

fn memory_file(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("component", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Checks whether an update can do more than the previous version, or changes the descriptions for
/// models. Such an update needs a new approval.
pub(crate) fn is_more(difference: &Difference) -> bool {
    // Imports don't matter here, because an import that not every plugin has needs a capability.
    let Difference { capabilities_added, tools_added, tools_changed, .. } = difference;
    !capabilities_added.is_empty() || !tools_added.is_empty() || !tools_changed.is_empty()
}
