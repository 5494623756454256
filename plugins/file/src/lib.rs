//! The built-in plugin of the file tools.

mod copy_path;
mod create_directory;
mod cut;
mod delete_path;
mod edit;
mod find_path;
mod grep;
mod hidden;
mod list_directory;
mod move_path;
mod nearby;
mod notices;
mod paths;
mod read;
mod replace;
mod survey;
mod temporary;
mod temporary_name;
mod transfer;
mod tree;
mod write;

toolhold_sdk::plugin! {
    name: "file",
    description: "Reads, writes, edits, searches, lists, copies, moves and deletes files",
    capabilities: [
        files(read_write) = "to read, write, move and delete the files that calls name",
        search = "to find files, and text in them",
    ],
    tools: [
        read::Read,
        write::Write,
        edit::Edit,
        grep::Grep,
        find_path::FindPath,
        list_directory::ListDirectory,
        create_directory::CreateDirectory,
        copy_path::CopyPath,
        move_path::MovePath,
        delete_path::DeletePath,
    ],
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use toolhold_sdk::testing::definition;

    use super::*;

    fn catalogue() -> [Value; 10] {
        [
            definition::<read::Read>(),
            definition::<write::Write>(),
            definition::<edit::Edit>(),
            definition::<grep::Grep>(),
            definition::<find_path::FindPath>(),
            definition::<list_directory::ListDirectory>(),
            definition::<create_directory::CreateDirectory>(),
            definition::<copy_path::CopyPath>(),
            definition::<move_path::MovePath>(),
            definition::<delete_path::DeletePath>(),
        ]
    }

    #[test]
    fn old_tool_names_are_aliases() {
        let aliases = catalogue().map(|tool| json!([tool["name"], tool["aliases"]]));
        let expected = [
            json!(["read", ["file_read"]]),
            json!(["write", ["file_write"]]),
            json!(["edit", ["file_edit"]]),
            json!(["grep", ["content_search"]]),
            json!(["find_path", ["glob", "glob_search"]]),
            json!(["list_directory", []]),
            json!(["create_directory", []]),
            json!(["copy_path", []]),
            json!(["move_path", []]),
            json!(["delete_path", []]),
        ];
        assert_eq!(aliases, expected);
    }

    #[test]
    fn promises_and_subjects_tell_readers_from_writers() {
        for tool in catalogue() {
            let name = tool["name"].as_str().unwrap();
            let subject = |pointer, kind, access| json!({ "pointer": pointer, "kind": kind, "access": access });
            let (writes, subjects) = match name {
                "write" | "edit" | "create_directory" => {
                    (true, json!([subject("/path", "path", "write")]))
                }
                "delete_path" => (true, json!([subject("/path", "name", "write")])),
                "copy_path" => (
                    true,
                    json!([
                        subject("/source", "path", "read"),
                        subject("/destination", "name", "write")
                    ]),
                ),
                "move_path" => (
                    true,
                    json!([
                        subject("/source", "name", "write"),
                        subject("/destination", "name", "write")
                    ]),
                ),
                _ => (false, json!([subject("/path", "path", "read")])),
            };
            let promises = tool["promises"].as_array().unwrap();
            let makes = |promise: &str| promises.iter().any(|made| made == promise);
            assert_eq!(makes("read-only"), !writes, "{tool}");
            assert_eq!(makes("additive"), !writes || name == "create_directory", "{tool}");
            assert!(makes("closed-world"), "{tool}");
            assert_eq!(tool["subjects"], subjects, "{tool}");
        }
    }

    #[test]
    fn every_argument_is_explained_and_others_are_refused() {
        for tool in catalogue() {
            let schema = &tool["input_schema"];
            assert_eq!(schema["additionalProperties"], false, "{schema}");
            let description = tool["description"].as_str().unwrap();
            let words =
                description.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let words: Vec<&str> = words.collect();
            let subjects = tool["subjects"].as_array().unwrap();
            for (name, property) in schema["properties"].as_object().unwrap() {
                let Some(text) = property["description"].as_str() else {
                    let pointer = format!("/{name}");
                    let is_subject = subjects.iter().any(|subject| subject["pointer"] == pointer);
                    assert!(is_subject || words.contains(&name.as_str()), "{name}: {tool}");
                    continue;
                };
                assert!(!text.contains('\n'), "{name}: {property}");
            }
        }
    }
}
