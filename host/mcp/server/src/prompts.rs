//! The `tools` prompt describes the tools and their grants to a model. Also completes paths for its
//! argument.

use std::fmt::Write;
use std::path::{Component, Path};
use std::sync::Arc;

use rmcp::ErrorData;
use rmcp::model::{
    CompletionInfo, GetPromptResult, JsonObject, Prompt, PromptArgument, PromptMessage, Role,
};
use serde_json::json;
use toolhold_core::{Access, Audience, Definition, Host, Request, Session, Verdict};

pub(crate) const TOOLS: &str = "tools";
pub(crate) const PATH: &str = "path";

/// Maximum length of a path in bytes, as on Linux. The prompt repeats the path for each tool, so
/// longer paths would make it very long.
const MAX_PATH: usize = 4096;

/// The tool whose calls complete paths.
const LIST_TOOL: &str = "list_directory";

pub(crate) fn definition() -> Prompt {
    let path = PromptArgument::new(PATH)
        .with_description(
            "A file or directory; the answer also describes the calls that are allowed there",
        )
        .with_required(false);
    Prompt::new(
        TOOLS,
        Some("The tools of this server, their directories, and the calls that need approval"),
        Some(vec![path]),
    )
    .with_title("What can the tools do here?")
}

/// Expands the prompt for the current rules and grants.
///
/// # Errors
///
/// Returns an error for an unknown argument.
pub(crate) fn answer_prompt(
    host: &Host,
    tools: &[Arc<Definition>],
    arguments: Option<&JsonObject>,
) -> Result<GetPromptResult, ErrorData> {
    let mut text = "These tools run in a sandbox, under the user's rules:\n".to_owned();
    for tool in tools {
        let _ = writeln!(text, "* `{}`: {}", tool.name, sentence(&tool.description));
    }
    let mut reached: Vec<_> =
        tools.iter().flat_map(|tool| host.directories_of(&tool.name)).collect();
    reached.sort();
    reached.dedup();
    text.push_str("\nThe tools reach these directories:\n");
    for (directory, access) in reached {
        let access = match access {
            Access::Write => "read and write",
            Access::Read => "read",
        };
        let _ = writeln!(text, "* {}: {access}", directory.display());
    }
    text.push_str("\nA denied call names the rule. Don't work around the rule: tell the user, who can change it.\n");
    for (name, value) in arguments.into_iter().flatten() {
        match (name.as_str(), value.as_str()) {
            (PATH, Some("")) => {}
            (PATH, Some(path)) if path.len() <= MAX_PATH => {
                text.push('\n');
                for tool in tools {
                    if let Some(verdict) = verdict_text(host, tool, path) {
                        let _ = writeln!(text, "* `{}` of {path}: {verdict}", tool.name);
                    }
                }
            }
            _ => {
                return Err(ErrorData::invalid_params(
                    format!(
                        "the prompt `{TOOLS}` has one argument, `{PATH}`: a string of at most {MAX_PATH} bytes"
                    ),
                    None,
                ));
            }
        }
    }
    let text = toolhold_core::text::neutral(&text).into_owned();
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]))
}

/// Returns the verdict on a call with `path`, in words. Returns `None` if the tool has no path, or
/// if another required argument isn't a string.
fn verdict_text(host: &Host, tool: &Definition, path: &str) -> Option<&'static str> {
    let schema = &tool.input_schema;
    schema.pointer("/properties/path")?;
    let mut required = Vec::new();
    if let Some(names) = schema.get("required").and_then(|names| names.as_array()) {
        required.extend(names.iter().filter_map(|name| name.as_str()));
    }
    let mut arguments = json!({ "path": path });
    for name in required {
        if name == PATH {
            continue;
        }
        if *schema.pointer(&format!("/properties/{name}/type"))? != "string" {
            return None;
        }
        // The verdict is about the path, so the other arguments may have any text.
        arguments[name] = json!("x");
    }
    let decision = host.check(Request::new(&tool.name, arguments)).outcome.ok()?;
    let text = match decision.verdict {
        Verdict::Allow => "allowed",
        Verdict::Ask => "needs approval",
        Verdict::Deny => "refused",
    };
    Some(text)
}

fn sentence(description: &str) -> &str {
    description.split_once(". ").map_or(description, |(first, _)| first).trim_end_matches('.')
}

/// Completes a path with a call of `list_directory`, which is checked and recorded like any other
/// call.
pub(crate) async fn paths(host: &Host, session: &Session, prefix: &str) -> CompletionInfo {
    let (directory, name) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    let listed_directory = match directory {
        "" if prefix.starts_with('/') => "/",
        "" => ".",
        directory => directory,
    };
    let mut components = Path::new(listed_directory).components();
    let leads_up = components.any(|part| part == Component::ParentDir);
    let mut names = Vec::new();
    if prefix.len() <= MAX_PATH && !leads_up {
        let arguments = json!({ "path": listed_directory });
        let request = Request {
            session: Some(session.clone()),
            audience: Audience::Person,
            ..Request::new(LIST_TOOL, arguments)
        };
        if let Ok(output) = host.call(request).await.outcome {
            names = output
                .joined_text()
                .lines()
                .filter_map(entry_name)
                .filter(|entry| entry.starts_with(name))
                .map(str::to_owned)
                .collect();
        }
    }
    let total = names.len();
    names.truncate(CompletionInfo::MAX_VALUES);
    let values = names
        .into_iter()
        .map(|name| if prefix.contains('/') { format!("{directory}/{name}") } else { name })
        .collect();
    let mut info = CompletionInfo::default();
    info.values = values;
    info.total = u32::try_from(total).ok();
    info.has_more = Some(total > CompletionInfo::MAX_VALUES);
    info
}

/// Parses the name in a line of a listing, such as `[file] name  12 B` or `[dir] name`. Returns
/// `None` for lines without a name.
fn entry_name(line: &str) -> Option<&str> {
    let (kind, after_kind) = line.strip_prefix('[')?.split_once("] ")?;
    match kind {
        "file" => {
            let (name, _size) = after_kind.rsplit_once("  ")?;
            Some(name)
        }
        "dir" | "symlink" | "other" => Some(after_kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_a_listing() {
        assert_eq!(entry_name("[dir] src/"), Some("src/"));
        assert_eq!(entry_name("[file] a  b  12 B"), Some("a  b"));
        assert_eq!(entry_name("[symlink] link"), Some("link"));
        assert_eq!(entry_name("Only the first 1000 entries are shown."), None);
    }

    #[test]
    fn first_sentence_of_a_description_is_used() {
        assert_eq!(sentence("Reads a file. Use it often."), "Reads a file");
        assert_eq!(sentence("Does nothing."), "Does nothing");
    }
}
