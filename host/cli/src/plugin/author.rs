//! `berth plugin new`, `build`, `pack` and `wit`: for authors. They grant nothing.

use std::io::Write;
use std::path::{Path, PathBuf};

use berth_authoring::{Authored, Language};
use berth_core::text::neutral;

use crate::arguments::AuthorCommand;
use crate::error::Error;
use crate::exit::Exit;

/// Runs the command.
pub(super) fn run(command: &AuthorCommand) -> Result<Exit, Error> {
    let done = match command {
        AuthorCommand::New { name, lang, dir } => create(name, lang, dir.as_deref()),
        AuthorCommand::Build { dir } => build(dir),
        AuthorCommand::Pack { file, manifest, output } => pack(file, manifest, output.as_deref()),
        AuthorCommand::Wit { dir, force } => berth_authoring::write_wit(dir, *force).map(|()| {
            format!(
                "The contract is in {}; the world to begin with is world.wit there",
                dir.display()
            )
        }),
    };
    let text = done.map_err(Error::Usage)?;
    writeln!(anstream::stdout().lock(), "{}", neutral(&text))?;
    Ok(Exit::Success)
}

fn create(name: &str, language: &str, folder: Option<&Path>) -> Result<String, String> {
    let folder = folder.unwrap_or(Path::new(name));
    berth_authoring::create(name, Language::from_name(language)?, folder)?;
    let shown = folder.display();
    Ok(format!(
        "Made {shown}. Its README.md says how to test, build and call it; to build it: berth plugin build {shown}"
    ))
}

fn build(folder: &Path) -> Result<String, String> {
    let built = berth_authoring::build(folder)?;
    Ok(described(&built.file, built.size, &built.notices))
}

fn pack(file: &Path, manifest: &Path, output: Option<&Path>) -> Result<String, String> {
    let place = |path: &Path, error: String| format!("{}: {error}", path.display());
    let text = String::from_utf8(berth_authoring::read(manifest)?)
        .map_err(|_| place(manifest, "it isn't UTF-8".to_owned()))?;
    let authored = Authored::parse(&text).map_err(|error| place(manifest, error))?;
    let packed = berth_authoring::pack(&berth_authoring::read(file)?, &authored)
        .map_err(|error| place(file, error))?;
    let output = output
        .map_or_else(|| PathBuf::from(format!("{}.wasm", authored.manifest.name)), Path::to_owned);
    // Written aside and renamed: a host may be reading the old file, and it may be `file` itself.
    let new = output.with_added_extension("new");
    std::fs::write(&new, &packed.component)
        .and_then(|()| std::fs::rename(&new, &output))
        .map_err(|error| format!("{} can't be written: {error}", output.display()))?;
    Ok(described(&output, packed.component.len(), &packed.notices))
}

fn described(file: &Path, size: usize, notices: &[String]) -> String {
    let notices: String = notices.iter().map(|notice| format!("note: {notice}\n")).collect();
    let shown = file.display();
    format!(
        "{notices}{shown} ({size} bytes). To see what it asks for: berth plugin inspect {shown}"
    )
}
