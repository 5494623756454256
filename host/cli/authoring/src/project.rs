//! `toolhold plugin new`: a folder with a plugin that builds and works.

use std::fs;
use std::path::Path;

use crate::AuthoringError;
use crate::Language;
use crate::files::{self, File, ProjectFileError, WORKSPACE, Written};

/// The name of the example plugins. The new plugin's name replaces it.
const EXAMPLE: &str = "word-count";

/// The most characters of a plugin's name.
pub(crate) const MAX_NAME: usize = 24;

/// Writes a new plugin into a folder. The plugin is the example of its language under a new name,
/// with the SDK of this Toolhold. Returns a note for the author.
///
/// # Errors
///
/// Returns an error if the name isn't valid for a plugin, if the folder isn't empty, or if the
/// folder can't be written.
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
    files::write_all(folder, &project_files(name, language), false)?;
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

/// Returns a file of the example, with the plugin's name and the place of the SDK in the project.
fn example_file(file: &File, name: &str, language: Language) -> Written {
    let Ok(text) = std::str::from_utf8(file.bytes) else {
        return Written::new(file.path, file.bytes);
    };
    // In these languages, the path of a module must begin with a dot.
    let has_modules = matches!(language, Language::JavaScript | Language::Go);
    let place = if has_modules { "./sdk" } else { "sdk" };
    let mut text = text.replace(language.sdk_in_repository(), place).replace(EXAMPLE, name);
    if file.path == "Cargo.toml" {
        // The SDK in the folder is a separate project.
        text = text.replace("[workspace]\n", "[workspace]\nexclude = [\"sdk\"]\n");
    }
    Written::new(file.path, text)
}

/// Returns a file of the SDK. In the SDK's manifest, values of the repository's workspace are
/// inserted.
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

/// Returns a manifest in which the values of its workspace replace `NAME.workspace = true`.
fn without_workspace(manifest: &str, workspace: &str) -> String {
    let mut lines = Vec::new();
    for line in manifest.lines() {
        if matches!(line, "[lints]" | "workspace = true") {
            continue;
        }
        let inherited = line.strip_suffix(".workspace = true");
        let value = inherited.and_then(|name| line_of_key(workspace, name));
        lines.push(value.unwrap_or(line));
    }
    let text = lines.join("\n");
    format!("{}\n", text.trim_end())
}

/// Returns the line that sets a key.
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
