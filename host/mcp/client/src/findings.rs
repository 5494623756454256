//! The findings of `toolhold doctor` about upstream servers.

use toolhold_core::config::{Config, Folders};
use toolhold_core::doctor::Finding;
use toolhold_core::text::counted;

use crate::approval::{ServerState, states};

/// Examines the configured servers. Starts no server. Blocks.
pub fn findings(config: &Config, folders: &Folders) -> Vec<Finding> {
    match states(config, folders) {
        Ok(states) => states.iter().map(finding).collect(),
        Err(error) => {
            let fix = format!("check the file {}", folders.server_pins().display());
            vec![Finding::failure("approvals", error.to_string(), fix)]
        }
    }
}

fn finding(server: &ServerState) -> Finding {
    let name = &server.name;
    let approve = format!("toolhold mcp approve {name}");
    let is_approved = server.state == "approved";
    if server.state == "unapproved" {
        return Finding::warning(name, "the server waits for your approval", approve);
    }
    if server.state == "changed" {
        return Finding::warning(
            name,
            "the server's table has changed since you approved the server",
            approve,
        );
    }
    if is_approved && server.logged_out {
        let fix = format!("toolhold mcp login {name}");
        return Finding::warning(name, "the server's login is no longer valid", fix);
    }
    if let Some(finding) = host_problem(server) {
        return finding;
    }
    if is_approved && let Some(line) = &server.unseen {
        let problem = "its arguments name a directory that isn't granted";
        let fix = format!("write `{line}` in [mcp.servers.{name}], then run `{approve}`");
        return Finding::warning(name, problem, fix);
    }
    if is_approved && let Some(pattern) = server.unmatched.first() {
        let problem = format!("`tools` names `{pattern}`, but the server has no such tool");
        return Finding::warning(name, problem, format!("correct `tools` in [mcp.servers.{name}]"));
    }
    if is_approved && let Some(reason) = &server.unpinned {
        let fix = format!("name a package and its version in [mcp.servers.{name}]");
        return Finding::warning(
            name,
            format!("the server's packages aren't pinned: {reason}"),
            fix,
        );
    }
    if let Some((tool, reason)) = server.left_out.first() {
        let more = match server.left_out.len() - 1 {
            0 => String::new(),
            1 => "; 1 more is left out".to_owned(),
            more => format!("; {more} more are left out"),
        };
        let problem = format!("the tool {tool} is left out: {reason}{more}");
        return Finding::warning(name, problem, "report this to the authors of the server");
    }
    if server.state == "disabled" {
        return Finding::ok(name, "disabled");
    }
    let tools = counted(server.tools.len() as u64, "tool");
    if server.reaches.is_empty() {
        return Finding::ok(name, tools);
    }
    Finding::ok(name, format!("{tools}; reaches {}", server.reaches.join(", ")))
}

/// Returns the first problem with the server in a running host.
fn host_problem(server: &ServerState) -> Option<Finding> {
    let name = &server.name;
    for host in &server.hosts {
        let Some(problem) = &host.program.problem else { continue };
        let text = format!("in the host with process {}: {problem}", host.pid);
        let fix = host.program.remedy.clone().unwrap_or_else(|| {
            format!(
                "`toolhold mcp list` shows the server's last output; the settings are in \
                 [mcp.servers.{name}]"
            )
        });
        return Some(Finding::warning(name, text, fix));
    }
    None
}
