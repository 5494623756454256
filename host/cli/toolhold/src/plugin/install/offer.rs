//! Examines a downloaded component before it is installed.

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

pub(crate) struct Offer {
    pub(crate) candidate: Candidate,
    pub(crate) inspection: PluginInspection,
    pub(crate) source: PluginSource,
    pub(crate) signed_by: SignedBy,
    pub(crate) signatures: Vec<Vec<u8>>,
}

impl Offer {
    /// Makes an offer of a downloaded component: compiles it, and lists its tools without any
    /// grants. Fails if the configuration doesn't allow the component. `given` is the source as the
    /// user wrote it.
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
        // `PluginInspection::new` consumes a candidate, so the component is opened again.
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

    pub(crate) fn name(&self) -> &str {
        &self.candidate.info().manifest.name
    }

    pub(crate) fn version(&self) -> &str {
        &self.candidate.info().manifest.version
    }

    /// The SHA-256 of the component.
    pub(crate) fn digest(&self) -> &str {
        &self.candidate.info().digest
    }
}

/// Opens a component, which errors call `shown`.
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

/// Checks whether an update requests more, or changes the tools that models see.
pub(crate) fn needs_approval(difference: &Difference) -> bool {
    // New imports don't matter, because only a capability allows more than the basic imports.
    let Difference { capabilities_added, tools_added, tools_changed, .. } = difference;
    !capabilities_added.is_empty() || !tools_added.is_empty() || !tools_changed.is_empty()
}
