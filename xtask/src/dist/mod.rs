//! `cargo xtask dist`: what is handed out, in `target/dist`: one static binary with everything
//! inside, and what belongs beside it, as a folder and as an archive. What was packed is then tried
//! where there is nothing else.
//!
//! The same sources, compiler and machine kind give the same archive, byte for byte: no path, time,
//! owner or order of the machine that builds goes into it.

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

use crate::tidy::manifest::Manifest;
use crate::{Done, cargo, host, machine, no_arguments, plugins, step};

use archive::Archive;
use packages::Package;
pub(crate) use paths::Paths;

/// How `uname -m` and Rust name the machine that builds, which is the one that is built for.
const ARCH: &str = std::env::consts::ARCH;

/// For C that is linked against another C library than the compiler's own, and is the same whenever
/// it is compiled: no calls that only glibc knows, which are checked copies and the numbers of
/// newer C, and no time of day.
const C_FLAGS: &str =
    r#"-std=gnu11 -U_FORTIFY_SOURCE -Wno-builtin-macro-redefined '-D__DATE__=""' '-D__TIME__=""'"#;

/// The shells that have a folder for the completions of programs, and what a program's file is
/// called there.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "bash-completion/completions/berth"),
    ("fish", "fish/vendor_completions.d/berth.fish"),
    ("zsh", "zsh/site-functions/_berth"),
];

pub(crate) fn command(arguments: &[OsString]) -> Done {
    no_arguments(arguments)?;
    machine::check()?;
    let target = target();
    machine::provide(&target)?;
    let packages = packages::in_the_binary(&target)?;
    let paths = Paths::of_this_machine(&target)?;
    let berth = build(&target, &paths)?;
    verify::is_static(&berth)?;
    paths.are_absent_from(&berth)?;

    step::headline("pack");
    let archive = Archive::new(&version()?)?;
    fill(&archive, &berth, &packages)?;
    fill_in_pages(&archive, &berth)?;
    archive.seal()?;
    verify::installs(&archive)?;
    verify::runs_alone(&berth)?;

    let size = fs::metadata(&berth).map_or(0, |file| file.len());
    step::headline(&format!(
        "berth has {:.1} MB; the archive is {}",
        size as f64 / 1e6,
        archive.packed().display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Builds the plugins and the binary, apart from what the other chores build.
fn build(target: &str, paths: &Paths) -> Result<PathBuf, String> {
    let folder = cargo::target().join("dist-build");
    let (components, compiled) = (folder.join("components"), folder.join("plugins"));
    let mut components_build = cargo::guests("build");
    components_build.args(["--locked", "--target-dir"]).arg(&components);
    let guests =
        plugins::build_with(paths.hidden_from(&mut components_build), &components, &compiled)?;
    host::with_plugins(&guests, || {
        let mut build = cargo::host("build");
        build
            .args(["--locked", "--release", "--package", "berth-cli", "--target", target])
            .env("BERTH_PLUGINS_DIR", &compiled);
        with_c_compiler(&mut build, target, "cc", paths);
        step::run("cargo build --release", paths.hidden_from(&mut build))?;
        let berth = cargo::target().join(target).join("release/berth");
        host::existing(&berth)?;
        Ok(berth)
    })
}

/// What is built for: static, and without asking the machine it runs on for its C library's other
/// half, as a static glibc does to look up names.
pub(crate) fn target() -> String {
    format!("{ARCH}-unknown-linux-musl")
}

/// Has a C compiler of the machine's compile what is in C, in the engine, the allocator and the
/// grammar of the shell.
pub(crate) fn with_c_compiler(build: &mut Command, target: &str, compiler: &str, paths: &Paths) {
    build.env("CC_SHELL_ESCAPED_FLAGS", "1");
    for (name, value, always) in
        [("CC", compiler, ""), ("CFLAGS", C_FLAGS, &*format!(" {}", paths.c_flags()))]
    {
        let name = format!("{name}_{}", target.replace('-', "_"));
        let mut value = std::env::var_os(&name).unwrap_or(value.into());
        value.push(always);
        build.env(name, value);
    }
}

/// Puts everything into the archive's folder. `bin` and `share` are what is installed.
fn fill(archive: &Archive, berth: &Path, packages: &[Package]) -> Result<(), String> {
    archive.program("bin/berth", &read(berth)?)?;
    for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        archive.file(&format!("share/doc/berth/{file}"), &read(&cargo::root().join(file))?)?;
    }
    archive.file("share/doc/berth/THIRD-PARTY-LICENSES", licences::text(packages)?.as_bytes())?;
    archive.file(
        "share/doc/berth/sbom.cdx.json",
        sbom::document(&version()?, &rust()?, packages).as_bytes(),
    )?;
    let script = include_str!("install.sh").replace("@ARCH@", ARCH);
    archive.program("install.sh", script.as_bytes())
}

/// What the program makes itself, and where shells and `man` look for it.
fn fill_in_pages(archive: &Archive, berth: &Path) -> Result<(), String> {
    for (shell, path) in COMPLETIONS {
        let script = printed(Command::new(berth).args(["completions", shell]))?;
        archive.file(&format!("share/{path}"), script.as_bytes())?;
    }
    let pages = verify::fresh_folder("man")?;
    printed(Command::new(berth).args(["man", "--all"]).arg(&pages))?;
    let found = fs::read_dir(&pages).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    for page in found.map_err(|error| format!("can't list {}: {error}", pages.display()))? {
        archive.file(
            &format!("share/man/man1/{}", page.file_name().display()),
            &read(&page.path())?,
        )?;
    }
    Ok(())
}

/// The version of everything in the workspace.
fn version() -> Result<String, String> {
    let manifest =
        Manifest::parse(&String::from_utf8_lossy(&read(&cargo::root().join("Cargo.toml"))?));
    manifest.string("workspace.package", "version").ok_or("Cargo.toml names no version".to_owned())
}

/// The version of Rust, whose standard library is in the binary.
fn rust() -> Result<String, String> {
    let told = machine::rustc(&["-vV"])?;
    let version = told.lines().find_map(|line| line.strip_prefix("release: "));
    version.map(str::to_owned).ok_or(format!("rustc -vV tells no release: {told}"))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("can't read {}: {error}", path.display()))
}

/// What a program prints that has to succeed.
fn printed(command: &mut Command) -> Result<String, String> {
    let answer = command.output().map_err(|error| step::cannot_start(command, &error))?;
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let told = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
    Err(format!("{} failed ({}): {told}", command.get_program().display(), answer.status))
}
