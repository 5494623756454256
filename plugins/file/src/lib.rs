//! The built-in file tools.

mod edit;
mod find_path;
mod grep;
mod list_directory;
mod nearby;
mod notices;
mod paths;
mod read;
mod replace;
mod write;

berth_sdk::plugin! {
    name: "file",
    description: "Reads, writes, edits, searches and lists files",
    capabilities: [
        files(read_write) = "to read, write and edit the files that calls name",
        search = "to find files, and text in them",
    ],
    tools: [
        read::Read,
        write::Write,
        edit::Edit,
        grep::Grep,
        find_path::FindPath,
        list_directory::ListDirectory,
    ],
}

#[cfg(test)]
mod tests {
    use berth_sdk::testing::definition;
    use serde_json::{Value, json};

    use super::*;

    fn catalogue() -> [Value; 6] {
        [
            definition::<read::Read>(),
            definition::<write::Write>(),
            definition::<edit::Edit>(),
            definition::<grep::Grep>(),
            definition::<find_path::FindPath>(),
            definition::<list_directory::ListDirectory>(),
        ]
    }

    #[test]
    fn old_names_lead_to_the_new_ones() {
        let aliases = catalogue().map(|tool| json!([tool["name"], tool["aliases"]]));
        let expected = [
            json!(["read", ["file_read"]]),
            json!(["write", ["file_write"]]),
            json!(["edit", ["file_edit"]]),
            json!(["grep", ["content_search"]]),
            json!(["find_path", ["glob", "glob_search"]]),
            json!(["list_directory", []]),
        ];
        assert_eq!(aliases, expected);
    }

    #[test]
    fn what_reads_says_so_and_what_writes_says_so() {
        for tool in catalogue() {
            let writes = ["write", "edit"].contains(&tool["name"].as_str().unwrap());
            let annotations = &tool["annotations"];
            assert_eq!(annotations["read_only"], !writes, "{tool}");
            assert_eq!(annotations["destructive"], writes, "{tool}");
            assert_eq!(annotations["open_world"], false, "{tool}");
            let access = if writes { "write" } else { "read" };
            assert_eq!(tool["subjects"], json!([{ "pointer": "/path", "kind": "path", "access": access }]), "{tool}");
        }
    }

    #[test]
    fn every_argument_is_described_and_no_other_is_taken() {
        for tool in catalogue() {
            let schema = &tool["input_schema"];
            assert_eq!(schema["additionalProperties"], false, "{schema}");
            for (name, property) in schema["properties"].as_object().unwrap() {
                assert!(property["description"].as_str().is_some_and(|text| !text.contains('\n')), "{name}: {property}");
            }
        }
    }
}
