//! The plugins of the workspace, which are built into `target/plugins`, as components and as
//! compiled code.
//!
//! For each plugin NAME there are three files: `NAME.wasm`, `NAME.cwasm` (compiled for the baseline
//! CPU), and `NAME.key`, which names the engine that the code was compiled for. A file is only
//! written if it has changed: the build of the binary watches these files. The parts of the plugins
//! are in `target/plugins/parts`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::WASM;
use crate::tidy::manifest::Manifest;
use crate::{cargo, step};

/// Which plugins are built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The guests that the program has inside.
    BuiltIn,
    /// The guests of the tests too.
    All,
}

/// Builds plugins for wasm32-wasip2, in the build that tests use.
pub(crate) fn build(selection: Selection) -> Result<Vec<Guest>, String> {
    build_with(
        selection,
        &mut cargo::guests("build"),
        &cargo::plugins().join("target"),
        &cargo::target().join("plugins"),
    )
}

/// Builds plugins with this command. `target` is the build folder of the command; `folder` is where
/// the plugins are installed afterwards.
pub(crate) fn build_with(
    selection: Selection,
    cargo_build: &mut Command,
    target: &Path,
    folder: &Path,
) -> Result<Vec<Guest>, String> {
    step::headline("build the plugins");
    if selection == Selection::All {
        cargo_build.arg("--workspace");
    }
    // Draw no progress, because the cargo of the host draws its own at the same time.
    cargo_build.env("CARGO_TERM_PROGRESS_WHEN", "never");
    cargo_build.args(["--lib", "--bins", "--release", "--target", WASM]);
    step::run("cargo build of the plugins", cargo_build)?;
    guests(selection, &target.join(WASM).join("release"), folder)
}

/// A plugin that has been built.
pub(crate) struct Guest {
    name: String,
    /// The folder for the component and its compiled code, which the build of the binary reads.
    folder: PathBuf,
    /// The component that cargo built.
    built: PathBuf,
}

impl Guest {
    /// The package's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the folder has this component, compiled for the engine with this key.
    pub(crate) fn is_current(&self, key: &str) -> bool {
        let same_component = fs::read(self.file("wasm"))
            .ok()
            .zip(fs::read(&self.built).ok())
            .is_some_and(|(installed, built)| installed == built);
        let same_engine = fs::read_to_string(self.file("key")).is_ok_and(|stored| stored == key);
        same_component && same_engine && self.file("cwasm").exists()
    }

    /// Compiles the component, and puts both into the folder.
    pub(crate) fn install(&self, compiler: &Path, key: &str) -> Result<(), String> {
        let compiled = self.compile(compiler)?;
        self.create_folder()?;
        // The old code is removed first and the new code is written last. So an interruption never
        // leaves a component with the code of another.
        for old in [self.file("key"), self.file("cwasm")] {
            match fs::remove_file(&old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("can't remove {}: {error}", old.display()));
                }
                _ => {}
            }
        }
        update(&self.file("wasm"), &read(&self.built)?)?;
        replace(&self.file("cwasm"), &compiled)?;
        replace(&self.file("key"), key.as_bytes())
    }

    fn compile(&self, compiler: &Path) -> Result<Vec<u8>, String> {
        let component = fs::File::open(&self.built)
            .map_err(|error| format!("can't open {}: {error}", self.built.display()))?;
        helper(compiler, "--baseline", component.into())
            .map_err(|why| format!("plugin {} can't be compiled: {why}", self.name))
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.folder.join(format!("{}.{extension}", self.name))
    }

    fn create_folder(&self) -> Result<(), String> {
        fs::create_dir_all(&self.folder)
            .map_err(|error| format!("can't create {}: {error}", self.folder.display()))
    }
}

/// The key of the compiler's engine: its version, settings and baseline CPU. Code that was compiled
/// under another key doesn't run.
pub(crate) fn engine_key(compiler: &Path) -> Result<String, String> {
    let key = helper(compiler, "--key", Stdio::null())?;
    String::from_utf8(key)
        .map(|key| key.trim().to_owned())
        .map_err(|_| "the engine's key isn't UTF-8".to_owned())
}

/// Runs the compiler, and returns what it prints.
fn helper(compiler: &Path, option: &str, input: Stdio) -> Result<Vec<u8>, String> {
    let mut command = Command::new(compiler);
    command.args(["__compile", option]).stdin(input).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| step::cannot_start(&command, &error))?;
    if output.status.success() && !output.stdout.is_empty() {
        Ok(output.stdout)
    } else {
        Err(format!("toolhold-compile __compile {option} failed ({})", output.status))
    }
}

/// The members of the plugins' workspace that are components. `built` is the folder of the
/// components.
fn guests(selection: Selection, built: &Path, folder: &Path) -> Result<Vec<Guest>, String> {
    let workspace = cargo::plugins();
    let key = match selection {
        Selection::BuiltIn => "default-members",
        Selection::All => "members",
    };
    let mut guests = Vec::new();
    for member in manifest(&workspace)?.strings("workspace", key) {
        let manifest = manifest(&workspace.join(&member))?;
        let is_command = workspace.join(&member).join("src/main.rs").exists();
        let is_library = manifest.strings("lib", "crate-type").iter().any(|kind| kind == "cdylib");
        if !is_command && !is_library {
            continue;
        }
        let name = manifest
            .string("package", "name")
            .ok_or(format!("plugins/{member}/Cargo.toml has no package name"))?;
        let file = if is_command {
            name.clone()
        } else {
            manifest.string("lib", "name").unwrap_or(name.replace('-', "_"))
        };
        guests.push(Guest {
            name,
            folder: folder.to_owned(),
            built: built.join(format!("{file}.wasm")),
        });
    }
    if guests.is_empty() {
        return Err("plugins/Cargo.toml has no member with the crate type `cdylib`".to_owned());
    }
    Ok(guests)
}

fn manifest(package: &Path) -> Result<Manifest, String> {
    let bytes = read(&package.join("Cargo.toml"))?;
    Ok(Manifest::parse(&String::from_utf8_lossy(&bytes)))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

/// Writes a file if it has other bytes. Otherwise it keeps its time, so that the build of the
/// binary sees no change.
pub(crate) fn update(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|installed| installed == bytes) {
        return Ok(());
    }
    replace(path, bytes)
}

/// Writes a new file and renames it, so that no build sees an incomplete file.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let new = path.with_added_extension("new");
    fs::write(&new, bytes)
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| format!("can't write {}: {error}", path.display()))
}
