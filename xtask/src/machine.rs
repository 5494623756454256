//! What the machine must have before anything is built.

use std::path::PathBuf;
use std::process::Command;

use crate::cargo::{WASM, root};
use crate::step;

/// Refuses a platform that Berth doesn't run on, and sees to it that Rust can build for
/// wasm32-wasip2.
pub(crate) fn check() -> Result<(), String> {
    platform(std::env::consts::OS, std::env::consts::ARCH)?;
    provide(WASM)
}

/// Sees to it that Rust can build for `target`.
pub(crate) fn provide(target: &str) -> Result<(), String> {
    if has(target)? {
        return Ok(());
    }
    step::headline(&format!("add the Rust target {target}"));
    let added = step::run(
        "rustup",
        Command::new("rustup").current_dir(root()).args(["target", "add", target]),
    );
    if added.is_ok() && has(target)? {
        return Ok(());
    }
    Err(format!(
        "this Rust can't build for {target}. Run: rustup target add {target}   (rustup comes from https://rustup.rs)"
    ))
}

/// Where the compiler and its libraries lie.
pub(crate) fn sysroot() -> Result<PathBuf, String> {
    rustc(&["--print", "sysroot"]).map(PathBuf::from)
}

/// What the compiler answers to a question.
pub(crate) fn rustc(question: &[&str]) -> Result<String, String> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let answer = rustc
        .current_dir(root())
        .args(question)
        .output()
        .map_err(|error| step::cannot_start(&rustc, &error))?;
    if !answer.status.success() {
        return Err(format!(
            "rustc {} failed: {}",
            question.join(" "),
            String::from_utf8_lossy(&answer.stderr).trim()
        ));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

fn platform(os: &str, architecture: &str) -> Result<(), String> {
    match (os, architecture) {
        ("linux", "x86_64" | "aarch64") => Ok(()),
        _ => {
            Err(format!("Berth runs on Linux on x86-64 and arm64; this is {os} on {architecture}"))
        }
    }
}

fn has(target: &str) -> Result<bool, String> {
    // The folder alone proves nothing: rustup leaves it behind when it removes a target.
    Ok(sysroot()?.join("lib/rustlib").join(target).join("lib").is_dir())
}

#[cfg(test)]
mod tests {
    use super::platform;

    #[test]
    fn only_linux_on_two_architectures_is_supported() {
        assert_eq!(platform("linux", "x86_64"), Ok(()));
        assert_eq!(platform("linux", "aarch64"), Ok(()));
        for (os, architecture) in
            [("macos", "aarch64"), ("windows", "x86_64"), ("linux", "riscv64")]
        {
            let refused = platform(os, architecture).unwrap_err();
            assert!(refused.contains(os) && refused.contains(architecture), "{refused}");
        }
    }
}
