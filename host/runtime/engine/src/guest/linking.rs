//! Links all host functions. `toolhold_component::refusal` refuses components with other imports or
//! without a grant.
//!
//! The WASI base is always linked, because interpreters import all of it. Without a grant it is
//! empty: no directories, environment or arguments, and sockets that refuse every call. All other
//! interfaces are capabilities.

use wasmtime::Engine;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::cli::{WasiCli, WasiCliView as _};
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView as _};
use wasmtime_wasi::p2::bindings::{cli, clocks, io, random, sockets};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView as _};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView as _};

use crate::guest::bindings::toolhold::host::{call, config, log, types as host_types};
use crate::guest::bindings::toolhold::tool::types as tool_types;
use crate::guest::{CallState, HasState};

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
    cli::stdout::add_to_linker::<CallState, HasState>(l, |state| state)?;
    cli::stderr::add_to_linker::<CallState, HasState>(l, |state| state)?;
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

    crate::wasi::link(l, CallState::files_view)?;

    tool_types::add_to_linker::<CallState, HasState>(l, |state| state)?;
    host_types::add_to_linker::<CallState, HasState>(l, |state| state)?;
    config::add_to_linker::<CallState, HasState>(l, |state| state)?;
    call::add_to_linker::<CallState, HasState>(l, |state| state)?;
    log::add_to_linker::<CallState, HasState>(l, |state| state)?;
    crate::guest::capability::link(l)?;
    Ok(linker)
}

/// The host data of these interfaces is the table.
struct HasTable;

impl HasData for HasTable {
    type Data<'a> = &'a mut ResourceTable;
}
