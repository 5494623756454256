//! `toolhold serve`: serves MCP clients over stdio or HTTP until the client leaves or the process
//! is told to end.

mod follow;

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use toolhold_core::config::{self, Config, Folders};
use toolhold_core::text::neutral_line;
use toolhold_core::{Host, HostBuilder, HostError, Session};
use toolhold_export::Telemetry;
use toolhold_mcp_client::Servers;
use toolhold_mcp_server::{Http, ListenAddress, ServeError, Server, serve_http, serve_stdio};
use toolhold_skills::OfferedSkills;

use follow::{ConfigChanges, Follower};
use toolhold_terminal::interrupt;

use crate::agent::Delegates;
use crate::arguments::ServeArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::tasks::command::ServedTasks;

/// Runs the command until the client goes away or the process is told to end.
pub(crate) fn run(options: &Options, arguments: ServeArguments) -> Result<Exit, Error> {
    let end = interrupt::cancellation()?;
    let folders = Folders::from_environment()?;
    let servers = Servers::new("toolhold serve");
    match arguments.http {
        None => host::block_on_this_thread(async {
            let (changes, loaded) = load(options, &folders)?;
            let server = server(options, &folders, &loaded, None, &servers).await?;
            let tasks = ServedTasks::start(options, &folders, &loaded)?;
            follow(options, loaded, changes, &server, None, servers, &tasks);
            if std::io::stdin().is_terminal() {
                tell_that_it_waits()?;
            }
            let served = serve_stdio(server, Session::new(session()?), end).await;
            tasks.end();
            served.map_err(error_of)?;
            Ok(Exit::Success)
        }),
        Some(place) => host::block_on(async {
            let (changes, loaded) = load(options, &folders)?;
            let begun = async {
                // Before plugins are loaded, so that an error shows at once.
                let serve = loaded.values.serve.clone();
                let door = toolhold_core::door(&loaded, &folders, "toolhold serve");
                let bound = Http::bind(place, serve, &folders, !arguments.no_auth, &door).await;
                let http = bound.map_err(|error| match error {
                    ServeError::Settings(why) => Error::Host(HostError::Config(format!(
                        "{why}\nThe settings are in {}.",
                        loaded.own_table("serve")
                    ))),
                    error => error_of(error),
                })?;
                let server =
                    server(options, &folders, &loaded, Some(http.place()), &servers).await?;
                Ok::<_, Error>((http, server))
            };
            let (http, server) = tokio::select! {
                begun = begun => begun?,
                () = end.cancelled() => return Ok(Exit::Success),
            };
            let tasks = ServedTasks::start(options, &folders, &loaded)?;
            let place = Some(http.place().clone());
            follow(options, loaded, changes, &server, place, servers, &tasks);
            announce(&http)?;
            let served = serve_http(server, http, end).await;
            tasks.end();
            served.map_err(error_of)?;
            Ok(Exit::Success)
        }),
    }
}

/// The configuration, and its files, which are watched from before it was read.
fn load(options: &Options, folders: &Folders) -> Result<(ConfigChanges, Config), Error> {
    let changes = ConfigChanges::watch(options, folders)?;
    let loaded = host::load(options, folders)?;
    Ok((changes, loaded))
}

/// The server for clients at a place. `None`: one client behind a pipe.
async fn server(
    options: &Options,
    folders: &Folders,
    loaded: &Config,
    place: Option<&ListenAddress>,
    servers: &Servers,
) -> Result<Server, Error> {
    let host = prepare(options, folders.clone(), loaded.clone(), place, servers)?;
    Server::new(host.build().await?, folders.clone(), &loaded.values.approvals)
        .map(|server| server.with_structured(loaded.values.serve.structured))
        .map_err(error_of)
}

/// A host that isn't built yet.
struct PreparedHost {
    builder: HostBuilder,
    /// The agents that clients hand work on to.
    delegates: Option<Arc<Delegates>>,
}

impl PreparedHost {
    async fn build(self) -> Result<Arc<Host>, HostError> {
        let host = Arc::new(self.builder.build().await?);
        if let Some(delegates) = self.delegates {
            delegates.attach(&host);
        }
        Ok(host)
    }
}

fn prepare(
    options: &Options,
    folders: Folders,
    loaded: Config,
    place: Option<&ListenAddress>,
    servers: &Servers,
) -> Result<PreparedHost, HostError> {
    const FRONT_END: &str = "toolhold serve";
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    let skills = OfferedSkills::find(&loaded, &folders)?;
    crate::skills::print_notices(&skills).map_err(HostError::io("writing to stderr"))?;
    let delegates = if loaded.values.agent.delegate.serve {
        Delegates::new(&loaded, &folders, config::working_directory()?, FRONT_END)
    } else {
        None
    };
    let builder = host::builder(options, folders, loaded, servers, &skills, FRONT_END)?;
    let builder = host::observed(builder, telemetry).watch().load_in_background();
    let builder = match &delegates {
        Some(delegates) => builder.provider(Arc::clone(delegates) as _),
        None => builder,
    };
    let builder = match place {
        Some(ListenAddress::Tcp(address)) => builder.listens_on(*address),
        _ => builder,
    };
    Ok(PreparedHost { builder, delegates })
}

/// Applies changes of the configuration while the server runs.
fn follow(
    options: &Options,
    loaded: Config,
    changes: ConfigChanges,
    server: &Server,
    place: Option<ListenAddress>,
    servers: Servers,
    tasks: &Arc<ServedTasks>,
) {
    let follower = Follower {
        options: options.clone(),
        folders: tasks.folders().clone(),
        tasks: Arc::clone(tasks),
        loaded,
        live: server.live(),
        tells_client: place.is_none(),
    };
    let options = options.clone();
    tokio::spawn(follower.follow(changes, move |folders, loaded| {
        prepare(&options, folders, loaded, place.as_ref(), &servers)
    }));
}

/// Tells a person who started this by hand that a client is missing.
fn tell_that_it_waits() -> Result<(), Error> {
    writeln!(
        anstream::stderr(),
        "toolhold serve waits for the messages of an MCP client on stdin, but stdin is this \
         terminal.\n\
         A client starts the server by itself: `toolhold mcp config` lists the clients that it connects.\n\
         `toolhold serve --http 8000` serves clients that connect by themselves. Ctrl-C ends it."
    )?;
    Ok(())
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
            "  clients send `Authorization: Bearer TOKEN`; the token is in {}",
            neutral_line(&file)
        )?;
    }
    Ok(())
}

fn error_of(error: ServeError) -> Error {
    Error::Host(match error {
        ServeError::Io { what, error } => HostError::io(what)(error),
        ServeError::Listen { place, error } => {
            HostError::io(format!("listening at {place}"))(error)
        }
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
