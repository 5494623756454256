//! Reads an upstream server's list of tools, even if some tools are malformed.

use rmcp::model::Tool;
use serde_json::{Value, json};

use crate::naming::printable_name;

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the server's answer isn't a list of tools")]
pub(crate) struct NotToolsError;

#[derive(Debug, Default)]
pub(crate) struct ListedTools {
    pub(crate) tools: Vec<Tool>,
    /// The names of malformed tools, and the reasons.
    pub(crate) unreadable: Vec<(String, String)>,
}

impl ListedTools {
    /// Adds the tools of a page in raw JSON. Malformed tools are repaired, or else added to
    /// `unreadable`. Returns the cursor of the next page.
    pub(crate) fn add_raw_page(
        &mut self,
        mut page: Value,
    ) -> Result<Option<String>, NotToolsError> {
        let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
            return Err(NotToolsError);
        };
        for tool in tools {
            let name = match tool["name"].as_str() {
                Some(name) => printable_name(name),
                None => "(no name)".to_owned(),
            };
            match parse_repaired(tool) {
                Ok(tool) => self.tools.push(tool),
                Err(error) => {
                    self.unreadable.push((name, format!("the definition can't be read: {error}")));
                }
            }
        }
        Ok(page["nextCursor"].as_str().map(str::to_owned))
    }
}

/// Parses a tool. If a field is malformed, only the needed fields are read.
fn parse_repaired(mut tool: Value) -> serde_json::Result<Tool> {
    const NEEDED_FIELDS: [&str; 4] = ["name", "description", "inputSchema", "outputSchema"];
    // Some servers write null in place of a missing field.
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
        fields.retain(|name, _| NEEDED_FIELDS.contains(&name.as_str()));
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
        let next = listed.add_raw_page(json!({
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
        listed.add_raw_page(json!({ "tools": 7 })).expect_err("it is no list");
    }
}
