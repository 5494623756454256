//! `cargo xtask recording`: makes the picture of `toolhold chat` in docs/agent.md again.
//!
//! The test that draws it also compares it with the one in the repository.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::{CommandResult, cargo, host, no_arguments};

/// The test, and the picture's name.
const TEST: &str = "picture_can_be_made_again";
const PICTURE: &str = "chat.svg";

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    host::build()?;
    let made = cargo::target().join("tmp").join(PICTURE);
    // Remove an old picture, so that it isn't taken for a new one.
    let _ = std::fs::remove_file(&made);
    let mut test = cargo::host("test");
    test.args(["-q", "--workspace", "--test", "e2e", "--", TEST]);
    // Ignore whether the test fails. It fails if the picture has changed, but then this command
    // makes the new one.
    test.status().map_err(|error| format!("cargo doesn't start: {error}"))?;
    let folder = cargo::root().join("docs/images");
    let copied =
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::copy(&made, folder.join(PICTURE)));
    copied.map_err(|error| format!("the test made no {}: {error}", made.display()))?;
    println!("docs/images/{PICTURE} is as toolhold shows it now");
    Ok(ExitCode::SUCCESS)
}
