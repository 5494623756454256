//! Requests to real servers on loopback. Each server is reached by the grant for its port.

mod bodies;
mod connections;
mod hostile;
mod placeholders;
mod program_attacks;
mod program_entries;
mod programs;
mod redirects;
mod secrets;
mod server;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use toolhold_contract::{Report, RequestRecord};
use toolhold_net::{Egress, Error, Limits, Network, Requests, Resolve, Scope, Settings, Timeouts};
use toolhold_policy::egress::{Grant, PrivateHosts, Reach};
use toolhold_policy::{Origin, OwnTable, Placed};

fn placed<T>(value: T) -> Placed<T> {
    Placed { value, place: Origin::default() }
}

/// Settings for tests, with grants for the private hosts in `private`.
fn settings(private: &[&str]) -> Settings {
    Settings {
        reach: Reach {
            table: OwnTable { name: "plugins.tester".to_owned(), ..OwnTable::default() },
            grants: Vec::new(),
            denied: Vec::new(),
            private: private
                .iter()
                .map(|written| placed(PrivateHosts::new(written).expect("it is valid")))
                .collect(),
            job_servers: false,
            https_only: placed(true),
            place: Origin::default(),
            ceilings: Vec::new(),
        },
        limits: Limits {
            time: Duration::from_secs(20),
            idle: Duration::from_secs(10),
            body: 1 << 20,
            request_body: 1 << 20,
            headers: 64 * 1024,
            concurrent: 8,
            requests: 100,
        },
        time_key: "the key".to_owned(),
        asks: false,
        secrets: Vec::new(),
        credentials_to: Vec::new(),
        network: Network::default(),
    }
}

fn grant(settings: &mut Settings, hosts: &str) {
    settings.reach.grants.push(placed(Grant::new(hosts).expect("it is valid")));
}

/// An answer with its whole body.
#[derive(Debug)]
struct GuestAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    end: Option<Error>,
}

impl GuestAnswer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The requests of one call.
struct Caller {
    requests: Requests,
    report: Arc<Report>,
}

impl Caller {
    fn new(settings: Settings) -> Self {
        Self::with_egress(Arc::new(Egress::new(settings)), false)
    }

    fn with_egress(egress: Arc<Egress>, read_only: bool) -> Self {
        let report = Arc::new(Report::default());
        let scope =
            Scope { report: Arc::clone(&report), read_only, origins: Vec::new(), servers: None };
        Self { requests: Requests::new(egress, scope), report }
    }

    async fn get(&self, url: &str) -> Result<GuestAnswer, Error> {
        self.send(Request::get(url).body(Full::default()).expect("it is a request")).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<GuestAnswer, Error> {
        let response = self.requests.send(request, Timeouts::default()).await?;
        let (parts, mut stream) = response.into_parts();
        let (mut body, mut end) = (Vec::new(), None);
        while let Some(frame) = stream.frame().await {
            match frame {
                Ok(frame) => body.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(error) => end = Some(error),
            }
        }
        Ok(GuestAnswer { status: parts.status, headers: parts.headers, body, end })
    }

    fn requests(&self) -> Vec<RequestRecord> {
        self.report.entries().requests.clone()
    }
}

/// Runs a test on its own reactor.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a reactor starts")
        .block_on(test);
}

/// A resolver with fixed names. Each lookup takes the next answer of the name; the last one stays.
#[derive(Debug, Default)]
struct Names(Mutex<HashMap<String, Vec<Vec<IpAddr>>>>);

impl Names {
    fn with_names(names: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |addresses: &&[&str]| {
            addresses.iter().map(|address| address.parse().expect("it is an address")).collect()
        };
        let names = names
            .iter()
            .map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect()));
        Arc::new(Self(Mutex::new(names.collect())))
    }
}

impl Resolve for Names {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        let mut names = self.0.lock().expect("nobody panicked");
        let answer = names
            .get_mut(name)
            .map(|answers| if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() });
        Box::pin(async move { answer.ok_or_else(|| io::Error::other("no such name")) })
    }
}

/// A resolver that never answers.
#[derive(Debug)]
struct NoAnswer;

impl Resolve for NoAnswer {
    fn resolve<'r>(
        &'r self,
        _: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        Box::pin(std::future::pending())
    }
}

/// A resolver that resolves every name to loopback.
#[derive(Debug)]
struct Loopback;

impl Resolve for Loopback {
    fn resolve<'r>(
        &'r self,
        _: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}
