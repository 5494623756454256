//! Keys that were removed from the configuration. The error names the replacement.

/// Returns the replacement for a removed key. Returns `None` if the path isn't a removed key.
pub(super) fn successor(path: &[String]) -> Option<String> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    if let [table @ .., "secrets", _, key] = &path[..] {
        return secret_successor(table, key);
    }
    let successor = match path[..] {
        ["agent", "text_tools"] => "write `lenient_models = [\"*\"]` for \"lenient\"",
        ["plugins", _, "store_keys"] => "the limit follows from `store_mib`",
        ["plugins", _, "index_documents"] | ["tools", "memory", "index_documents"] => {
            "the limit follows from `index_mib`"
        }
        ["tools", "result_cache", "max_entries"] => "the limit is `max_mib`",
        ["tools", "web", "job_servers"] => {
            "for `true`, add \"job\" to `allowed_domains` in [tools.web]"
        }
        _ => return None,
    };
    Some(successor.to_owned())
}

/// Returns the replacement for a removed key of a secret in `table`.
fn secret_successor(table: &[&str], key: &str) -> Option<String> {
    if key == "keyring" {
        let command = ["secret-tool", "lookup", "service", "SERVICE", "account", "ACCOUNT"];
        return Some(format!("write `command = {command:?}`"));
    }
    let server = match table {
        ["telemetry"] => "`endpoint` of [telemetry]".to_owned(),
        ["index", "qdrant"] => "`url` of [index.qdrant]".to_owned(),
        ["providers", name] => format!("`base_url` of [providers.{name}]"),
        ["mcp", "servers", name] => format!("the server of [mcp.servers.{name}]"),
        ["mcp", "servers", name, "oauth"] => {
            format!("the authorization server of [mcp.servers.{name}]")
        }
        _ => return None,
    };
    if !["hosts", "methods", "paths", "query"].contains(&key) {
        return None;
    }
    Some(format!("the secret is sent only to {server}; remove the key"))
}
