//! Reads the list of an upstream server's tools, even if one of the tools doesn't match the
//! protocol.

use rmcp::model::Tool;
use serde_json::{Value, json};

use crate::naming::printable_name;

/// A page of tools that has no list of tools.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("its answer isn't a list of tools")]
pub(crate) struct NotToolsError;

/// The tools that a server lists.
#[derive(Debug, Default)]
pub(crate) struct ListedTools {
    pub(crate) tools: Vec<Tool>,
    /// The names of the tools that can't be read, each with the reason.
    pub(crate) unreadable: Vec<(String, String)>,
}

impl ListedTools {
    /// Adds a page with a tool that isn't valid in the protocol. Returns the cursor of the next
    /// page.
    ///
    /// # Errors
    ///
    /// The value isn't a page of tools.
    pub(crate) fn add_page(&mut self, mut page: Value) -> Result<Option<String>, NotToolsError> {
        let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
            return Err(NotToolsError);
        };
        for tool in tools {
            let name = tool["name"].as_str().map_or_else(|| "(no name)".to_owned(), printable_name);
            match parse_repaired(tool) {
                Ok(tool) => self.tools.push(tool),
                Err(error) => self.unreadable.push((name, format!("it can't be read: {error}"))),
            }
        }
        Ok(page["nextCursor"].as_str().map(str::to_owned))
    }
}

/// Parses a tool. If the tool isn't valid, parses only the fields that the host needs.
fn parse_repaired(mut tool: Value) -> serde_json::Result<Tool> {
    const NEEDED: [&str; 4] = ["name", "description", "inputSchema", "outputSchema"];
    if let Value::Object(fields) = &mut tool {
        if fields.get("inputSchema").is_none_or(Value::is_null) {
            fields.insert("inputSchema".to_owned(), json!({ "type": "object" }));
        }
        fields.retain(|name, value| name == "inputSchema" || !value.is_null());
    }
    if let Ok(tool) = serde_json::from_value(tool.clone()) {
        return Ok(tool);
    }
    if let Value::Object(fields) = &mut tool {
        fields.retain(|name, _| NEEDED.contains(&name.as_str()));
    }
    serde_json::from_value(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_that_is_wrong_is_repaired_or_left_out_by_itself() {
        let schema = json!({ "type": "object" });
        let mut listed = ListedTools::default();
        let next = listed.add_page(json!({
            "tools": [
                { "name": "good", "inputSchema": schema },
                { "name": "without_schema" },
                { "name": "null_schema", "inputSchema": null, "title": null },
                { "name": "icons", "inputSchema": schema, "icons": "x.png", "annotations": 7 },
                { "name": "list_schema", "inputSchema": [] },
                { "name": 7, "inputSchema": schema },
                "text",
            ],
            "nextCursor": "2",
        }));
        assert_eq!(next, Ok(Some("2".to_owned())));
        let names: Vec<&str> = listed.tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["good", "without_schema", "null_schema", "icons"]);
        let left: Vec<&str> = listed.unreadable.iter().map(|(name, _)| &**name).collect();
        assert_eq!(left, ["list_schema", "(no name)", "(no name)"]);
        listed.add_page(json!({ "tools": 7 })).expect_err("it is no list");
    }
}
