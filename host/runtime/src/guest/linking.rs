//! Links the host functions, and decides which imports a component may have.
//!
//! The WASI base is always linked, since interpreters import all of it. Without a grant it is
//! empty: no directories, no environment, no arguments, and sockets that refuse every call. All
//! other interfaces are capabilities.

use berth_policy::OwnTable;
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

/// Interfaces that are always linked, by package and name, in any compatible version.
const BASE: [&str; 33] = [
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
    // Of a module, which gets the adapter to WASI 0.2. No component can import a name like this.
    "wasi_snapshot_preview1",
];

/// The capability to start programs.
const PROCESS: &str = "berth:host/process";

/// The capability to make requests. There is no capability to serve them.
const HTTP: [&str; 2] = ["wasi:http/outgoing-handler", "wasi:http/types"];

/// Why a component's import is refused. `None` if it is allowed. `manifest`: the requested
/// capabilities. `policy`: the granted ones.
pub(crate) fn refusal(import: &str, manifest: &Manifest, policy: &PluginPolicy) -> Option<String> {
    let name = import.split_once('@').map_or(import, |(name, _)| name);
    let (process, http) = (name == PROCESS, HTTP.contains(&name));
    let inspected = |capability| policy.inspect_only && manifest.asks_for(capability).is_some();
    let granted = process && (policy.process.is_some() || inspected("process"))
        || http && (policy.egress.is_some() || inspected("http"));
    if BASE.contains(&name) || granted {
        return None;
    }
    if process || http {
        let plugin = &manifest.name;
        let (capability, what, line) = match process {
            true => (
                "process",
                "the programs that it may start, with their arguments",
                r#"programs = ["git {status,diff} **"]"#,
            ),
            false => ("http", "the hosts that it may reach", r#"hosts = ["api.example.com"]"#),
        };
        let remedy = match manifest.asks_for(capability) {
            None => {
                format!(
                    "Its manifest doesn't ask for `{capability}`, so it can't be granted. The plugin's author has to add that."
                )
            }
            Some(_) => {
                let table =
                    OwnTable { name: format!("plugins.{plugin}"), ..(*policy.table).clone() };
                format!("To grant {what}, for example, {}", table.lines(line))
            }
        };
        return Some(format!("it imports `{import}`, which is not granted. {remedy}"));
    }
    let remedy = match name.split_once('/').map_or(name, |(package, _)| package) {
        "wasi:http" => {
            "Plugins can make requests but can't serve them, so no line of the configuration grants it. Build the plugin without it."
        }
        "berth:host" => "This version of Berth doesn't have that interface. A newer version may.",
        _ => {
            "Berth doesn't have that interface, so no line of the configuration grants it. Build the plugin without it."
        }
    };
    Some(format!("it imports `{import}`, which is not granted. {remedy}"))
}

/// Links all interfaces that can be allowed. Components with other imports are refused before.
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

    // Components may import sockets, but the context allows no socket and no name lookup.
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

/// Tells the linker that the host data is the table.
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
    fn base_is_allowed_in_every_compatible_version() {
        for import in [
            "wasi:filesystem/types@0.2.0",
            "wasi:sockets/udp-create-socket@0.2.9",
            "berth:host/search@0.1.0",
        ] {
            assert_eq!(refusal_of(import, ""), None, "{import}");
        }
    }

    #[test]
    fn refusal_names_the_import_and_the_remedy() {
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
