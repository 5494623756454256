//! Decides which keys of a client's `_meta` are passed to a tool.

use rmcp::model::RequestMetaObject;
use serde_json::{Map, Value};

/// Keys of the protocol that have no prefix.
const PROTOCOL: [&str; 1] = ["progressToken"];

const TOOLHOLD: [&str; 2] = ["toolhold:", "toolhold/"];

/// Returns the keys of `meta` that aren't reserved, or `None` without such keys.
pub(crate) fn for_tool(meta: &RequestMetaObject) -> Option<Map<String, Value>> {
    let own = meta.0.0.iter().filter(|(key, _)| !is_reserved(key));
    let fields: Map<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).collect();
    if fields.is_empty() { None } else { Some(fields) }
}

/// Checks whether a key belongs to the protocol or to Toolhold. The protocol reserves prefixes
/// whose first or second label is `modelcontextprotocol` or `mcp`.
pub(crate) fn is_reserved(key: &str) -> bool {
    PROTOCOL.contains(&key)
        || TOOLHOLD.iter().any(|prefix| key.starts_with(prefix))
        || key.split_once('/').is_some_and(|(prefix, _)| is_of_protocol(prefix))
}

fn is_of_protocol(prefix: &str) -> bool {
    prefix.split('.').take(2).any(|label| matches!(label, "modelcontextprotocol" | "mcp"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::MetaObject;
    use serde_json::json;

    #[test]
    fn keys_of_the_protocol_stay_with_the_host() {
        let written = json!({
            "progressToken": 5,
            "io.modelcontextprotocol/related-task": {},
            "dev.mcp/x": 1,
            "modelcontextprotocol.io/x": 1,
            "example.com/trace": "a",
            "com.example.mcp/tool": 2,
            "plain": true,
            "toolhold:alone": true,
            "toolhold/structured": true,
        });
        let Value::Object(fields) = written else { panic!("it is an object") };
        let kept = for_tool(&RequestMetaObject(MetaObject(fields))).expect("some are kept");
        let expected =
            json!({ "example.com/trace": "a", "com.example.mcp/tool": 2, "plain": true });
        assert_eq!(Value::Object(kept), expected);
        assert_eq!(for_tool(&RequestMetaObject::default()), None);
    }
}
