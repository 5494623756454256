//! The page on policy: each section is a configuration, the decisions that it leads to, and
//! commands that show it.

use std::sync::Arc;

use serde_json::json;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{
    Access, BoxFuture, Call, Definition, Host, Outcome, Output, Request, Subject, SubjectKind,
    ToolSource,
};

use super::markdown::{blocks, document};
use super::project;
use super::session::Session;
use crate::support::{builtin, run, shared_cache, toolhold};

#[test]
fn policies_of_the_page_work_as_described() {
    let page = document("docs/policy.md");
    let (first, rest) = page.split_once("\n## ").expect("the page has sections");
    let mut rows = 0;
    for section in std::iter::once(first).chain(rest.split("\n## ")) {
        let (_folder, mut session) = project();
        for file in ["migrations/001.sql", "notes/today.md"] {
            session.write(file, "");
        }
        let my = std::fs::read(session.folder.join("my.wasm")).expect("the project has a plugin");
        session.write_of_user("plugins/my.wasm", &my);
        let blocks = blocks(section);
        for block in blocks.iter().filter(|block| block.language == "toml") {
            match block.file.as_deref() {
                Some("~/.config/toolhold/toolhold.toml") => {
                    session.write_of_user("config/toolhold.toml", block.text.as_bytes());
                }
                Some("/etc/toolhold/ceiling.toml") => session.under(&block.text),
                other => panic!("docs/policy.md shows a file that no test knows: {other:?}"),
            }
        }
        for block in blocks.iter().filter(|block| block.language == "console") {
            session.try_block(block);
        }
        rows += table(section).len();
        run(calls_become(session, table(section)));
    }
    assert!(rows >= 15, "only {rows} calls were found");
}

/// The rows of `| call | becomes |`.
fn table(section: &str) -> Vec<(String, String)> {
    let rows = section
        .lines()
        .skip_while(|line| *line != "| call | becomes |")
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> =
            row.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`')).collect();
        let [call, becomes] = cells[..] else { panic!("{row}") };
        (call.to_owned(), becomes.to_owned())
    })
    .collect()
}

/// Checks the decisions on calls. Each is written as the tool's name and its subject.
async fn calls_become(session: Session, rows: Vec<(String, String)>) {
    let folders = Folders {
        cache: shared_cache(),
        home: Some(session.user()),
        ..Folders::inside(&session.user())
    };
    let variables = session
        .ceiling
        .iter()
        .map(|path| ("TOOLHOLD_CEILING".into(), path.clone().into()))
        .collect();
    let inputs =
        Inputs { working_directory: Some(session.folder.clone()), variables, ..Inputs::default() };
    let loaded = config::load(&folders, &inputs).unwrap_or_else(|problems| panic!("{problems}"));
    let host = Host::builder().config(loaded).folders(folders).working_directory(&session.folder);
    let host = host
        .builtins(&[builtin("file")])
        .provider(Arc::new(Shell))
        .helper(toolhold())
        .build()
        .await
        .expect("the plugins load");
    for (call, expected) in rows {
        let (tool, subject) = call.split_once(' ').expect("a tool and what it acts on");
        let arguments = match tool {
            "bash" => json!({ "command": subject }),
            "write" => json!({ "path": subject, "content": "" }),
            _ => json!({ "path": subject }),
        };
        let check = host.check(Request::new(tool, arguments));
        let decision =
            check.outcome.unwrap_or_else(|failure| panic!("{call}: {}", failure.message));
        assert_eq!(decision.verdict.as_str(), expected, "`{call}`: {decision:?}");
    }
}

/// Offers a tool that would run commands. Nobody calls it.
struct Shell;

impl ToolSource for Shell {
    fn name(&self) -> &str {
        "shell"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } }, "required": ["command"] });
        let subject = Subject {
            pointer: "/command".to_owned(),
            kind: SubjectKind::Command,
            access: Access::Write,
        };
        vec![Arc::new(Definition {
            subjects: vec![subject],
            ..Definition::new("bash", "Runs a command.", schema)
        })]
    }

    fn call(&self, _: Call) -> BoxFuture<'_, Outcome> {
        Box::pin(std::future::ready(Ok(Output::default())))
    }
}
