//! `berth plugin new`, `build`, `pack` and `wit`: for authors. They grant nothing.

use std::io::Write;
use std::path::Path;

use berth_authoring::{Language, build, create, pack_file, write_wit};
use berth_core::text::neutral;

use crate::arguments::AuthorCommand;
use crate::error::Error;
use crate::exit::Exit;

/// Runs the command.
pub(super) fn run(command: &AuthorCommand) -> Result<Exit, Error> {
    let done = match command {
        AuthorCommand::New { name, lang, dir } => {
            let folder = dir.as_deref().unwrap_or(Path::new(name));
            Language::from_name(lang).and_then(|language| create(name, language, folder))
        }
        AuthorCommand::Build { dir } => build(dir).map(|built| built.to_string()),
        AuthorCommand::Pack { file, manifest, output } => {
            pack_file(file, manifest, output.as_deref()).map(|built| built.to_string())
        }
        AuthorCommand::Wit { dir, force } => write_wit(dir, *force),
    };
    let text = done.map_err(Error::Usage)?;
    writeln!(anstream::stdout().lock(), "{}", neutral(&text))?;
    Ok(Exit::Success)
}
