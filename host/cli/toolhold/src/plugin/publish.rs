//! `toolhold plugin publish`: copies a component and its signatures into a folder or a registry.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use toolhold_core::outbound_client;
use toolhold_core::text::{neutral_line, shell_word};
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

/// All users may read a published file.
const PUBLIC_MODE: u32 = 0o644;

struct Component {
    wasm: Vec<u8>,
    digest: String,
    signatures: Vec<Vec<u8>>,
    manifest: Manifest,
}

/// The result of a publication.
struct Outcome {
    /// The source for `toolhold plugin add`.
    source: String,
    /// Whether the destination already had the component.
    is_same: bool,
    /// Whether the destination had another component of the same version.
    replaces_version: bool,
}

pub(super) fn run(arguments: &PublishArguments, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let destination = Source::parse(&arguments.destination).map_err(Error::usage)?;
    let component = open(&arguments.component, &setting)?;
    let signer = check_signatures(&component, &setting)?;
    let Outcome { source, is_same, replaces_version } = match &destination {
        Source::Oci(reference) => {
            let publication = Publication {
                wasm: &component.wasm,
                name: &component.manifest.name,
                version: &component.manifest.version,
                signatures: &component.signatures,
                replaces: arguments.replace,
            };
            let network = outbound_client(&setting.loaded, &setting.folders, "toolhold plugin");
            let login = fetch_options(&destination, &setting.folders)?;
            let published = host::block_on(async {
                let publishing = publish(reference, publication, &network, &login);
                progress::show(publishing, || "publishing the component".to_owned())
                    .await
                    .map_err(fetch_failed)
            })?;
            Outcome {
                source: published.source.to_string(),
                is_same: published.is_same,
                replaces_version: published.is_replaced
                    && reference.tag() == Some(&*component.manifest.version),
            }
        }
        Source::Path(folder) => publish_in_folder(&component, folder, arguments.replace)?,
        Source::Url(url) => {
            return Err(Error::Usage(format!(
                "{url} accepts no uploads: publish into the folder that your web server serves, or \
                 in a registry (oci://REGISTRY/NAME:TAG)"
            )));
        }
    };

    let Manifest { name, version, .. } = &component.manifest;
    let version = neutral_line(version);
    let mut out = anstream::stdout().lock();
    let state = if is_same { "is already published" } else { "is published" };
    writeln!(out, "{name} {version} {state}, {signer}:\n  {}", neutral_line(&source))?;
    if replaces_version {
        writeln!(
            out,
            "Another component with version {version} was published there. Raise `version` for a \
             new build, so that people can tell them apart."
        )?;
    }
    let word = neutral_line(&shell_word(&source));
    writeln!(out, "To install this component:\n  toolhold plugin add {word}")?;
    // A file may be replaced, but a source in a registry has a digest.
    if matches!(destination, Source::Path(_)) {
        let digest = &component.digest;
        writeln!(out, "To install exactly this component, without a question:")?;
        writeln!(out, "  toolhold plugin add {word} --digest {digest}")?;
    }
    Ok(Exit::Success)
}

/// Reads the component, and checks that its tools can be listed.
fn open(written: &Path, setting: &Setting) -> Result<Component, Error> {
    let source = Source::Path(written.to_owned());
    let network = outbound_client(&setting.loaded, &setting.folders, "toolhold plugin");
    let options = FetchOptions::default();
    let fetched = host::block_on(async {
        // Reading a local file is too fast to show progress.
        fetch(&source, &network, &options, &|_, _| {}).await.map_err(fetch_failed)
    })?;
    let Source::Path(file) = &fetched.resolved else {
        return Err(Error::Usage(format!("{} isn't a file", shown::path(written))));
    };
    let candidate = Candidate::file(file)?;
    let manifest = candidate.info().manifest.clone();
    let digest = candidate.info().digest.clone();
    setting.inspect(candidate)?;
    let signatures = read_signatures_beside(file).map_err(key::failed)?;
    Ok(Component { wasm: fetched.bytes, digest, signatures, manifest })
}

/// Describes the signer of the component. The author's keys and the configured keys are trusted.
/// Refuses a signature of another component, because nobody could install this plugin with it.
fn check_signatures(component: &Component, setting: &Setting) -> Result<String, Error> {
    let own_keys = KeyFolder::new(&setting.folders.config).all().map_err(key::failed)?;
    let mut trusted_keys = keys(&setting.loaded);
    for (name, key) in own_keys {
        trusted_keys.push(TrustedKey {
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
    match verify_plugin(plugin, &component.signatures, &trusted_keys, today()) {
        Ok(signer) => Ok(format!("signed by key `{}`", neutral_line(&signer.name))),
        Err(SignatureRefusal::NoSignature) => {
            Ok("without a signature (`toolhold plugin sign` makes one)".to_owned())
        }
        // The signature belongs to another component, or its key is revoked.
        Err(refusal) if refusal.is_alarming() => Err(Error::Usage(format!(
            "{name}: {refusal}; sign the component again with `toolhold plugin sign`"
        ))),
        Err(refusal @ SignatureRefusal::Malformed(_)) => {
            Err(Error::Usage(format!("{name}: {refusal}")))
        }
        // Other people may trust other keys or sources, so the signature may be valid for them.
        Err(refusal) => {
            Ok(format!("with a signature that your trusted keys don't confirm: {refusal}"))
        }
    }
}

/// Writes `NAME.wasm` and `NAME.wasm.minisig` into `folder`.
fn publish_in_folder(
    component: &Component,
    folder: &Path,
    replaces: bool,
) -> Result<Outcome, Error> {
    if !folder.is_dir() {
        return Err(Error::Usage(format!("{} isn't a folder", shown::path(folder))));
    }
    let file = std::path::absolute(folder)?.join(format!("{}.wasm", component.manifest.name));
    let is_same = has_content(&file, &component.wasm).map_err(|error| file_error(&file, &error))?;
    let exists = file.symlink_metadata().is_ok();
    if exists && !is_same && !replaces {
        return Err(Error::Usage(format!(
            "{} is another component; to replace that component, add `--replace`",
            shown::path(&file)
        )));
    }
    // The replaced component may be another build of the same version.
    let replaces_version = exists
        && !is_same
        && Candidate::file(&file)
            .is_ok_and(|old| old.info().manifest.version == component.manifest.version);

    let signature = signature_path(&file);
    if !component.signatures.is_empty() {
        write_public(&signature, &join_signatures(&component.signatures))?;
    } else if !is_same {
        // The old signature doesn't belong to this component.
        remove_if_exists(&signature)?;
    }
    if !is_same {
        write_public(&file, &component.wasm)?;
    }
    Ok(Outcome { source: file.display().to_string(), is_same, replaces_version })
}

fn remove_if_exists(file: &Path) -> Result<(), Error> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(file, &error)),
        _ => Ok(()),
    }
}

/// Checks whether a path is a regular file with this content. A file of another size isn't read,
/// because it may be very large. A FIFO isn't read, because it has no end.
fn has_content(path: &Path, content: &[u8]) -> io::Result<bool> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() || metadata.len() != content.len() as u64 {
        return Ok(false);
    }
    Ok(std::fs::read(path)? == content)
}

fn write_public(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_and_rename(path, bytes).map_err(|error| file_error(path, &error))
}

/// Writes a file that all users can read. A temporary file gets the path after the bytes are
/// written, so that the file appears in one step.
fn write_and_rename(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".toolhold-")
        .permissions(Permissions::from_mode(PUBLIC_MODE))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn file_error(path: &Path, error: &io::Error) -> Error {
    Error::Usage(format!("{}: {error}", shown::path(path)))
}
