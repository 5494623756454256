//! Commands that reach a host by its name: what the grant costs a command, and what the relay costs a
//! request and a download.

use std::io::{BufRead as _, BufReader, Error, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, find_program, in_turn, median, output_of};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};
use crate::timed::TimedProgram;

const ROUNDS: usize = 9;
const CALLS: usize = 15;

/// Rounds of downloads, which are long.
const DOWNLOADS: usize = 5;

/// Requests of a round, all on one connection.
const REQUESTS: usize = 500;

/// The shortest time that an agent thinks.
const REST: Duration = Duration::from_millis(30);

/// Bytes of the download.
const LARGE: usize = 1_000_000_000;
const LARGE_PATH: &str = "/large";

/// The granted host. The name is one of this machine, also for other sandboxes.
const HOST: &str = "bench.test";

/// The client in the folder of work: this program.
const CLIENT: &str = "client";

/// The variable that names a file with authorities, for this client as for many programs.
const AUTHORITIES: &str = "SSL_CERT_FILE";

const NOT_FETCHED: &str =
    "not fetched: `cargo xtask bench` does it where npm and pip reach their registries";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let failed = |error: std::io::Error| format!("no client in the folder of work: {error}");
    let home = setting.scratch.join("hosts");
    let work = home.join("work");
    std::fs::create_dir_all(&work).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    std::fs::copy(program, work.join(CLIENT)).map_err(failed)?;
    let port = serve(None).map_err(failed)?;
    let authority = home.join("authority.pem");
    let tls_port = serve(Some(tls_server(&authority)?)).map_err(failed)?;

    let trusted = format!("network.authorities=[{:?}]", authority.display().to_string());
    let sandbox = |network: &str| {
        let settings = ["tools.autonomy=full", "audit.keep=1", &trusted, network];
        let allowed = "tools.shell.allowed_commands=[\"curl\"]";
        let all = [&settings[..], &[allowed]].concat();
        Sandbox::with_own_names(&setting.repository, &home, &work, &all)
    };
    let hosts = sandbox(&format!("tools.shell.hosts=[\"http://{HOST}:{port}\"]"))?;
    let plain = sandbox("tools.shell.network=deny")?;
    let compared = in_turn(ROUNDS, || commands(&hosts, "true"), || commands(&plain, "true"))?;
    let what = "bash, `true`, with a granted host, after a rest of 30 ms, against without, p50";
    let mut rows = vec![ratio(what.to_owned(), Target::AtMost(1.2), compared, "without hosts")];
    rows.push(requests(&hosts, &work, "http", port)?);
    // The relay reads requests to the host of a secret.
    let entry = format!("\"https://{HOST}:{tls_port}\"");
    let secret = "{command=[\"echo\",\"token-of-the-bench\"]}";
    let read_host = sandbox(&format!(
        "tools.shell={{hosts=[{entry}],secrets={{bench={{env=\"TOKEN\",from={secret},hosts=[{entry}]}}}}}}"
    ))?;
    rows.push(requests(&read_host, &work, "https", tls_port)?);
    rows.push(downloads(&hosts, &work, port)?);
    let curl = format!("curl -fsS http://{HOST}:{port}/");
    for (command, what) in [("true", "`true`"), (&*curl, "`curl` of the host")] {
        rows.push(against_claude_code(setting, &hosts, &work, command, what)?);
        rows.push(against_sandlock(setting, &hosts, &work, port, command, what)?);
    }
    Ok(rows)
}

/// What a request takes longer through the relay. With TLS, the relay reads the request.
fn requests(sandbox: &Sandbox, work: &Path, scheme: &str, port: u16) -> Result<Row, String> {
    let (kind, most) = if scheme == "https" {
        ("a request over TLS that is read", 400.0)
    } else {
        ("a request", 150.0)
    };
    let (mut ours, mut direct, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let relayed = median(through_relay(sandbox, scheme, port, "/")?);
        let own = median(directly(work, scheme, port, "/")?);
        samples.push((relayed.as_secs_f64() - own.as_secs_f64()) * 1e6);
        ours.push(relayed);
        direct.push(own);
    }
    Ok(Row {
        name: "hosts",
        what: format!("{kind} of a command through the relay, longer than without a sandbox, p50"),
        samples,
        unit: Unit::Microseconds,
        target: Target::AtMost(most),
        ours: show_time(median(ours)),
        rival: format!("direct {}", show_time(median(direct))),
    })
}

/// The rate of a download through the relay, to the direct rate.
fn downloads(sandbox: &Sandbox, work: &Path, port: u16) -> Result<Row, String> {
    let Compared { ours: direct, rival: relayed, ratios } = in_turn(
        DOWNLOADS,
        || Ok(median(directly(work, "http", port, LARGE_PATH)?)),
        || Ok(median(through_relay(sandbox, "http", port, LARGE_PATH)?)),
    )?;
    Ok(Row {
        name: "hosts",
        what: "the rate of a download of 1 GB through the relay, to that without a sandbox".into(),
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::AtLeast(0.7),
        ours: show_time(relayed),
        rival: format!("direct {}", show_time(direct)),
    })
}

/// The same command in the sandbox of Claude Code, which gives commands a proxy.
fn against_claude_code(
    setting: &Setting,
    hosts: &Sandbox,
    work: &Path,
    command: &str,
    what: &str,
) -> Result<Row, String> {
    let what = format!("bash, {what}, with a granted host, against Claude Code's sandbox, p50");
    let clients = setting.repository.join("target/clients/node");
    let node = clients.join("node_modules/.bin/node");
    let Some(node) = fetched(&clients, node) else {
        return Ok(missing(&what, NOT_FETCHED));
    };
    if let Some(program) = ["bwrap", "socat", "rg"].iter().find(|one| find_program(one).is_none()) {
        return Ok(missing(&what, &format!("{program} is not installed")));
    }
    let mut rival = Command::new(node);
    // `curl` uses the proxy for this machine, too.
    rival.arg(clients.join("sandbox.mjs")).arg(in_rival(command, " --noproxy ''"));
    rival.arg(REST.as_millis().to_string()).arg("localhost").current_dir(work);
    against(hosts, &mut rival, command, what, "sandbox-runtime")
}

/// The same command in the sandbox of sandlock.
fn against_sandlock(
    setting: &Setting,
    hosts: &Sandbox,
    work: &Path,
    port: u16,
    command: &str,
    what: &str,
) -> Result<Row, String> {
    let what = format!("bash, {what}, with a granted host, against sandlock, p50");
    let clients = setting.repository.join("target/clients/sandlock");
    let Some(python) = fetched(&clients, clients.join("bin/python")) else {
        return Ok(missing(&what, NOT_FETCHED));
    };
    let mut rival = Command::new(python);
    rival.arg(clients.join("commands.py")).arg(format!("localhost:{port}"));
    rival.arg(REST.as_millis().to_string()).arg(in_rival(command, "")).current_dir(work);
    against(hosts, &mut rival, command, what, "sandlock")
}

/// A command for a sandbox that resolves names as this machine does.
fn in_rival(command: &str, options: &str) -> String {
    command.replace("curl", &format!("curl{options}")).replace(HOST, "localhost")
}

fn against(
    hosts: &Sandbox,
    rival: &mut Command,
    command: &str,
    what: String,
    name: &str,
) -> Result<Row, String> {
    let mut rival = TimedProgram::start(rival)?;
    // A rival whose sandbox doesn't work here, or doesn't reach the host, leaves its row empty.
    if let Err(why) = rival.one_by_one(1) {
        return Ok(missing(&what, &why));
    }
    let compared =
        in_turn(ROUNDS, || commands(hosts, command), || Ok(median(rival.one_by_one(CALLS)?)))?;
    Ok(ratio(what, Target::Lower, compared, name))
}

fn fetched(clients: &Path, program: PathBuf) -> Option<PathBuf> {
    let is_there = clients.join("fetched").exists() && program.exists();
    if is_there { Some(program) } else { None }
}

fn missing(what: &str, why: &str) -> Row {
    Row::not_measured("hosts", what, Unit::Ratio, Target::Lower, why.to_owned())
}

fn ratio(what: String, target: Target, compared: Compared, rival_name: &str) -> Row {
    let Compared { ours, rival, ratios } = compared;
    Row {
        name: "hosts",
        what,
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours: show_time(ours),
        rival: format!("{rival_name} {}", show_time(rival)),
    }
}

fn commands(sandbox: &Sandbox, command: &str) -> Result<Duration, String> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        std::thread::sleep(REST);
        let start = Instant::now();
        sandbox.call_and_wait("bash", json!({ "command": command }))?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// The times of the client in the sandbox.
fn through_relay(
    sandbox: &Sandbox,
    scheme: &str,
    port: u16,
    path: &str,
) -> Result<Vec<Duration>, String> {
    let command = format!("./{CLIENT} --ask {scheme} {HOST}:{port} {path}");
    let arguments = json!({ "command": command, "timeout": 100 });
    let printed = sandbox.structured("bash", arguments)?;
    times(printed["stdout"].as_str().unwrap_or_default().as_bytes())
}

/// The times of the same client without a sandbox.
fn directly(work: &Path, scheme: &str, port: u16, path: &str) -> Result<Vec<Duration>, String> {
    let mut client = Command::new(work.join(CLIENT));
    client.env(AUTHORITIES, work.with_file_name("authority.pem"));
    times(&output_of(client.args(["--ask", scheme, &format!("127.0.0.1:{port}"), path]))?)
}

fn times(printed: &[u8]) -> Result<Vec<Duration>, String> {
    let times: Vec<u64> = serde_json::from_slice(printed)
        .map_err(|error| format!("the client printed no times: {error}"))?;
    Ok(times.into_iter().map(Duration::from_nanos).collect())
}

/// Sends requests for a path on one connection, and prints their times in nanoseconds as JSON.
/// `address` is a host with its port.
///
/// # Errors
///
/// The host isn't reached, or its answer isn't complete.
pub(crate) fn ask(scheme: &str, address: &str, path: &str) -> Result<(), String> {
    let failed = |error: Error| format!("can't ask {scheme}://{address}: {error}");
    let stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let times = if scheme == "https" {
        let stream = tls_client(address, stream).map_err(failed)?;
        request_times(stream, address, path)
    } else {
        request_times(stream, address, path)
    };
    println!("{}", json!(times.map_err(failed)?));
    Ok(())
}

fn request_times(
    stream: impl Read + Write,
    address: &str,
    path: &str,
) -> std::io::Result<Vec<u64>> {
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    let count = if path == LARGE_PATH { 1 } else { REQUESTS };
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n");
        reader.get_mut().write_all(request.as_bytes())?;
        read_answer(&mut reader)?;
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

fn read_answer(reader: &mut BufReader<impl Read>) -> std::io::Result<()> {
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(Error::other)?;
        }
    }
    let read = std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    if read == length { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn tls_client(
    address: &str,
    stream: TcpStream,
) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let file = std::env::var_os(AUTHORITIES).ok_or_else(|| Error::other("no authorities"))?;
    let certificates = CertificateDer::pem_file_iter(file).map_err(Error::other)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates.flatten());
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let host = address.split(':').next().unwrap_or_default().to_owned();
    let name = ServerName::try_from(host).map_err(Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes an authority, writes its certificate to `file`, and returns a server with a certificate
/// of this authority.
fn tls_server(file: &Path) -> Result<Arc<ServerConfig>, String> {
    let failed = |error: rcgen::Error| format!("no certificates: {error}");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().map_err(failed)?;
    let authority = params.self_signed(&key).map_err(failed)?;
    std::fs::write(file, authority.pem())
        .map_err(|error| format!("can't write {}: {error}", file.display()))?;
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = CertificateParams::new([HOST.to_owned(), "127.0.0.1".to_owned()])
        .and_then(|params| params.signed_by(&key, &issuer))
        .map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key)
        });
    config.map(Arc::new).map_err(|error| format!("no server with TLS: {error}"))
}

/// Starts a server of this machine, which runs as long as this process. Returns its port.
fn serve(tls: Option<Arc<ServerConfig>>) -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tls = tls.clone();
            std::thread::spawn(move || serve_one(stream, tls));
        }
    });
    Ok(port)
}

fn serve_one(stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    match tls {
        Some(config) => {
            let connection = ServerConnection::new(config).map_err(Error::other)?;
            answer_all(StreamOwned::new(connection, stream))
        }
        None => answer_all(stream),
    }
}

fn answer_all(stream: impl Read + Write) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let chunk = vec![0; 1 << 18];
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let is_large = head.starts_with(&format!("GET {LARGE_PATH} "));
        let mut left = if is_large { LARGE } else { 2 };
        let stream = reader.get_mut();
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {left}\r\n\r\n")?;
        while left > 0 {
            let length = left.min(chunk.len());
            stream.write_all(&chunk[..length])?;
            left -= length;
        }
    }
}
