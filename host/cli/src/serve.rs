//! `berth serve`.

use std::io::Write;
use std::sync::Arc;

use berth_core::config::Folders;
use berth_core::text::neutral_line;
use berth_core::{HostError, Session};
use berth_mcp::{Http, Place, ServeError, Server, serve_http, serve_stdio};

use crate::arguments::ServeArguments;
use crate::call::interrupt;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;

/// Runs the command until the client goes away or the process is told to end.
pub(crate) fn run(options: &Options, arguments: ServeArguments) -> Result<Exit, Error> {
    let end = interrupt::cancellation()?;
    let folders = Folders::from_environment()?;
    let loaded = host::load(options, &folders)?;
    host::tell_news(&loaded, &folders)?;
    let (settings, serve) = (loaded.config.approvals, loaded.config.serve.clone());
    let structured = serve.structured;
    let server = async |folders: &Folders, place: Option<&Place>| -> Result<Server, Error> {
        let mut builder =
            host::builder(options, folders.clone(), loaded)?.front_end("berth serve").watch();
        if let Some(Place::Tcp(address)) = place {
            builder = builder.listens_on(*address);
        }
        let host = builder.build().await?;
        Server::new(Arc::new(host), folders.clone(), &settings)
            .map(|server| server.with_structured(structured))
            .map_err(error_of)
    };
    match arguments.http {
        None => host::block_on_this_thread(async {
            serve_stdio(server(&folders, None).await?, Session::new(session()?), end)
                .await
                .map_err(error_of)?;
            Ok(Exit::Success)
        }),
        Some(place) => host::block_on(async {
            let begun = async {
                // Before plugins are loaded, so that an error shows at once.
                let http = Http::bind(place, serve, &folders, !arguments.no_auth)
                    .await
                    .map_err(error_of)?;
                let server = server(&folders, Some(http.place())).await?;
                Ok::<_, Error>((http, server))
            };
            let (http, server) = tokio::select! {
                begun = begun => begun?,
                () = end.cancelled() => return Ok(Exit::Success),
            };
            announce(&http)?;
            serve_http(server, http, end).await.map_err(error_of)?;
            Ok(Exit::Success)
        }),
    }
}

/// Prints the address for clients.
fn announce(http: &Http) -> Result<(), Error> {
    let mut out = anstream::stderr();
    writeln!(
        out,
        "serving {} at {}",
        neutral_line(&http.url()),
        neutral_line(&http.place().to_string())
    )?;
    if let Some(file) = http.token_file() {
        let file = file.display().to_string();
        writeln!(
            out,
            "  clients say `Authorization: Bearer TOKEN`; the token lies in {}",
            neutral_line(&file)
        )?;
    }
    Ok(())
}

fn error_of(error: ServeError) -> Error {
    Error::Host(match error {
        ServeError::Io { what, error } => HostError::io(what)(error),
        ServeError::Place { place, error } => HostError::io(format!("listening at {place}"))(error),
        ServeError::Settings(why) => HostError::Config(why),
        ServeError::Kept(error) => error,
        error => HostError::io("serving the client")(std::io::Error::other(error)),
    })
}

/// A unique name for the connection: kept output and records use it.
fn session() -> Result<String, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    Ok(format!("mcp stdio {:016x}", u64::from_ne_bytes(bytes)))
}
