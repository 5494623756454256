//! A plugin with one tool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Failure, Output, Promises, Subject, Tool};

struct WordCount;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The text file.
    path: String,
}

#[derive(Serialize, JsonSchema)]
struct Counts {
    lines: usize,
    words: usize,
    bytes: usize,
}

impl Tool for WordCount {
    const NAME: &str = "word_count";
    const DESCRIPTION: &str = "Counts the lines, words and bytes of a text file. Fails if the file is missing or is not UTF-8.";
    const PROMISES: Promises = Promises::READ_ONLY;
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    type Arguments = Arguments;

    fn output_schema() -> Option<schemars::Schema> {
        Some(toolhold_sdk::schema::for_type::<Counts>())
    }

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let path = arguments.path;
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Failure::io(format!("reading {path}"), &error))?;
        Output::json(&Counts {
            lines: text.lines().count(),
            words: text.split_whitespace().count(),
            bytes: text.len(),
        })
    }
}

toolhold_sdk::plugin! {
    name: "word-count",
    description: "Counts lines, words and bytes of a file",
    capabilities: [files(read) = "to read the file that is counted"],
    tools: [WordCount],
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    #[test]
    fn words_and_lines_are_counted() {
        let path = std::env::temp_dir().join("word-count-test.txt");
        std::fs::write(&path, "one two\nthree\n").unwrap();
        let output = testing::call::<WordCount>(json!({ "path": path })).unwrap();
        assert_eq!(output.structured, Some(json!({ "lines": 2, "words": 3, "bytes": 14 })));
    }

    #[test]
    fn missing_file_is_reported() {
        let failure = testing::call::<WordCount>(json!({ "path": "/no/such/file" })).unwrap_err();
        assert_eq!(failure.message, "reading /no/such/file: not found");
    }
}
