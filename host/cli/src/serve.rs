//! `berth serve`.

use std::sync::Arc;

use berth_host::config::Folders;
use berth_host::{HostError, Session};
use berth_mcp::{ServeError, Server, serve_stdio};

use crate::arguments::Options;
use crate::call::interrupt;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;

/// Runs the command: until the client goes away, or the process is told to end.
pub(crate) fn run(options: &Options) -> Result<Exit, Error> {
    let end = interrupt::cancellation()?;
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    let settings = loaded.config.approvals;
    host::block_on_this_thread(async {
        let host = host::builder(options, folders.clone(), loaded)?.front_end("berth serve").watch().build().await?;
        let server = Server::new(Arc::new(host), folders, &settings).map_err(failed)?;
        serve_stdio(server, Session::new(session()?), end).await.map_err(failed)?;
        Ok(Exit::Success)
    })
}

fn failed(error: ServeError) -> Error {
    Error::Host(match error {
        ServeError::Io { what, error } => HostError::io(what)(error),
        ServeError::Kept(error) => error,
        error => HostError::io("serving the client")(std::io::Error::other(error)),
    })
}

/// A name that no other connection has: kept output and the record go by it.
fn session() -> Result<String, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(std::io::Error::from)?;
    Ok(format!("mcp stdio {:016x}", u64::from_ne_bytes(bytes)))
}
