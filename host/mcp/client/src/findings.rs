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
    let problem = server.hosts.iter().find_map(|host| {
        let problem = host.program.problem.as_ref()?;
        let text = format!("in the host with process {}: {problem}", host.pid);
        Some((text, host.program.remedy.clone()))
    });
    if server.state == "approved"
        && problem.is_none()
        && !server.logged_out
        && let Some(reason) = &server.unpinned
    {
        let fix = format!("name a package and its version in [mcp.servers.{name}]");
        return Finding::warning(name, format!("its packages aren't pinned: {reason}"), fix);
    }
    match (server.state, problem, server.left_out.first()) {
        ("unapproved", ..) => Finding::warning(name, "it waits for your approval", approve),
        ("changed", ..) => {
            Finding::warning(name, "its table has changed since you approved it", approve)
        }
        ("approved", ..) if server.logged_out => {
            let fix = format!("toolhold mcp login {name}");
            Finding::warning(name, "its login is gone", fix)
        }
        (_, Some((problem, remedy)), _) => {
            let fix = remedy.unwrap_or_else(|| {
                format!(
                    "toolhold mcp list shows its last output; its settings are in [mcp.servers.{name}]"
                )
            });
            Finding::warning(name, problem, fix)
        }
        (_, None, Some((tool, reason))) => {
            let fix = "tell the authors of the server";
            let more = match server.left_out.len() - 1 {
                0 => String::new(),
                1 => "; 1 more is left out".to_owned(),
                more => format!("; {more} more are left out"),
            };
            Finding::warning(name, format!("its tool {tool} is left out: {reason}{more}"), fix)
        }
        ("disabled", ..) => Finding::ok(name, "disabled"),
        _ => Finding::ok(name, counted(server.tools.len() as u64, "tool")),
    }
}
