//! Checks that the lock, the plugins and the files of a bundle match, because a signature doesn't
//! ensure this.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;
use toolhold_core::config::{Config, Folders, Source as ConfigSource};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{ApprovedPlugin, HostError};
use toolhold_registry::bundle::{Bundle, BundleError, open};
use toolhold_registry::{FetchError, Fetched, Source};
use toolhold_signing::{SignatureRefusal, today};

use super::{CEILING, FILTERS, LOCK, bundle_failed, component_name, refused};
use crate::plugin::install::signatures::keys;

/// The most bytes of a bundle's lock, filters or ceiling.
const MAX_TEXT: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct BundleContents {
    pub(crate) path: PathBuf,
    /// The name of the trusted key that signed the bundle.
    pub(crate) signer: String,
    /// The plugins, sorted by name.
    pub(crate) plugins: Vec<BundledPlugin>,
    /// The rules for filters.
    pub(crate) filters: Option<Vec<u8>>,
    pub(crate) ceiling: Option<Vec<u8>>,
    pub(super) bundle: Bundle,
}

#[derive(Clone, Debug)]
pub(crate) struct BundledPlugin {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The SHA-256 of the component.
    pub(crate) digest: String,
    /// The source that the user named when installing the plugin on the other machine.
    pub(crate) given: Source,
    /// The exact source that `given` stood for.
    pub(crate) resolved: Source,
}

impl BundleContents {
    /// Opens a bundle, and verifies its signature with the configured keys. The bundle's files are
    /// in the data folder until this value is dropped. Blocks.
    pub(crate) fn open(path: &Path, folders: &Folders, loaded: &Config) -> Result<Self, HostError> {
        let bundle = open(path, &keys(loaded), today(), &folders.data)
            .map_err(|error| unopened(path, error, loaded))?;
        // A bundle without plugins may have no lock.
        let lock = read(&bundle, path, LOCK)?.unwrap_or_else(|| b"{}".to_vec());
        let plugins = check_lock(&bundle, &lock).map_err(|error| refused(path, error))?;
        let filters = read(&bundle, path, FILTERS)?;
        let ceiling = read(&bundle, path, CEILING)?;
        let signer = bundle.signer().name.clone();
        let path = path.to_owned();
        Ok(Self { path, signer, plugins, filters, ceiling, bundle })
    }

    pub(crate) fn describe(&self) -> Value {
        let plugins = self.plugins.iter().map(|plugin| {
            json!({
                "name": plugin.name,
                "version": plugin.version,
                "digest": plugin.digest,
                "source": plugin.resolved.to_string(),
            })
        });
        json!({
            "signer": self.signer,
            "key": self.bundle.signer().key.to_string(),
            "plugins": plugins.collect::<Value>(),
            "filters": self.filters.is_some(),
            "ceiling": self.ceiling.is_some(),
            "files": self.bundle.entries(),
        })
    }

    /// Reads a plugin from the bundle, as if it were downloaded from its source.
    pub(super) fn fetch(&self, plugin: &BundledPlugin) -> Result<Fetched, HostError> {
        let component = component_name(&plugin.name);
        let mut signatures = Vec::new();
        for entry in self.bundle.entries() {
            if entry.name.starts_with(&component) && entry.name.ends_with(".minisig") {
                signatures.push(self.read_file(&entry.name)?);
            }
        }
        let bytes = self.read_file(&component)?;
        let digest = plugin.digest.clone();
        Ok(Fetched { signatures, bytes, digest, resolved: plugin.resolved.clone() })
    }

    fn read_file(&self, name: &str) -> Result<Vec<u8>, HostError> {
        let mut bytes = Vec::new();
        self.open_file(name)?
            .read_to_end(&mut bytes)
            .map_err(HostError::io(format!("reading {name} of the bundle")))?;
        Ok(bytes)
    }

    pub(super) fn open_file(&self, name: &str) -> Result<File, HostError> {
        let file = match self.bundle.file(name) {
            Some(file) => file,
            None => Err(ErrorKind::NotFound.into()),
        };
        file.map_err(HostError::io(format!("reading {name} of the bundle")))
    }
}

impl fmt::Display for BundleContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Signed by your trusted key `{}`.", neutral_line(&self.signer))?;
        for BundledPlugin { name, version, resolved, .. } in &self.plugins {
            let version = neutral_line(version);
            let from = neutral_line(&resolved.to_string());
            writeln!(f, "  plugin {} {version}  {from}", neutral_line(name))?;
        }
        if self.filters.is_some() {
            writeln!(f, "  filters")?;
        }
        if self.ceiling.is_some() {
            writeln!(f, "  ceiling")?;
        }
        Ok(())
    }
}

/// Converts the error of opening a bundle. If the bundle's key isn't trusted, the error says how to
/// trust the key.
fn unopened(path: &Path, error: BundleError, loaded: &Config) -> HostError {
    use SignatureRefusal::{OutOfScope, UnknownKey};
    let BundleError::Signature(refusal @ (UnknownKey(_) | OutOfScope { .. })) = &error else {
        return bundle_failed(path, error);
    };
    const KEYS: &str = "installing.keys";
    let own_file = loaded.own_file();
    let needed_table = "a table [[installing.keys]] of the key with `bundles = true`";
    // Only a ceiling with this key limits the trusted keys.
    let mut ceilings = loaded.ceilings.iter();
    let limiting_ceiling =
        ceilings.find(|ceiling| ceiling.contents.source_below(KEYS) != ConfigSource::Default);
    let remedy = match limiting_ceiling {
        Some(ceiling) => format!(
            "{refusal}; the ceiling ({}) limits the trusted keys, so the ceiling and {own_file} \
             need {needed_table}",
            ceiling.contents.source_below(KEYS).place(KEYS)
        ),
        None => format!("{refusal}; to trust the bundle, {own_file} needs {needed_table}"),
    };
    refused(path, remedy)
}

/// The reason why a bundle's content is refused.
#[derive(Debug, Error)]
enum ContentsError {
    #[error("`{name}` can't be read: {error}")]
    Unreadable { name: String, error: std::io::Error },
    #[error("`{0}` is too large; the limit is {MAX_TEXT} bytes")]
    TooLarge(String),
    #[error("the bundle's `{LOCK}` isn't valid: {}", neutral_line(cut(&.0.to_string(), 200)))]
    InvalidLock(serde_json::Error),
    #[error("the bundle's `{LOCK}` doesn't name the plugin of `{0}`")]
    NotInLock(String),
    #[error("the bundle doesn't have the component of `{plugin}`")]
    NoComponent { plugin: String },
    #[error(
        "the digest of `{plugin}` in the bundle's `{LOCK}` differs from the component's digest"
    )]
    OtherDigest { plugin: String },
    #[error("the bundle's `{LOCK}` has no source for `{plugin}`")]
    NoSource { plugin: String },
    #[error("the source of `{plugin}`: {error}")]
    Source { plugin: String, error: FetchError },
}

/// Reads a file of the bundle, if the bundle has the file.
fn read(bundle: &Bundle, path: &Path, name: &str) -> Result<Option<Vec<u8>>, HostError> {
    let Some(file) = bundle.file(name) else { return Ok(None) };
    let mut bytes = Vec::new();
    // One byte more than the limit shows that the file is too large.
    let result = file.and_then(|file| file.take(MAX_TEXT + 1).read_to_end(&mut bytes));
    if let Err(error) = result {
        return Err(refused(path, ContentsError::Unreadable { name: name.to_owned(), error }));
    }
    if bytes.len() as u64 > MAX_TEXT {
        return Err(refused(path, ContentsError::TooLarge(name.to_owned())));
    }
    Ok(Some(bytes))
}

/// Returns the plugins in the lock. Checks that each plugin has a component, and that each
/// component is in the lock.
fn check_lock(bundle: &Bundle, lock: &[u8]) -> Result<Vec<BundledPlugin>, ContentsError> {
    let lock: BTreeMap<String, ApprovedPlugin> =
        serde_json::from_slice(lock).map_err(ContentsError::InvalidLock)?;
    let mut digests: BTreeMap<&str, &str> = BTreeMap::new();
    for entry in bundle.entries() {
        digests.insert(&entry.name, &entry.sha256);
    }
    for name in digests.keys().filter_map(|name| name.strip_prefix("plugins/")) {
        // The name is `PLUGIN.wasm`, or a name for its signature. A plugin's name has no dot.
        let plugin = name.split('.').next().unwrap_or_default();
        if !lock.contains_key(plugin) {
            return Err(ContentsError::NotInLock(name.to_owned()));
        }
    }
    let mut plugins = Vec::new();
    for (name, locked) in lock {
        plugins.push(check_plugin(name, locked, &digests)?);
    }
    Ok(plugins)
}

/// Returns the plugin of a lock entry, which must have a component in the bundle and a source.
/// `digests` has the digest of each file in the bundle.
fn check_plugin(
    name: String,
    locked: ApprovedPlugin,
    digests: &BTreeMap<&str, &str>,
) -> Result<BundledPlugin, ContentsError> {
    let ApprovedPlugin { digest, version, source } = locked;
    let Some(component_digest) = digests.get(component_name(&name).as_str()) else {
        return Err(ContentsError::NoComponent { plugin: shown(&name) });
    };
    if *component_digest != digest {
        return Err(ContentsError::OtherDigest { plugin: shown(&name) });
    }
    let Some(source) = source else {
        return Err(ContentsError::NoSource { plugin: shown(&name) });
    };
    let given = parse_source(&name, &source.given)?;
    let resolved = parse_source(&name, &source.resolved)?;
    Ok(BundledPlugin { name, version, digest, given, resolved })
}

fn parse_source(plugin: &str, text: &str) -> Result<Source, ContentsError> {
    Source::parse(text).map_err(|error| ContentsError::Source { plugin: shown(plugin), error })
}

fn shown(plugin: &str) -> String {
    neutral_line(cut(plugin, 80))
}
