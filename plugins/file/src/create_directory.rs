//! `create_directory`: creates a directory and its missing parents.

use std::fs;
use std::io::ErrorKind;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool};

/// Creates a directory and its missing parents.
pub(crate) struct CreateDirectory;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    path: String,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// Whether the directory is new.
    created: bool,
}

impl Tool for CreateDirectory {
    const NAME: &str = "create_directory";
    const TITLE: Option<&str> = Some("Create directory");
    const DESCRIPTION: &str = "\
        Creates a directory and its missing parent directories. An existing directory is not a \
        failure. Not needed before write, copy_path or move_path.";
    const PROMISES: Promises =
        Promises { additive: true, idempotent: true, closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::writes_path("/path")];
    type Arguments = Arguments;

    fn call(Arguments { path }: Arguments, _call: &Call) -> Result<Output, Failure> {
        if fs::metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            return Output::text(format!("{path} exists already."))
                .with_structured(&Answer { created: false });
        }
        make_with_parents(&path)?;
        Output::text(format!("Created {path}.")).with_structured(&Answer { created: true })
    }
}

/// Creates a directory and its missing parent directories.
pub(crate) fn make_with_parents(path: &str) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| {
        let in_the_way = std::path::Path::new(path)
            .ancestors()
            .find(|above| fs::symlink_metadata(above).is_ok_and(|meta| !meta.is_dir()));
        match in_the_way {
            Some(file)
                if matches!(
                    error.kind(),
                    ErrorKind::AlreadyExists | ErrorKind::NotADirectory | ErrorKind::NotFound
                ) =>
            {
                Failure::permanent("exists", format!("{} isn't a directory", file.display()))
                    .with_suggestion("Choose another name, or move or delete that file.")
            }
            _ => Failure::io(format!("creating the directory {path}"), &error),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    #[test]
    fn parents_are_created_and_existing_entries_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        let create = || testing::call::<CreateDirectory>(json!({ "path": path })).unwrap();
        assert_eq!(create().structured, Some(json!({ "created": true })));
        fs::write(path.join("file"), "kept").unwrap();
        let again = create();
        assert_eq!(again.structured, Some(json!({ "created": false })));
        assert!(again.joined_text().ends_with("exists already."));
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept");
    }

    #[test]
    fn blocking_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "kept").unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        for (path, blocker) in [("file", "file"), ("file/below/it", "file"), ("link", "link")] {
            let failure =
                testing::call::<CreateDirectory>(json!({ "path": dir.path().join(path) }))
                    .unwrap_err();
            assert_eq!(failure.code.as_deref(), Some("exists"), "{failure}");
            let named = format!("{} isn't a directory", dir.path().join(blocker).display());
            assert_eq!(failure.message, named);
        }
        assert_eq!(fs::read_to_string(file).unwrap(), "kept");
    }
}
