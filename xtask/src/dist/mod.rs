//! `cargo xtask dist`: builds a release in `target/dist`, as a folder and as an archive. It has one
//! static binary with everything inside, and the files that are installed with it. The packed
//! program is then tested in an empty environment.
//!
//! The same sources, compiler and kind of machine give the same archive, byte for byte. No path,
//! time, owner or file order of the build machine is part of it.

mod archive;
mod licences;
mod packages;
mod paths;
mod sbom;
mod verify;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::guests::{self, Guest, Selection};
use crate::tidy::manifest::Manifest;
use crate::{CommandResult, cargo, clients, grammars, host, machine, no_arguments, step};

use archive::Archive;
use packages::Package;
pub(crate) use paths::Paths;

/// The architecture of the build machine and of the release, as `uname -m` and Rust name it.
const ARCH: &str = std::env::consts::ARCH;

/// The profile of the release.
const PROFILE: &str = "release-lto";

/// Flags for C code. It is linked with another C library than the compiler's own, so it may not
/// call functions that only glibc has: the checked copies, and the parsers of numbers in newer C.
/// It has no time of compilation, so that it is always the same.
const C_FLAGS: &str =
    r#"-std=gnu11 -U_FORTIFY_SOURCE -Wno-builtin-macro-redefined '-D__DATE__=""' '-D__TIME__=""'"#;

/// The crate that plugins in Rust depend on.
const SDK: &str = "toolhold-sdk";

/// The shells that have a folder for completions, and the path of Toolhold's file there.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/toolhold"),
    ("fish", "fish/vendor_completions.d/toolhold.fish"),
    ("zsh", "zsh/site-functions/_toolhold"),
];

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    let release = Release::build(PROFILE)?;
    let toolhold = &release.toolhold;
    verify::check_static(toolhold)?;
    verify::check_stripped(toolhold)?;
    release.paths.check_absent_from(toolhold)?;

    step::headline("pack");
    let archive = Archive::new(&archive::dist(), &version()?)?;
    release.add_to(&archive)?;
    archive.pack()?;
    add_packages(&archive)?;
    add_rust_sdk()?;
    archive::sum()?;
    verify::check_install(&archive)?;
    verify::check_runs_alone(toolhold)?;
    verify::check_image(&archive.image())?;

    let size = fs::metadata(toolhold).map_or(0, |file| file.len());
    step::headline(&format!(
        "toolhold is {:.1} MB; the archive is {}",
        size as f64 / 1e6,
        archive.packed().display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// `cargo xtask install`: builds an optimised program, and installs it with what belongs beside it.
pub(crate) fn install(arguments: &[OsString]) -> CommandResult {
    let is_valid = match arguments {
        [] => true,
        [option, _] => option == "--prefix",
        _ => false,
    };
    if !is_valid {
        return Err("usage: cargo xtask install [--prefix DIR]".to_owned());
    }
    let release = Release::build("release")?;
    let archive = Archive::new(&cargo::target().join("install"), &version()?)?;
    release.add_to(&archive)?;
    archive.sum()?;
    let mut install = Command::new(archive.folder().join("install.sh"));
    step::run("install.sh", install.args(arguments))?;
    Ok(ExitCode::SUCCESS)
}

/// A program that was built, and what its archive needs to know.
struct Release {
    toolhold: PathBuf,
    packages: Vec<Package>,
    paths: Paths,
}

impl Release {
    /// Builds the plugins, the parts, and the program with this profile.
    fn build(profile: &str) -> Result<Self, String> {
        machine::check()?;
        let target = target();
        machine::ensure_target(&target)?;
        let packages = packages::in_binary(&target)?;
        let paths = Paths::of_this_machine(&target)?;
        let toolhold = build(&target, &paths, profile)?;
        Ok(Self { toolhold, packages, paths })
    }

    /// Adds everything to the archive's folder.
    fn add_to(&self, archive: &Archive) -> Result<(), String> {
        add_files(archive, &self.toolhold, &self.packages)?;
        add_parts(archive, &self.paths)?;
        add_contract(archive)?;
        add_completions_and_pages(archive, &self.toolhold)
    }
}

/// Makes the packages beside the archive, of the files in its folder.
fn add_packages(archive: &Archive) -> Result<(), String> {
    let mut make = packaging("pack");
    make.args([&version()?, ARCH, &archive::source_time().to_string()])
        .arg(repository()?.unwrap_or_default())
        .arg(cargo::root())
        .arg(archive.folder())
        .arg(archive::dist());
    step::run("toolhold-packaging", &mut make)
}

/// The program that makes packages.
pub(crate) fn packaging(subcommand: &str) -> Command {
    let mut make = cargo::host("run");
    make.args(["--locked", "--quiet", "--package", "toolhold-packaging", "--", subcommand]);
    make
}

/// Adds the SDK for plugins in Rust, as a registry of crates takes it.
fn add_rust_sdk() -> Result<(), String> {
    let folder = cargo::target().join("dist-build/sdk");
    let mut package = cargo::guests("package");
    package
        .args(["--locked", "--no-verify", "--allow-dirty", "--package", SDK, "--target-dir"])
        .arg(&folder);
    step::run("cargo package", &mut package)?;
    let file = format!("{SDK}-{}.crate", version()?);
    fs::copy(folder.join("package").join(&file), archive::dist().join(&file))
        .map(drop)
        .map_err(|error| format!("can't copy {file}: {error}"))
}

/// Builds the plugins and the binary, in other folders than the other commands.
fn build(target: &str, paths: &Paths, profile: &str) -> Result<PathBuf, String> {
    let folder = cargo::target().join("dist-build");
    let components = folder.join("components");
    let compiled = folder.join("plugins");
    host::with_plugins(
        || build_plugins(paths, &components, &compiled),
        |targets| {
            let mut build = cargo::host("build");
            build.args(["--locked", "--profile", profile, "--target", target, "--workspace"]);
            build.args(NOT_RELEASED.iter().flat_map(|package| ["--exclude", package]));
            build.args(targets);
            build.env("TOOLHOLD_PLUGINS_DIR", &compiled);
            with_c_compiler(&mut build, target, "cc", paths);
            step::run("cargo build", paths.hide_from(&mut build))?;
            Ok(cargo::target().join(target).join(profile))
        },
    )
}

/// Builds the plugins and the parts in the folder `components`, and compiles them into `compiled`.
fn build_plugins(paths: &Paths, components: &Path, compiled: &Path) -> Result<Vec<Guest>, String> {
    let mut build = cargo::guests("build");
    build.args(["--locked", "--target-dir"]).arg(components);
    let guests =
        guests::build_with(Selection::BuiltIn, paths.hide_from(&mut build), components, compiled)?;
    clients::fetch(clients::C_COMPILER)?;
    let mut grammars = cargo::grammars("build");
    let grammars_build = paths.hide_from(grammars.arg("--locked"));
    grammars::build_with(grammars_build, components, &compiled.join("parts"))?;
    Ok(guests)
}

/// The packages that aren't built with the program, because they would give it features that only
/// they need.
const NOT_RELEASED: [&str; 4] = ["xtask", "toolhold-packaging", "toolhold-tests", "toolhold-fuzz"];

/// The target of a release. A static musl binary never loads parts of the machine's C library; a
/// static glibc binary does so to look up names.
pub(crate) fn target() -> String {
    format!("{ARCH}-unknown-linux-musl")
}

/// Sets a compiler of this machine for the C code, which is in the engine, the allocator and the
/// shell grammar.
pub(crate) fn with_c_compiler(build: &mut Command, target: &str, compiler: &str, paths: &Paths) {
    build.env("CC_SHELL_ESCAPED_FLAGS", "1");
    let path_flags = format!(" {}", paths.c_flags());
    // The user can replace the value, but not what is added to it.
    for (name, value, addition) in [("CC", compiler, ""), ("CFLAGS", C_FLAGS, path_flags.as_str())]
    {
        let name = format!("{name}_{}", target.replace('-', "_"));
        let mut value = std::env::var_os(&name).unwrap_or(value.into());
        value.push(addition);
        build.env(name, value);
    }
}

/// Adds the program and its documents to the archive's folder. `bin` and `share` are installed.
fn add_files(archive: &Archive, toolhold: &Path, packages: &[Package]) -> Result<(), String> {
    archive.program("bin/toolhold", &read(toolhold)?)?;
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        archive.file(&format!("share/doc/toolhold/{file}"), &read(&cargo::root().join(file))?)?;
    }
    archive
        .file("share/doc/toolhold/THIRD-PARTY-LICENSES", licences::text(packages)?.as_bytes())?;
    archive.file(
        "share/doc/toolhold/sbom.cdx.json",
        sbom::document(&version()?, &rust()?, packages).as_bytes(),
    )?;
    let script = include_str!("install.sh").replace("@ARCH@", ARCH);
    archive.program("install.sh", script.as_bytes())
}

/// The folder of the parts in the archive, where the program looks for them.
const PARTS: &str = "lib/toolhold/parts";

/// Adds the parts that parse languages.
fn add_parts(archive: &Archive, paths: &Paths) -> Result<(), String> {
    let folder = cargo::target().join("dist-build/plugins/parts");
    for name in grammars::names()? {
        let file = folder.join(format!("{name}.wasm"));
        paths.check_absent_from(&file)?;
        archive.file(&format!("{PARTS}/{name}.wasm"), &read(&file)?)?;
    }
    Ok(())
}

/// The folder of the contract in the archive. It can't be `share/toolhold`, because this is the
/// folder of a user's data below the default prefix.
const CONTRACT: &str = "share/doc/toolhold/wit";

/// Adds the contract's WIT, for generators of bindings.
fn add_contract(archive: &Archive) -> Result<(), String> {
    for path in contract()? {
        archive
            .file(&format!("{CONTRACT}/{path}"), &read(&cargo::root().join("wit").join(&path))?)?;
    }
    Ok(())
}

/// The files of the contract, by their paths below `wit`.
fn contract() -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    archive::collect(&cargo::root().join("wit"), "", &mut files)?;
    files.retain(|path| path.ends_with(".wit"));
    Ok(files)
}

/// Adds the completions and man pages, which the program prints itself, in the folders where shells
/// and `man` look for them.
fn add_completions_and_pages(archive: &Archive, toolhold: &Path) -> Result<(), String> {
    for (shell, path) in COMPLETIONS {
        let script = stdout_of(Command::new(toolhold).args(["generate", "completions", shell]))?;
        archive.file(&format!("share/{path}"), script.as_bytes())?;
    }
    let pages = verify::fresh_folder("man")?;
    stdout_of(Command::new(toolhold).args(["generate", "man", "--all"]).arg(&pages))?;
    let found = fs::read_dir(&pages).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    for page in found.map_err(|error| format!("can't list {}: {error}", pages.display()))? {
        archive.file(
            &format!("share/man/man1/{}", page.file_name().display()),
            &read(&page.path())?,
        )?;
    }
    Ok(())
}

/// The version of the workspace.
pub(crate) fn version() -> Result<String, String> {
    of_workspace("version")?.ok_or("Cargo.toml has no version".to_owned())
}

/// The address of the sources, if the workspace names it.
pub(crate) fn repository() -> Result<Option<String>, String> {
    of_workspace("repository")
}

/// A value that the workspace sets for all packages.
fn of_workspace(key: &str) -> Result<Option<String>, String> {
    let manifest =
        Manifest::parse(&String::from_utf8_lossy(&read(&cargo::root().join("Cargo.toml"))?));
    Ok(manifest.string("workspace.package", key))
}

/// The version of Rust. Its standard library is in the binary.
fn rust() -> Result<String, String> {
    let output = machine::rustc(&["-vV"])?;
    let version = output.lines().find_map(|line| line.strip_prefix("release: "));
    version.map(str::to_owned).ok_or(format!("the output of rustc -vV has no release: {output}"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

/// Runs a program and returns its stdout. Fails if the program fails.
fn stdout_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| step::cannot_start(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{} failed ({}): {stderr}", command.get_program().display(), output.status))
}

#[cfg(test)]
mod tests {
    use super::contract;

    #[test]
    fn contract_is_packed_with_all_packages_that_it_refers_to() {
        let files = contract().expect("the folder is there");
        for file in [
            "tool/tools.wit",
            "tool/worlds.wit",
            "host/store.wit",
            "deps/io/poll.wit",
            "deps/http/types.wit",
        ] {
            assert!(files.iter().any(|found| found == file), "{file} is missing in {files:?}");
        }
        let other = files.iter().find(|found| !found.ends_with(".wit"));
        assert_eq!(other, None, "only the contract is packed");
    }
}
