//! The findings of `toolhold doctor` about the servers of `[mcp.servers]`.

use toolhold_core::config::{Config, Folders};
use toolhold_core::doctor::Finding;
use toolhold_core::text::counted;

use crate::approval::{ServerState, states};

/// Examines the servers of the configuration. Starts no server. Blocks.
pub fn findings(config: &Config, folders: &Folders) -> Vec<Finding> {
    match states(config, folders) {
        Ok(states) => states.iter().map(finding).collect(),
        Err(error) => {
            let fix = format!("look at {}", folders.servers().display());
            vec![Finding::failure("approvals", error.to_string(), fix)]
        }
    }
}

fn finding(server: &ServerState) -> Finding {
    let name = &server.name;
    let approve = format!("toolhold mcp approve {name}");
    let is_approved = server.state == "approved";
    if server.state == "unapproved" {
        return Finding::warning(name, "it waits for your approval", approve);
    }
    if server.state == "changed" {
        return Finding::warning(name, "its table has changed since you approved it", approve);
    }
    if is_approved && server.logged_out {
        let fix = format!("toolhold mcp login {name}");
        return Finding::warning(name, "its login is gone", fix);
    }
    if let Some(finding) = host_problem(server) {
        return finding;
    }
    if is_approved && let Some(line) = &server.unseen {
        let problem = "its arguments name a directory that it doesn't see";
        let fix = format!("write `{line}` in [mcp.servers.{name}], then run `{approve}`");
        return Finding::warning(name, problem, fix);
    }
    if is_approved && let Some(pattern) = server.unmatched.first() {
        let problem = format!("`tools` names `{pattern}`, which is none of its tools");
        return Finding::warning(name, problem, format!("correct `tools` in [mcp.servers.{name}]"));
    }
    if is_approved && let Some(reason) = &server.unpinned {
        let fix = format!("name a package and its version in [mcp.servers.{name}]");
        return Finding::warning(name, format!("its packages aren't pinned: {reason}"), fix);
    }
    if let Some((tool, reason)) = server.left_out.first() {
        let more = match server.left_out.len() - 1 {
            0 => String::new(),
            1 => "; 1 more is left out".to_owned(),
            more => format!("; {more} more are left out"),
        };
        let problem = format!("its tool {tool} is left out: {reason}{more}");
        return Finding::warning(name, problem, "tell the authors of the server");
    }
    if server.state == "disabled" {
        return Finding::ok(name, "disabled");
    }
    Finding::ok(name, counted(server.tools.len() as u64, "tool"))
}

/// Returns the finding about the first problem that a running host reports of the server.
fn host_problem(server: &ServerState) -> Option<Finding> {
    let name = &server.name;
    let host = server.hosts.iter().find(|host| host.program.problem.is_some())?;
    let problem = host.program.problem.as_ref()?;
    let text = format!("in the host with process {}: {problem}", host.pid);
    let fix = host.program.remedy.clone().unwrap_or_else(|| {
        format!("toolhold mcp list shows its last output; its settings are in [mcp.servers.{name}]")
    });
    Some(Finding::warning(name, text, fix))
}
