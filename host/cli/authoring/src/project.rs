//! `toolhold plugin new`: creates a plugin from an example.

use std::fs;
use std::path::Path;

use crate::AuthoringError;
use crate::Language;
use crate::files::{self, File, ProjectFileError, WORKSPACE, Written};

/// The name in the examples, which the name of the new plugin replaces.
const EXAMPLE: &str = "word-count";

pub(crate) const MAX_NAME: usize = 24;

/// Writes a language's example with a new name, and its SDK. Returns a note for the author.
///
/// # Errors
///
/// Returns an error if the name is invalid, or if the folder isn't empty or can't be written.
pub fn create(name: &str, language: Language, folder: &Path) -> Result<String, AuthoringError> {
    if !is_plugin_name(name) {
        return Err(AuthoringError::Name(name.to_owned()));
    }
    match fs::read_dir(folder) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(ProjectFileError::NotEmpty(folder.to_owned()).into());
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(ProjectFileError::io("read", folder)(error).into()),
    }
    let force = false;
    files::write_all(folder, &project_files(name, language), force)?;
    let shown = folder.display();
    Ok(format!(
        "Created {shown}. Its README.md explains how to test, build and call the plugin. To build \
         it: toolhold plugin build {shown}"
    ))
}

fn is_plugin_name(name: &str) -> bool {
    let has_valid_characters =
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let starts_with_letter = name.starts_with(|c: char| c.is_ascii_lowercase());
    has_valid_characters && starts_with_letter && name.len() <= MAX_NAME
}

fn project_files(name: &str, language: Language) -> Vec<Written> {
    let example = language.example().iter().map(|file| example_file(file, name, language));
    let sdk = language.sdk().iter().map(|file| sdk_file(file, language));
    example.chain(sdk).collect()
}

fn example_file(file: &File, name: &str, language: Language) -> Written {
    let Ok(text) = std::str::from_utf8(file.bytes) else {
        return Written::new(file.path, file.bytes);
    };
    // In these languages, a module's path starts with a dot.
    let needs_dot = matches!(language, Language::JavaScript | Language::Go);
    let sdk = if needs_dot { "./sdk" } else { "sdk" };
    let mut text = text.replace(language.sdk_in_repository(), sdk).replace(EXAMPLE, name);
    if file.path == "Cargo.toml" {
        // The SDK must not be in the plugin's workspace.
        text = text.replace("[workspace]\n", "[workspace]\nexclude = [\"sdk\"]\n");
    }
    Written::new(file.path, text)
}

/// Returns a file of the SDK for the author's project. In the SDK's `Cargo.toml`, the values of the
/// repository's workspace replace references to the workspace.
fn sdk_file(file: &File, language: Language) -> Written {
    let path = format!("sdk/{}", file.path);
    if language == Language::Rust
        && file.path == "Cargo.toml"
        && let Ok(text) = std::str::from_utf8(file.bytes)
    {
        return Written::new(path, without_workspace(text, WORKSPACE));
    }
    Written::new(path, file.bytes)
}

/// Replaces each line `NAME.workspace = true` by the line of `workspace` with this name. Removes
/// the inherited lints.
fn without_workspace(manifest: &str, workspace: &str) -> String {
    let mut lines = Vec::new();
    for line in manifest.lines() {
        if matches!(line, "[lints]" | "workspace = true") {
            continue;
        }
        let inherited_name = line.strip_suffix(".workspace = true");
        let workspace_line = inherited_name.and_then(|name| line_of_key(workspace, name));
        lines.push(workspace_line.unwrap_or(line));
    }
    let text = lines.join("\n");
    format!("{}\n", text.trim_end())
}

fn line_of_key<'t>(toml: &'t str, name: &str) -> Option<&'t str> {
    toml.lines().find(|line| line.split_once('=').is_some_and(|(key, _)| key.trim() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_project_has_its_name_and_the_sdk_beside_it() {
        for language in Language::ALL {
            let folder = tempfile::tempdir().unwrap();
            create("my-plugin", language, folder.path()).unwrap();
            for file in language.example() {
                let Ok(text) = fs::read_to_string(folder.path().join(file.path)) else { continue };
                assert!(!text.contains(EXAMPLE) && !text.contains("../../sdk"), "{}", file.path);
            }
            assert!(folder.path().join("README.md").exists(), "{language:?}");
            assert!(folder.path().join("sdk").is_dir(), "{language:?}");
            let again = create("my-plugin", language, folder.path()).unwrap_err().to_string();
            assert!(again.contains("isn't empty"), "{again}");
        }
    }

    #[test]
    fn names_that_no_plugin_has_are_refused() {
        for name in ["", "9lives", "Upper", "a_b", "../up", &"a".repeat(25)] {
            let folder = tempfile::tempdir().unwrap();
            let error = create(name, Language::Rust, folder.path()).unwrap_err().to_string();
            assert!(error.contains("isn't valid"), "{error}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn inherited_values_are_written_out() {
        let workspace = "[workspace]\nmembers = [\"sdk\"]\n[workspace.package]\nversion = \"1.2.3\"\n[workspace.dependencies]\nurl = \"2.5\"\n";
        let manifest = "[package]\nname = \"x\"\nversion.workspace = true\n\n[dependencies]\nurl.workspace = true\n\n[lints]\nworkspace = true\n";
        assert_eq!(
            without_workspace(manifest, workspace),
            "[package]\nname = \"x\"\nversion = \"1.2.3\"\n\n[dependencies]\nurl = \"2.5\"\n"
        );
    }
}
