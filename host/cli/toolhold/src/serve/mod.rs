//! `toolhold serve`: serves MCP clients over stdio or HTTP.

mod follow;
mod principals;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;

use toolhold_core::config::{self, Config, Folders};
use toolhold_core::outbound_client;
use toolhold_core::text::neutral_line;
use toolhold_core::{CancellationToken, Host, HostBuilder, HostError, Session};
use toolhold_export::Telemetry;
use toolhold_mcp_client::Servers;
use toolhold_mcp_server::{Http, ListenAddress, ServeError, Server, serve_http, serve_stdio};
use toolhold_net::Network;
use toolhold_skills::OfferedSkills;

use follow::{ConfigChanges, Follower};
use principals::ServedPrincipals;
use toolhold_terminal::interrupt;

use crate::agent::Delegates;
use crate::arguments::ServeArguments;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::tasks::command::ServedTasks;

/// The name of the command in the audit log.
const FRONT_END: &str = "toolhold serve";

/// Serves one client over stdin and stdout, or several clients over HTTP.
pub(crate) fn run(options: &Options, arguments: ServeArguments) -> Result<Exit, Error> {
    let end = interrupt::cancellation()?;
    let folders = Folders::from_environment()?;
    let options = Options { only_tools: arguments.tools, ..options.clone() };
    match arguments.http {
        None => host::block_on_this_thread(run_stdio(&options, &folders, end)),
        Some(address) => {
            let needs_token = !arguments.no_auth;
            host::block_on(run_http(&options, &folders, address, needs_token, end))
        }
    }
}

/// Serves one client over stdin and stdout, until the client ends or `end` is cancelled.
async fn run_stdio(
    options: &Options,
    folders: &Folders,
    end: CancellationToken,
) -> Result<Exit, Error> {
    let servers = Servers::new(FRONT_END);
    let (changes, loaded) = watch_and_load(options, folders)?;
    let no_address: Option<ListenAddress> = None;
    let server = build_server(options, folders, &loaded, no_address.as_ref(), &servers).await?;
    let tasks = ServedTasks::start(options, folders, &loaded)?;
    let no_principals = None;
    follow(options, loaded, changes, &server, no_address, servers, &tasks, no_principals);
    if std::io::stdin().is_terminal() {
        tell_that_it_waits()?;
    }
    let result = serve_stdio(server, Session::new(session_name()?), end).await;
    tasks.end();
    result.map_err(error_of)?;
    Ok(Exit::Success)
}

/// Serves clients over HTTP, until `end` is cancelled.
async fn run_http(
    options: &Options,
    folders: &Folders,
    address: ListenAddress,
    needs_token: bool,
    end: CancellationToken,
) -> Result<Exit, Error> {
    let (changes, loaded) = watch_and_load(options, folders)?;
    let start = async {
        // The address is opened before plugins are loaded, so that an error about the address
        // appears immediately.
        let serve = loaded.values.serve.clone();
        let network = outbound_client(&loaded, folders, FRONT_END);
        let bound = match Http::bind(address, serve, folders, needs_token, &network).await {
            Ok(http) => http,
            Err(ServeError::Settings(problem)) => {
                let table = loaded.own_table("serve");
                let message = format!("{problem}\nThe settings are in {table}.");
                return Err(Error::Host(HostError::Config(message)));
            }
            Err(error) => return Err(error_of(error)),
        };
        let http = bound.with_webhook(&loaded.values.approvals, &network).map_err(error_of)?;
        let servers = Servers::new(FRONT_END).with_network(own_network(http.place()));
        let server = build_server(options, folders, &loaded, Some(http.place()), &servers).await?;
        Ok((http, server, servers))
    };
    let (http, server, servers) = tokio::select! {
        result = start => result?,
        () = end.cancelled() => return Ok(Exit::Success),
    };

    let tasks = ServedTasks::start(options, folders, &loaded)?;
    tasks.start_principals(&loaded)?;
    let address = http.place().clone();
    let principals = ServedPrincipals::new(options, &loaded, &address, server.live(), &tasks);
    let http = http.with_principals(principals.registry()).map_err(error_of)?;
    let address = Some(address);
    follow(options, loaded, changes, &server, address, servers, &tasks, Some(principals));
    announce(&http)?;
    let result = serve_http(server, http, end).await;
    tasks.end();
    result.map_err(error_of)?;
    Ok(Exit::Success)
}

/// Returns the network settings of a process that listens at `place`.
fn own_network(place: &ListenAddress) -> Network {
    match place {
        ListenAddress::Tcp(address) => {
            Network { listening: [*address].into(), ..Network::default() }
        }
        ListenAddress::Unix(_) => Network::default(),
    }
}

/// Watches and loads the configuration. Watching starts first, so that no change is missed.
fn watch_and_load(options: &Options, folders: &Folders) -> Result<(ConfigChanges, Config), Error> {
    let changes = ConfigChanges::watch(options, folders)?;
    let loaded = host::load(options, folders)?;
    Ok((changes, loaded))
}

/// Builds the server. `address` is the server's own address, or `None` for stdin and stdout.
async fn build_server(
    options: &Options,
    folders: &Folders,
    loaded: &Config,
    address: Option<&ListenAddress>,
    servers: &Servers,
) -> Result<Server, Error> {
    let prepared = prepare(options, folders.clone(), loaded.clone(), address, servers)?;
    let host = prepared.build().await?;
    check_tool_names(&host).await?;
    let server = Server::new(host, folders.clone(), &loaded.values.approvals).map_err(error_of)?;
    Ok(server.with_structured(loaded.values.serve.structured))
}

/// Fails if no tool has a name in `--tools`. This is checked at the start, because a client could
/// not report the missing tool later.
async fn check_tool_names(host: &Host) -> Result<(), Error> {
    if host.unmatched_tools().is_empty() {
        return Ok(());
    }
    // A plugin that is still being loaded may have the tool.
    host.ready().await;
    let unmatched = host.unmatched_tools();
    let Some(name) = unmatched.first() else {
        return Ok(());
    };
    let hint = match host.similar_tools(name).first() {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`toolhold tools` lists all tools".to_owned(),
    };
    Err(Error::Usage(format!("--tools: no tool is named `{}`; {hint}", neutral_line(name))))
}

struct PreparedHost {
    builder: HostBuilder,
    /// The tool with which clients delegate work to sub-agents.
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

/// Prepares the host of a server. `address` is the server's own address, or `None` for stdin and
/// stdout.
fn prepare(
    options: &Options,
    folders: Folders,
    loaded: Config,
    address: Option<&ListenAddress>,
    servers: &Servers,
) -> Result<PreparedHost, HostError> {
    let skills = OfferedSkills::find(&loaded, &folders)?;
    crate::skills::print_notices(&skills).map_err(HostError::io("writing to stderr"))?;
    let directory = config::working_directory()?;
    let mut prepared = prepare_in(directory, options, folders, loaded, address, servers, &skills)?;
    prepared.builder = prepared.builder.watch();
    Ok(prepared)
}

/// Prepares the host of a server for the user of this machine or for a principal.
fn prepare_in(
    directory: PathBuf,
    options: &Options,
    folders: Folders,
    loaded: Config,
    address: Option<&ListenAddress>,
    servers: &Servers,
    skills: &OfferedSkills,
) -> Result<PreparedHost, HostError> {
    let telemetry = Telemetry::from_config(&loaded, &folders)?;
    let delegates = if loaded.values.agent.delegate.serve {
        Delegates::new(&loaded, &folders, &directory, FRONT_END)
    } else {
        None
    };
    let has_issuer = !loaded.values.serve.oauth.issuer.is_empty();
    let only_tool = None;
    let unobserved = host::builder_in(
        directory, options, folders, loaded, servers, skills, FRONT_END, only_tool,
    )?
    .builtins(toolhold_builtins::all());
    let mut builder = host::observed(unobserved, telemetry).load_in_background();
    if let Some(delegates) = &delegates {
        builder = builder.provider(Arc::clone(delegates) as _);
    }
    if has_issuer && address.is_some() {
        builder = builder.many_users();
    }
    if let Some(ListenAddress::Tcp(address)) = address {
        builder = builder.listens_on(*address);
    }
    Ok(PreparedHost { builder, delegates })
}

/// Starts the task that replaces the host after each change of the configuration.
#[expect(clippy::too_many_arguments, reason = "each is another part of the server")]
fn follow(
    options: &Options,
    loaded: Config,
    changes: ConfigChanges,
    server: &Server,
    address: Option<ListenAddress>,
    servers: Servers,
    tasks: &Arc<ServedTasks>,
    principals: Option<Arc<ServedPrincipals>>,
) {
    let is_stdio = address.is_none();
    let follower = Follower {
        options: options.clone(),
        folders: tasks.folders().clone(),
        tasks: Arc::clone(tasks),
        loaded,
        live: server.live(),
        principals,
        tells_client: is_stdio,
    };
    let options = options.clone();
    tokio::spawn(follower.follow(changes, move |folders, loaded| {
        prepare(&options, folders, loaded, address.as_ref(), &servers)
    }));
}

/// Explains at a terminal that the server needs a client.
fn tell_that_it_waits() -> Result<(), Error> {
    writeln!(
        anstream::stderr(),
        "toolhold serve waits for the messages of an MCP client on stdin, but stdin is this \
         terminal.\nUsually, a client starts the server: `toolhold connect` sets this up.\nTo \
         serve clients that connect over HTTP: toolhold serve --http 8000. Ctrl-C ends this server."
    )?;
    Ok(())
}

/// Prints the server's address, and the file with the token.
fn announce(http: &Http) -> Result<(), Error> {
    let mut out = anstream::stderr();
    let url = neutral_line(&http.url());
    let address = neutral_line(&http.place().to_string());
    writeln!(out, "serving {url} at {address}")?;
    if let Some(file) = http.token_file() {
        let file = neutral_line(&file.display().to_string());
        writeln!(out, "  clients send `Authorization: Bearer TOKEN`; the token is in {file}")?;
    }
    if let Some(file) = http.webhook_secret_file() {
        let file = neutral_line(&file.display().to_string());
        writeln!(out, "  requests to the webhook are signed with the secret in {file}")?;
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

/// Returns a unique name for this connection in the audit log and in saved outputs.
fn session_name() -> Result<String, Error> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    Ok(format!("mcp stdio {:016x}", u64::from_ne_bytes(bytes)))
}
