//! Checks of the machine before anything is built.

use std::path::PathBuf;
use std::process::Command;

use crate::cargo::{WASM, root};
use crate::step;

/// Fails on a platform that Toolhold doesn't run on, and installs the Rust target wasm32-wasip2 if
/// it is missing.
pub(crate) fn check() -> Result<(), String> {
    check_platform(std::env::consts::OS, std::env::consts::ARCH)?;
    ensure_target(WASM)
}

/// Installs the Rust target if it is missing.
pub(crate) fn ensure_target(target: &str) -> Result<(), String> {
    if has_target(target)? {
        return Ok(());
    }
    step::headline(&format!("add the Rust target {target}"));
    let added = step::run(
        "rustup",
        Command::new("rustup").current_dir(root()).args(["target", "add", target]),
    );
    if added.is_ok() && has_target(target)? {
        return Ok(());
    }
    Err(format!(
        "the Rust target {target} is missing. Run: rustup target add {target}   (rustup is at https://rustup.rs)"
    ))
}

/// The folder of the Rust toolchain.
pub(crate) fn sysroot() -> Result<PathBuf, String> {
    rustc(&["--print", "sysroot"]).map(PathBuf::from)
}

/// Runs `rustc` and returns what it prints.
pub(crate) fn rustc(arguments: &[&str]) -> Result<String, String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = rustc
        .current_dir(root())
        .args(arguments)
        .output()
        .map_err(|error| step::cannot_start(&rustc, &error))?;
    if !output.status.success() {
        return Err(format!(
            "rustc {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn check_platform(os: &str, architecture: &str) -> Result<(), String> {
    match (os, architecture) {
        ("linux", "x86_64" | "aarch64") => Ok(()),
        _ => Err(format!(
            "Toolhold runs on Linux on x86-64 and arm64; this machine is {os} on {architecture}"
        )),
    }
}

fn has_target(target: &str) -> Result<bool, String> {
    // The folder of the target isn't enough: rustup leaves it behind when it removes a target.
    Ok(sysroot()?.join("lib/rustlib").join(target).join("lib").is_dir())
}

#[cfg(test)]
mod tests {
    use super::check_platform;

    #[test]
    fn only_linux_on_two_architectures_is_supported() {
        assert_eq!(check_platform("linux", "x86_64"), Ok(()));
        assert_eq!(check_platform("linux", "aarch64"), Ok(()));
        for (os, architecture) in
            [("macos", "aarch64"), ("windows", "x86_64"), ("linux", "riscv64")]
        {
            let error = check_platform(os, architecture).unwrap_err();
            assert!(error.contains(os) && error.contains(architecture), "{error}");
        }
    }
}
