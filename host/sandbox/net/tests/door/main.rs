//! Toolhold's own requests to real servers on loopback, and what reaches these servers.

mod hostile;
mod proxy;
#[allow(dead_code, reason = "shared with the tests of toolhold-net, which use more of it")]
#[path = "../requests/server.rs"]
mod server;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use server::{Authority, Server, answer};
use toolhold_contract::{Category, Failure};
use toolhold_net::requests::{
    Credential, DoorRecord, Limits, OutboundClient, OutboundError, Recorder, Request,
};
use toolhold_net::{Network, Resolve};
use url::Url;

/// Runs a test on its own reactor. It has one thread, so that a connection is kept before the test
/// makes the next request: another thread may be late.
fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a reactor starts")
        .block_on(test);
}

/// Keeps the records, or fails.
#[derive(Debug, Default)]
struct Records {
    kept: Mutex<Vec<DoorRecord>>,
    fails: bool,
}

impl Recorder for Records {
    fn record(&self, record: &DoorRecord) -> Result<(), Failure> {
        self.kept.lock().expect("nobody panicked").push(record.clone());
        if self.fails {
            return Err(Failure::new(Category::PermanentFailure, "the disk is full"));
        }
        Ok(())
    }
}

impl Records {
    fn all(&self) -> Vec<DoorRecord> {
        self.kept.lock().expect("nobody panicked").clone()
    }
}

/// Names with fixed addresses.
#[derive(Debug)]
struct Names(HashMap<&'static str, IpAddr>);

impl Resolve for Names {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        Box::pin(async move { Ok(self.0.get(name).copied().into_iter().collect()) })
    }
}

fn names(names: &[(&'static str, &str)]) -> Option<Arc<dyn Resolve>> {
    let names =
        names.iter().map(|(name, address)| (*name, address.parse().expect("it is an address")));
    Some(Arc::new(Names(names.collect())))
}

fn door(network: Network) -> (OutboundClient, Arc<Records>) {
    let records = Arc::<Records>::default();
    (OutboundClient::new(network, Arc::clone(&records) as _), records)
}

fn request(url: &str) -> Request {
    Request::get("a test", url).expect("it can be requested")
}

async fn body(door: &OutboundClient, request: Request) -> Result<Vec<u8>, OutboundError> {
    door.send(request).await?.bytes(&|_, _| {}).await
}

/// The servers of a test, which a request names.
fn urls(servers: &[&Server]) -> Vec<Url> {
    let url = |server: &&Server| format!("http://127.0.0.1:{}/", server.port());
    servers.iter().map(|server| url(server).parse().expect("is a URL")).collect()
}

#[test]
fn answer_comes_with_its_progress_and_has_a_record() {
    run(async {
        let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], &[b'x'; 100_000]));
        let (door, records) = door(Network::default());
        let url = format!("http://localhost:{}/a/b?secret=1", server.port());
        let steps = Mutex::new(Vec::new());
        let got = door.send(request(&url)).await.expect("it answers");
        assert_eq!((got.status().as_u16(), got.length()), (200, Some(100_000)));
        assert_eq!(records.all(), [], "it has not ended");
        let progress = |bytes, all| steps.lock().expect("is whole").push((bytes, all));
        assert_eq!(got.bytes(&progress).await.expect("it is whole").len(), 100_000);
        let steps = steps.into_inner().expect("is whole");
        assert_eq!(steps.last(), Some(&(100_000, Some(100_000))));
        assert!(steps.windows(2).all(|two| two[0].0 < two[1].0), "{steps:?}");
        let [record] = &records.all()[..] else { panic!("{records:?}") };
        assert_eq!(
            (record.path.as_str(), record.bytes, record.status),
            ("/a/b", 100_000, Some(200))
        );
        assert_eq!(record.origin, format!("http://localhost:{}", server.port()));
        assert!(record.address.is_some_and(|address| address.is_loopback()));
        assert_eq!((record.refused, &record.failed, record.hop), (false, &None, 0));
        let asked = &server.asked()[0];
        assert_eq!(asked.header("accept-encoding"), Some("identity"));
        assert!(asked.header("user-agent").is_some_and(|agent| agent.starts_with("toolhold/")));
    });
}

#[test]
fn redirects_are_followed_and_each_hop_is_recorded() {
    run(async {
        let server = Server::plain(|asked, wire| {
            let next = match asked.path() {
                "/0" => "/1",
                "/1" => "2",
                "/2" => "/3?q",
                path => return answer(wire, "200 OK", &[], path.as_bytes()),
            };
            answer(wire, "302 Found", &[("location", next)], b"ignored")
        });
        let (door, records) = door(Network::default());
        let url = format!("http://127.0.0.1:{}/0", server.port());
        assert_eq!(body(&door, request(&url)).await.as_deref(), Ok(&b"/3?q"[..]));
        let hops: Vec<_> = records
            .all()
            .into_iter()
            .map(|record| (record.hop, record.path, record.status))
            .collect();
        let expected = [(0, "/0", 302), (1, "/1", 302), (2, "/2", 302), (3, "/3", 200)];
        assert_eq!(hops, expected.map(|(hop, path, status)| (hop, path.to_owned(), Some(status))));
    });
}

#[test]
fn credential_goes_to_its_origin_alone() {
    run(async {
        let other = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"other"));
        let to = format!("http://127.0.0.1:{}/", other.port());
        let server = Server::plain(move |_, wire| {
            answer(wire, "307 Temporary Redirect", &[("location", &to)], b"")
        });
        let (door, _) = door(Network::default());
        let all = urls(&[&server, &other]);
        let named: Vec<&Url> = all.iter().collect();
        let credential = Credential::new(&all[0], HeaderValue::from_static("Bearer secret-1"));
        assert!(!format!("{credential:?}").contains("secret-1"));
        let request = Request::chosen_by_server("a test", Method::GET, all[0].as_str(), &named)
            .expect("it can be requested")
            .credential(Some(credential));
        assert_eq!(body(&door, request).await.as_deref(), Ok(&b"other"[..]));
        assert_eq!(server.asked()[0].header("authorization"), Some("Bearer secret-1"));
        assert_eq!(other.asked().len(), 1);
        assert_eq!(other.asked()[0].header("authorization"), None);
        assert!(!other.asked()[0].head.contains("secret"));
    });
}

#[test]
fn credentials_have_headers_of_their_own() {
    run(async {
        let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b""));
        let all = urls(&[&server]);
        let (door, _) = door(Network::default());
        let own = |value| {
            Credential::in_header(
                &all[0],
                HeaderName::from_static("x-api-key"),
                HeaderValue::from_static(value),
            )
        };
        let elsewhere: Url = "https://example.com/".parse().expect("is a URL");
        let other = Credential::in_header(
            &elsewhere,
            HeaderName::from_static("x-other"),
            HeaderValue::from_static("secret-3"),
        );
        assert!(!format!("{:?}", own("secret-1")).contains("secret"));
        let bearer = Credential::new(&all[0], HeaderValue::from_static("Bearer secret-2"));
        let request = request(all[0].as_str());
        let several = [own("secret-0"), bearer, other, own("secret-1")];
        let request =
            several.into_iter().fold(request, |request, one| request.credential(Some(one)));
        body(&door, request).await.expect("it answers");
        let asked = &server.asked()[0];
        assert_eq!(asked.header("x-api-key"), Some("secret-1"), "the last one");
        assert_eq!(asked.header("authorization"), Some("Bearer secret-2"));
        assert!(!asked.head.contains("secret-3") && !asked.head.contains("secret-0"));
    });
}

#[test]
fn body_is_sent_once_and_not_elsewhere() {
    run(async {
        let other = Server::plain(|_, wire| answer(wire, "200 OK", &[], b""));
        let to = format!("http://127.0.0.1:{}/", other.port());
        let server = Server::plain(move |asked, wire| match asked.path() {
            "/moved" => answer(wire, "308 Permanent Redirect", &[("location", &to)], b""),
            _ => answer(wire, "201 Created", &[], b""),
        });
        let (door, _) = door(Network::default());
        let post = |path: &str| {
            let url = format!("http://127.0.0.1:{}{path}", server.port());
            Request::new("a test", Method::POST, &url).expect("is valid").body("the body")
        };
        let got = door.send(post("/")).await.expect("it answers");
        assert_eq!(got.status().as_u16(), 201);
        assert_eq!(server.asked()[0].body, b"the body");
        let failed = door.send(post("/moved")).await.expect_err("it isn't sent again");
        assert!(matches!(failed, OutboundError::Redirect { .. }), "{failed}");
        assert_eq!(other.connections(), 0);
    });
}

fn secure(config: Arc<rustls::ServerConfig>) -> Server {
    Server::tls(config, |_, wire| answer(wire, "200 OK", &[], b"ok"))
}

#[test]
fn tls_checks_name_authority_and_time() {
    run(async {
        let authority = Authority::new();
        let good = secure(authority.server(&["good.test"], &["http/1.1"], |_| {}));
        let unknown = secure(Authority::new().server(&["good.test"], &[], |_| {}));
        let old = secure(authority.server(&["good.test"], &[], |params| {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        }));
        let network = |authorities| Network {
            authorities,
            resolver: names(&[("good.test", "127.0.0.1"), ("wrong.test", "127.0.0.1")]),
            ..Network::default()
        };
        let url = |name: &str, server: &Server| format!("https://{name}:{}/", server.port());
        let (trusting, _) = door(network(vec![authority.file()]));
        let got = body(&trusting, request(&url("good.test", &good))).await;
        assert_eq!(got.as_deref(), Ok(&b"ok"[..]));
        for (name, server) in [("wrong.test", &good), ("good.test", &unknown), ("good.test", &old)]
        {
            let failed = body(&trusting, request(&url(name, server))).await.expect_err(name);
            assert!(failed.to_string().contains("certificate"), "{failed}");
        }
        let (untrusting, _) = door(network(Vec::new()));
        let failed = body(&untrusting, request(&url("good.test", &good))).await;
        assert!(failed.is_err_and(|failed| failed.to_string().contains("certificate")));
        assert_eq!((good.asked().len(), unknown.asked().len(), old.asked().len()), (1, 0, 0));

        let folder = tempfile::tempdir().expect("a folder is made");
        let broken = folder.path().join("broken.pem");
        std::fs::write(&broken, "no certificate").expect("it is written");
        let (door, _) = door(network(vec![authority.file(), broken]));
        let failed = body(&door, request(&url("good.test", &good))).await.expect_err("it fails");
        assert!(failed.to_string().contains("broken.pem"), "{failed}");
        assert_eq!(good.asked().len(), 1);
    });
}

#[test]
fn answer_that_can_t_be_recorded_is_not_used() {
    run(async {
        let server = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"x"));
        let records = Arc::new(Records { fails: true, ..Records::default() });
        let door = OutboundClient::new(Network::default(), Arc::clone(&records) as _);
        let failed =
            body(&door, request(urls(&[&server])[0].as_str())).await.expect_err("it fails");
        assert!(matches!(failed, OutboundError::Unrecorded(..)), "{failed}");
        assert_eq!(records.all().len(), 1);
    });
}

#[test]
fn request_that_is_given_up_has_a_record() {
    run(async {
        let server = Server::plain(|_, wire| wire.read(&mut [0]).map(drop));
        let (door, records) = door(Network::default());
        let url = urls(&[&server]).remove(0);
        let given_up =
            tokio::time::timeout(Duration::from_millis(200), door.send(request(url.as_str())))
                .await;
        assert!(given_up.is_err());
        let [record] = &records.all()[..] else { panic!("{records:?}") };
        assert!(record.failed.as_deref().is_some_and(|why| why.contains("cancelled")));
    });
}

fn limits(bytes: u64) -> Limits {
    Limits { time: Duration::from_millis(900), idle: Duration::from_millis(300), bytes }
}
