//! `toolhold plugin publish`: puts a component and its signatures where others install it from.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use toolhold_core::text::neutral_line;
use toolhold_core::{Candidate, Manifest};
use toolhold_registry::{FetchOptions, Publication, Source, fetch, publish};
use toolhold_signing::{
    KeyFolder, SignatureRefusal, SignedPlugin, TrustedKey, join_signatures, read_signatures_beside,
    signature_path, today, verify_plugin,
};

use crate::arguments::install::PublishArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin::Setting;
use crate::plugin::install::command::{fetch_failed, fetch_options};
use crate::plugin::install::keys;
use crate::{host, key, progress, shown};

/// The mode of a published file: everybody may read it.
const PUBLIC: u32 = 0o644;

/// A component that can be published.
struct Component {
    wasm: Vec<u8>,
    signatures: Vec<Vec<u8>>,
    manifest: Manifest,
}

/// Publishes a component in a folder or in a registry.
pub(super) fn run(arguments: &PublishArguments, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let destination = Source::parse(&arguments.destination).map_err(Error::usage)?;
    let component = open(&arguments.component, &setting)?;
    let signer = check_signatures(&component, &setting)?;
    let (source, is_same) = match &destination {
        Source::Oci(reference) => {
            let publication = Publication {
                wasm: &component.wasm,
                name: &component.manifest.name,
                version: &component.manifest.version,
                signatures: &component.signatures,
                replaces: arguments.replace,
            };
            let door = toolhold_core::door(&setting.loaded, &setting.folders, "toolhold plugin");
            let login = fetch_options(&destination, &setting.folders)?;
            let published = host::block_on(async {
                let publishing = publish(reference, publication, &door, &login);
                progress::show(publishing, || "publishing the component".to_owned())
                    .await
                    .map_err(fetch_failed)
            })?;
            (published.source.to_string(), published.is_same)
        }
        Source::Path(folder) => {
            let (file, is_same) = publish_in_folder(&component, folder, arguments.replace)?;
            (file.display().to_string(), is_same)
        }
        Source::Url(url) => {
            return Err(Error::Usage(format!(
                "{url} takes no files: publish into the folder that your web server serves, or in \
                 a registry (oci://REGISTRY/NAME:TAG)"
            )));
        }
    };

    let Manifest { name, version, .. } = &component.manifest;
    let version = neutral_line(version);
    let source = neutral_line(&source);
    let mut out = anstream::stdout().lock();
    let state = if is_same { "is already published" } else { "is published" };
    writeln!(out, "{name} {version} {state}, {signer}:\n  {source}")?;
    writeln!(out, "To install exactly this component:\n  toolhold plugin add {source}")?;
    Ok(Exit::Success)
}

/// Reads a component and its signatures, and checks that the component loads.
fn open(written: &Path, setting: &Setting) -> Result<Component, Error> {
    let source = Source::Path(written.to_owned());
    let door = toolhold_core::door(&setting.loaded, &setting.folders, "toolhold plugin");
    let fetched = host::block_on(async {
        fetch(&source, &door, &FetchOptions::default(), &|_, _| {}).await.map_err(fetch_failed)
    })?;
    let Source::Path(file) = &fetched.resolved else {
        return Err(Error::Usage(format!("{} isn't a file", shown::path(written))));
    };
    let candidate = Candidate::file(file)?;
    let manifest = candidate.info().manifest.clone();
    setting.inspect(candidate)?;
    let signatures = read_signatures_beside(file).map_err(key::failed)?;
    Ok(Component { wasm: fetched.bytes, signatures, manifest })
}

/// Describes the signer. The keys are those of the author and those that the configuration trusts.
///
/// # Errors
///
/// A signature isn't one of this component. Nobody could install the plugin with it.
fn check_signatures(component: &Component, setting: &Setting) -> Result<String, Error> {
    let own = KeyFolder::new(&setting.folders.config).all().map_err(key::failed)?;
    let mut known = keys(&setting.loaded);
    for (name, key) in own {
        known.push(TrustedKey {
            name,
            key,
            plugins: vec!["*".parse().map_err(Error::usage)?],
            sources: Vec::new(),
            bundles: false,
            not_after: None,
            revoked: false,
        });
    }
    let name = &component.manifest.name;
    let plugin = SignedPlugin { wasm: &component.wasm, name, source: None };
    match verify_plugin(plugin, &component.signatures, &known, today()) {
        Ok(signer) => Ok(format!("signed by key `{}`", neutral_line(&signer.name))),
        Err(SignatureRefusal::NoSignature) => {
            Ok("without a signature (`toolhold plugin sign` makes one)".to_owned())
        }
        Err(refusal) if refusal.is_alarming() => Err(Error::Usage(format!(
            "{name}: {refusal}; sign the component again with `toolhold plugin sign`"
        ))),
        Err(refusal @ SignatureRefusal::Malformed(_)) => {
            Err(Error::Usage(format!("{name}: {refusal}")))
        }
        // The key is known elsewhere, or trusted for other sources.
        Err(refusal) => Ok(format!("with a signature that your keys don't confirm: {refusal}")),
    }
}

/// Writes a component and its signatures into a folder, as `NAME.wasm` and `NAME.wasm.minisig`.
/// Returns the component's file, and whether the folder had the same component already.
fn publish_in_folder(
    component: &Component,
    folder: &Path,
    replaces: bool,
) -> Result<(PathBuf, bool), Error> {
    if !folder.is_dir() {
        return Err(Error::Usage(format!("{} isn't a folder", shown::path(folder))));
    }
    let file = std::path::absolute(folder)?.join(format!("{}.wasm", component.manifest.name));
    let is_same = match std::fs::read(&file) {
        Ok(bytes) => bytes == component.wasm,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(file_error(&file, &error)),
    };
    let exists = file.symlink_metadata().is_ok();
    if exists && !is_same && !replaces {
        return Err(Error::Usage(format!(
            "{} is another component; to replace it, add `--replace`",
            shown::path(&file)
        )));
    }

    let signature = signature_path(&file);
    if component.signatures.is_empty() {
        // A signature of the component before would be wrong.
        match std::fs::remove_file(&signature) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file_error(&signature, &error));
            }
            _ => {}
        }
    } else {
        write_public(&signature, &join_signatures(&component.signatures))?;
    }
    if !is_same {
        write_public(&file, &component.wasm)?;
    }
    Ok((file, is_same))
}

/// Writes a file in one step.
fn write_public(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_and_rename(path, bytes).map_err(|error| file_error(path, &error))
}

fn write_and_rename(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".toolhold-")
        .permissions(Permissions::from_mode(PUBLIC))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn file_error(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("{}: {error}", shown::path(path)))
}
