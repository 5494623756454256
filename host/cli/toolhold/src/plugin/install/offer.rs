//! Examines a fetched component before it is installed, and tells whether an update can do more
//! than the version before.

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
    /// The signatures that came with it.
    pub(crate) signatures: Vec<Vec<u8>>,
}

impl Offer {
    /// Examines a fetched component. The component is compiled and asked for its tools, with
    /// nothing granted. `given`: the source as the user wrote it.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`]: no plugin may come from its source, it isn't a component, its manifest
    /// isn't valid or asks for less than it imports, no trusted key signed it though one has to, or
    /// it doesn't load.
    pub(crate) async fn examine(
        fetched: &Fetched,
        given: &Source,
        folders: &Folders,
        loaded: &Config,
    ) -> Result<Self, HostError> {
        check_source(loaded, &fetched.resolved)?;
        let resolved = fetched.resolved.to_string();
        // Examining uses up one, and the other is installed: both are of the same bytes.
        let candidate = candidate(&fetched.bytes, &resolved)?;
        let name = &candidate.info().manifest.name;
        let signed_by = check_signatures(fetched, name, &candidate.info().digest, loaded)?;
        let command = loaded.command_of_plugin(name)?;
        let examined = self::candidate(&fetched.bytes, &resolved)?;
        let inspection = PluginInspection::new(examined, folders, command).await?;
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

/// The component in memory, as if it were a file.
fn candidate(bytes: &[u8], shown: &str) -> Result<Candidate, HostError> {
    let failed = HostError::io(format!("reading {shown}"));
    let file = memfd_create("component", MemfdFlags::CLOEXEC)
        .map_err(std::io::Error::from)
        .map(std::fs::File::from)
        .and_then(|mut file| {
            file.write_all(bytes)?;
            file.rewind()?;
            Ok(file)
        })
        .map_err(failed)?;
    Candidate::opened(file, Path::new(shown))
}

/// Whether an update can do more than the version before, or says something else to models. Then it
/// needs a new approval.
pub(crate) fn is_more(difference: &Difference) -> bool {
    // An import that not every plugin has needs a capability, too.
    let Difference { capabilities_added, tools_added, tools_changed, .. } = difference;
    !(capabilities_added.is_empty() && tools_added.is_empty() && tools_changed.is_empty())
}
