//! What a component may import, and the host functions behind it.
//!
//! The WASI base is always linked, since interpreters import all of it, used or not; without a
//! grant it is empty: no directories, no environment, no arguments, sockets that refuse every call.
//! Everything else is a capability.

use wasmtime::Engine;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::p2::bindings::{cli, clocks, io, random, sockets};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView as _};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};
use wasmtime_wasi_http::WasiHttp;
use wasmtime_wasi_http::p2::bindings::http::{outgoing_handler, types as http_types};

use crate::guest::bindings::berth::host::{call, log, process, search, secrets};
use crate::guest::bindings::berth::tool::types as tool_types;
use crate::guest::bindings::wasi::filesystem::{preopens, types};
use crate::guest::state::{CallState, HasState};
use crate::guest::wasi::HasFiles;
use crate::manifest::Manifest;
use crate::policy::PluginPolicy;

/// Interfaces that are always linked, by package and name, in whatever version of the same line.
const BASE: [&str; 32] = [
    "berth:host/call",
    "berth:host/log",
    "berth:host/search",
    "berth:host/secrets",
    "berth:tool/types",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// The capability of starting programs.
const PROCESS: &str = "berth:host/process";

/// The capability of making requests. Serving them is none.
const HTTP: [&str; 2] = ["wasi:http/outgoing-handler", "wasi:http/types"];

/// Why a component's import is refused, or nothing where it is allowed. `manifest`: what the
/// component asks for; `policy`: what it gets.
pub(crate) fn refusal(import: &str, manifest: &Manifest, policy: &PluginPolicy) -> Option<String> {
    let name = import.split_once('@').map_or(import, |(name, _)| name);
    let (process, http) = (name == PROCESS, HTTP.contains(&name));
    let looked_at = |capability| policy.looked_at && manifest.asks_for(capability).is_some();
    let granted = process && (policy.process.is_some() || looked_at("process"))
        || http && (policy.egress.is_some() || looked_at("http"));
    if BASE.contains(&name) || granted {
        return None;
    }
    if process || http {
        let plugin = &manifest.name;
        let (capability, what, line) = match process {
            true => (
                "process",
                "the programs that it may start, with their arguments,",
                r#"programs = ["git {status,diff} **"]"#,
            ),
            false => ("http", "the hosts that it may reach", r#"hosts = ["api.example.com"]"#),
        };
        let remedy = match manifest.asks_for(capability) {
            None => {
                format!(
                    "Its manifest doesn't ask for `{capability}`, so it can't be granted: the plugin's author has to add that."
                )
            }
            Some(_) => {
                format!("To grant it, name {what} in berth.toml:\n[plugins.{plugin}]\n{line}")
            }
        };
        return Some(format!("it imports `{import}`, which is not granted. {remedy}"));
    }
    let remedy = match name.split_once('/').map_or(name, |(package, _)| package) {
        "wasi:http" => {
            "A plugin makes requests and serves none, so no line of the configuration grants it. Build the plugin without it."
        }
        "berth:host" => "This version of Berth does not offer that interface: a newer one may.",
        _ => {
            "Berth does not offer that interface, so no line of the configuration grants it. Build the plugin without it."
        }
    };
    Some(format!("it imports `{import}`, which is not granted. {remedy}"))
}

/// Links everything that is ever allowed; what a component imports beyond it does not get this far.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<CallState>> {
    let mut linker = Linker::new(engine);
    let l = &mut linker;

    io::error::add_to_linker::<CallState, HasTable>(l, |state| state.ctx().table)?;
    io::poll::add_to_linker::<CallState, HasTable>(l, |state| state.ctx().table)?;
    io::streams::add_to_linker::<CallState, HasTable>(l, |state| state.ctx().table)?;

    clocks::wall_clock::add_to_linker::<CallState, WasiClocks>(l, CallState::clocks)?;
    clocks::monotonic_clock::add_to_linker::<CallState, WasiClocks>(l, CallState::clocks)?;
    random::random::add_to_linker::<CallState, WasiRandom>(l, CallState::random)?;
    random::insecure::add_to_linker::<CallState, WasiRandom>(l, CallState::random)?;
    random::insecure_seed::add_to_linker::<CallState, WasiRandom>(l, CallState::random)?;

    cli::exit::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::environment::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::stdin::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::stdout::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::stderr::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::terminal_input::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::terminal_output::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::terminal_stdin::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::terminal_stdout::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;
    cli::terminal_stderr::add_to_linker::<CallState, WasiCli>(l, CallState::cli)?;

    // Linked for those who import them; the context allows no socket and no look-up.
    sockets::tcp::add_to_linker::<CallState, WasiSockets>(l, CallState::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<CallState, WasiSockets>(l, CallState::sockets)?;
    sockets::udp::add_to_linker::<CallState, WasiSockets>(l, CallState::sockets)?;
    sockets::udp_create_socket::add_to_linker::<CallState, WasiSockets>(l, CallState::sockets)?;
    sockets::instance_network::add_to_linker::<CallState, WasiSockets>(l, CallState::sockets)?;
    sockets::network::add_to_linker::<CallState, WasiSockets>(
        l,
        &sockets::network::LinkOptions::default(),
        CallState::sockets,
    )?;
    sockets::ip_name_lookup::add_to_linker::<CallState, WasiSockets>(l, CallState::sockets)?;

    types::add_to_linker::<CallState, HasFiles>(l, CallState::files_view)?;
    preopens::add_to_linker::<CallState, HasFiles>(l, CallState::files_view)?;

    tool_types::add_to_linker::<CallState, HasState>(l, |state| state)?;
    call::add_to_linker::<CallState, HasState>(l, |state| state)?;
    log::add_to_linker::<CallState, HasState>(l, |state| state)?;
    search::add_to_linker::<CallState, HasState>(l, |state| state)?;
    process::add_to_linker::<CallState, HasState>(l, |state| state)?;
    secrets::add_to_linker::<CallState, HasState>(l, |state| state)?;
    outgoing_handler::add_to_linker::<CallState, WasiHttp>(l, CallState::http_view)?;
    http_types::add_to_linker::<CallState, WasiHttp>(
        l,
        &http_types::LinkOptions::default(),
        CallState::http_view,
    )?;
    crate::guest::http::link_error_codes(l)?;
    Ok(linker)
}

/// Names the table to the linker.
struct HasTable;

impl HasData for HasTable {
    type Data<'a> = &'a mut ResourceTable;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal_of(import: &str, capabilities: &str) -> Option<String> {
        let manifest = format!(
            r#"{{"manifest": 1, "name": "tester", "version": "1", "description": "d", "capabilities": [{capabilities}]}}"#
        );
        let manifest = serde_json::from_str(&manifest).expect("it is a manifest");
        refusal(import, &manifest, &PluginPolicy::default())
    }

    #[test]
    fn the_base_is_allowed_in_every_version_of_its_line() {
        for import in [
            "wasi:filesystem/types@0.2.0",
            "wasi:sockets/udp-create-socket@0.2.9",
            "berth:host/search@0.1.0",
        ] {
            assert_eq!(refusal_of(import, ""), None, "{import}");
        }
    }

    #[test]
    fn a_refusal_names_the_import_and_what_would_help() {
        let text = refusal_of("wasi:http/incoming-handler@0.2.3", "").expect("is refused");
        assert!(
            text.contains("`wasi:http/incoming-handler@0.2.3`") && text.contains("no line"),
            "{text}"
        );
        let text = refusal_of("wasi:http/outgoing-handler@0.2.3", "").expect("is refused");
        assert!(text.contains("doesn't ask for `http`"), "{text}");
        let text = refusal_of("wasi:http/types@0.2.3", r#"{"name": "http", "reason": "r"}"#)
            .expect("is refused");
        assert!(text.contains("[plugins.tester]\nhosts = "), "{text}");
        assert!(refusal_of("evil:host/run", "").expect("is refused").contains("`evil:host/run`"));
        let text = refusal_of("berth:host/process@0.1.0", "").expect("is refused");
        assert!(text.contains("doesn't ask for `process`"), "{text}");
        let asks = r#"{"name": "process", "reason": "r"}"#;
        let text = refusal_of("berth:host/process@0.1.0", asks).expect("is refused");
        assert!(text.contains("[plugins.tester]\nprograms = "), "{text}");
    }
}
