//! Commands that reach a host by its name: what the grant costs a command, and what the relay costs a
//! request and a download.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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

const NOT_FETCHED: &str =
    "not fetched: `cargo xtask bench` does it where npm and pip reach their registries";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let failed = |error: std::io::Error| format!("no client in the folder of work: {error}");
    let home = setting.scratch.join("hosts");
    let work = home.join("work");
    std::fs::create_dir_all(&work).map_err(failed)?;
    let program = std::env::current_exe().map_err(failed)?;
    std::fs::copy(program, work.join(CLIENT)).map_err(failed)?;
    let port = serve().map_err(failed)?;

    let sandbox = |network: &str| {
        let settings = ["tools.autonomy=full", "audit.keep=1", network];
        let allowed = "tools.shell.allowed_commands=[\"curl\"]";
        let all = [&settings[..], &[allowed]].concat();
        Sandbox::with_own_names(&setting.repository, &home, &work, &all)
    };
    let hosts = sandbox(&format!("tools.shell.hosts=[\"http://{HOST}:{port}\"]"))?;
    let plain = sandbox("tools.shell.network=deny")?;
    let compared = in_turn(ROUNDS, || commands(&hosts, "true"), || commands(&plain, "true"))?;
    let what = "bash, `true`, with a granted host, after a rest of 30 ms, against without, p50";
    let mut rows = vec![ratio(what.to_owned(), Target::AtMost(1.2), compared, "without hosts")];
    rows.push(requests(&hosts, &work, port)?);
    rows.push(downloads(&hosts, &work, port)?);
    let curl = format!("curl -fsS http://{HOST}:{port}/");
    for (command, what) in [("true", "`true`"), (&*curl, "`curl` of the host")] {
        rows.push(against_claude_code(setting, &hosts, &work, command, what)?);
        rows.push(against_sandlock(setting, &hosts, &work, port, command, what)?);
    }
    Ok(rows)
}

/// What a request takes longer through the relay.
fn requests(sandbox: &Sandbox, work: &Path, port: u16) -> Result<Row, String> {
    let (mut ours, mut direct, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let relayed = median(through_relay(sandbox, port, "/")?);
        let own = median(directly(work, port, "/")?);
        samples.push((relayed.as_secs_f64() - own.as_secs_f64()) * 1e6);
        ours.push(relayed);
        direct.push(own);
    }
    Ok(Row {
        name: "hosts",
        what: "a request of a command through the relay, longer than without a sandbox, p50".into(),
        samples,
        unit: Unit::Microseconds,
        target: Target::AtMost(150.0),
        ours: show_time(median(ours)),
        rival: format!("direct {}", show_time(median(direct))),
    })
}

/// The rate of a download through the relay, to the direct rate.
fn downloads(sandbox: &Sandbox, work: &Path, port: u16) -> Result<Row, String> {
    let Compared { ours: direct, rival: relayed, ratios } = in_turn(
        DOWNLOADS,
        || Ok(median(directly(work, port, LARGE_PATH)?)),
        || Ok(median(through_relay(sandbox, port, LARGE_PATH)?)),
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
fn through_relay(sandbox: &Sandbox, port: u16, path: &str) -> Result<Vec<Duration>, String> {
    let command = format!("./{CLIENT} --ask {HOST} {port} {path}");
    let arguments = json!({ "command": command, "timeout": 100 });
    let printed = sandbox.structured("bash", arguments)?;
    times(printed["stdout"].as_str().unwrap_or_default().as_bytes())
}

/// The times of the same client without a sandbox.
fn directly(work: &Path, port: u16, path: &str) -> Result<Vec<Duration>, String> {
    let mut client = Command::new(work.join(CLIENT));
    times(&output_of(client.args(["--ask", "127.0.0.1", &port.to_string(), path]))?)
}

fn times(printed: &[u8]) -> Result<Vec<Duration>, String> {
    let times: Vec<u64> = serde_json::from_slice(printed)
        .map_err(|error| format!("the client printed no times: {error}"))?;
    Ok(times.into_iter().map(Duration::from_nanos).collect())
}

/// Sends requests for a path on one connection, and prints their times in nanoseconds as JSON.
///
/// # Errors
///
/// The host isn't reached, or its answer isn't complete.
pub(crate) fn ask(host: &str, port: &str, path: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("can't ask {host}:{port}: {error}");
    let stream = TcpStream::connect(format!("{host}:{port}")).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let mut reader = BufReader::with_capacity(1 << 20, stream);
    let count = if path == LARGE_PATH { 1 } else { REQUESTS };
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n");
        reader.get_mut().write_all(request.as_bytes()).map_err(failed)?;
        read_answer(&mut reader).map_err(failed)?;
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    println!("{}", json!(times));
    Ok(())
}

fn read_answer(reader: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(std::io::Error::other)?;
        }
    }
    let read = std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    if read == length { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// Starts a server of this machine, which runs as long as this process. Returns its port.
fn serve() -> std::io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer_all(stream));
        }
    });
    Ok(port)
}

fn answer_all(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
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
