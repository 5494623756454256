//! A release from its packages to a machine: what it has once, the steps of its workflow, and the
//! script that installs it, against a server on this machine.

#[path = "../../../../tests/not_tried.rs"]
mod not_tried;

mod checks;
mod installing;
mod server;
mod steps;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use toolhold_packaging::{Architecture, Package, Publication, Release, Repository, packages};
use toolhold_signing::{SecretKey, Signature};

use not_tried::not_tried;

const VERSION: &str = "1.2.3";

/// A program that says its version, as all that an install script wants of it.
const PROGRAM: &str = "#!/bin/sh\necho toolhold 1.2.3\n";

fn repository() -> Repository {
    Repository::from_url("https://github.com/example/toolhold").expect("it is one")
}

fn release_for(machine: &str) -> Release {
    Release {
        version: VERSION.to_owned(),
        architecture: Architecture::from_name(machine).expect("it has packages"),
        program: PROGRAM.into(),
        parts: vec![("go".to_owned(), b"\0asm".to_vec())],
        readme: b"# Toolhold\n".to_vec(),
        licences: vec![
            ("LICENSE-MIT".to_owned(), b"licence".to_vec()),
            ("THIRD-PARTY-LICENSES".to_owned(), format!("those for {machine}").into_bytes()),
        ],
        sbom: b"{}\n".to_vec(),
        share: vec![
            ("share/man/man1/toolhold.1".to_owned(), b"page".to_vec()),
            ("share/zsh/site-functions/_toolhold".to_owned(), b"#compdef toolhold\n".to_vec()),
        ],
        sdk_python: vec![("toolhold/__init__.py".to_owned(), b"tool = 1\n".to_vec())],
        sdk_javascript: vec![("toolhold.js".to_owned(), b"export const tool = 1;\n".to_vec())],
        repository: Some(repository()),
        time: 1_700_000_000,
        compression: 1,
    }
}

/// The name of an archive, without what its compression adds.
fn archive_name(machine: &str) -> String {
    format!("toolhold-{VERSION}-{machine}-linux")
}

/// Packs files as an archive: paths, modes and contents.
fn packed(files: &[(String, u32, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, mode, content) in files {
        let mut header = tar::Header::new_ustar();
        // As it is: the crate refuses paths of attacks.
        let name = &mut header.as_ustar_mut().expect("it is one").name;
        name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(*mode);
        header.set_size(content.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        archive.append(&header, &content[..]).expect("it is packed");
    }
    gzip(&archive.into_inner().expect("it is packed"))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("it is packed");
    encoder.finish().expect("it is packed")
}

/// An archive as `cargo xtask dist` makes it, with the install script of the sources.
fn archive(machine: &str) -> Vec<u8> {
    let folder = archive_name(machine);
    let script = include_str!("../../../src/dist/install.sh").replace("@ARCH@", machine);
    let page = "a manual page\n".repeat(2000);
    let files =
        [("bin/toolhold", PROGRAM.as_bytes()), ("share/man/man1/toolhold.1", page.as_bytes())];
    let sums = files.map(|(path, content)| format!("{}  {path}\n", sha256(content))).concat();
    let mut packed_files = vec![
        (format!("{folder}/install.sh"), 0o755, script.into_bytes()),
        (format!("{folder}/SHA256SUMS"), 0o644, sums.into_bytes()),
    ];
    for (path, content) in files {
        packed_files.push((format!("{folder}/{path}"), 0o755, content.to_vec()));
    }
    packed(&packed_files)
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;

    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A release in a folder, with a key of its own.
struct Published {
    folder: TempDir,
    key: SecretKey,
}

impl Published {
    fn new() -> Self {
        let published = Self {
            folder: TempDir::new().expect("a folder is made"),
            key: SecretKey::generate().expect("there are random bytes"),
        };
        let mut files = BTreeMap::new();
        for machine in ["x86_64", "aarch64"] {
            files.insert(format!("{}.tar.gz", archive_name(machine)), archive(machine));
            for Package { file_name, bytes } in
                packages(&release_for(machine)).expect("they are made")
            {
                files.insert(file_name, bytes);
            }
        }
        let publication = Publication {
            version: VERSION.to_owned(),
            repository: repository(),
            key: published.key.public().to_string(),
            files,
        };
        for Package { file_name, bytes } in publication.further().expect("nothing is missing") {
            published.write(&file_name, &bytes);
        }
        publication.files.iter().for_each(|(name, bytes)| published.write(name, bytes));
        published.sign();
        published
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).expect("it is written");
    }

    fn sign(&self) {
        let sums = fs::read(self.path("SHA256SUMS")).expect("it is there");
        let signature = Signature::sign(&sums, "toolhold-release/1 version=1.2.3", &self.key);
        let signature = signature.expect("it is signed").to_string();
        self.write("SHA256SUMS.minisig", signature.as_bytes());
    }

    /// Replaces the archive for this machine, with its checksum and the signature.
    fn replace_archive(&self, bytes: &[u8]) {
        let name = self.archive();
        let sums = fs::read_to_string(self.path("SHA256SUMS")).expect("it is there");
        let old = sha256(&fs::read(self.path(&name)).expect("it is there"));
        self.write("SHA256SUMS", sums.replace(&old, &sha256(bytes)).as_bytes());
        self.write(&name, bytes);
        self.sign();
    }

    /// The name of the archive for this machine.
    fn archive(&self) -> String {
        format!("{}.tar.gz", archive_name(std::env::consts::ARCH))
    }
}

/// The folder of what `cargo xtask test` fetched. `None`, with a notice, if it isn't there.
fn fetched(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("clients").join(name);
    let is_there = folder.join("fetched").exists();
    if !is_there {
        not_tried(&format!("clients/{name}"));
    }
    is_there.then_some(folder)
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("it is two levels down")
}

/// Has another process write a program: one that another test starts meanwhile would have this one's
/// handle, and a program that is open for writing can't be started.
fn write_program(path: &Path, text: &str) {
    let mut install = Command::new("install");
    let install = install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().expect("it starts");
    let mut input = install.stdin.take().expect("it is piped");
    input.write_all(text.as_bytes()).expect("it is read");
    drop(input);
    assert!(install.wait().expect("it ends").success());
}

/// What a command prints, if it succeeds.
#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {printed}{errors}");
    printed
}
