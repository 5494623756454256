//! The real web tools against real servers on loopback: their answers, the hosts that they refuse,
//! who is asked, and what happens to secrets.

mod approvals;
mod audit;
mod failed_requests;
mod hostile;
mod secrets;
mod tools;

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Answer, Audience, Host, Request, Resolve};

use crate::support::server::{Asked, Server, Wire, answer};
use crate::support::{builtin, shared_cache, toolhold};

/// A host with the web tools, which reaches some servers on loopback and asks no other resolver.
pub(crate) struct Web {
    folder: TempDir,
    pub(crate) host: Host,
}

impl Web {
    /// With opened servers, each by its address and port.
    pub(crate) async fn new(servers: &[&Server], settings: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder is made");
        let folders =
            Folders { cache: shared_cache(), ..Folders::inside(&folder.path().join("toolhold")) };
        let opened: Vec<String> = servers.iter().map(|server| server.address.to_string()).collect();
        let mut all = vec![
            format!("tools.web.allowed_private_hosts={opened:?}"),
            "tools.retry.max_attempts=0".to_owned(),
        ];
        all.extend(settings.iter().map(|&setting| setting.to_owned()));
        let loaded = config::load(&folders, &Inputs { settings: all, ..Inputs::default() })
            .expect("the settings are valid");
        let host = Host::builder()
            .config(loaded)
            .folders(folders)
            .working_directory(folder.path())
            .builtins(&[builtin("web")])
            .resolver(Arc::new(Names))
            .helper(toolhold());
        Self { host: host.build().await.expect("the host starts"), folder }
    }

    /// Calls a tool for a person, who gets the unchanged text.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.host
            .call(Request { audience: Audience::Person, ..Request::new(tool, arguments) })
            .await
    }

    /// The answer of `fetch` for a URL, part by part.
    pub(crate) async fn fetch(&self, url: impl Into<String>) -> Vec<String> {
        texts(&self.call("fetch", json!({ "url": url.into() })).await)
    }

    /// The records of the audit so far.
    pub(crate) fn records(&self) -> Vec<Value> {
        crate::mcp::client::records(&self.folder.path().join("toolhold/data"))
    }
}

/// The texts of an answer.
#[track_caller]
pub(crate) fn texts(answer: &Answer) -> Vec<String> {
    let output =
        answer.outcome.as_ref().unwrap_or_else(|failure| panic!("it succeeds: {failure:?}"));
    output.content.iter().map(|part| part.as_text().expect("it is a text").to_owned()).collect()
}

/// Resolves every name to this machine, except one in a private network and one that doesn't exist.
#[derive(Debug)]
struct Names;

impl Resolve for Names {
    fn resolve<'r>(
        &'r self,
        name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        let address = match name {
            "nowhere.example.com" => None,
            "inside.example.com" => Some(Ipv4Addr::new(10, 0, 0, 7)),
            _ => Some(Ipv4Addr::LOCALHOST),
        };
        Box::pin(async move {
            address
                .map(|address| vec![address.into()])
                .ok_or_else(|| io::Error::other("no such name"))
        })
    }
}

/// An answer of a type.
pub(crate) fn page(wire: &mut dyn Wire, media_type: &str, body: &[u8]) -> io::Result<()> {
    answer(wire, "200 OK", &[("content-type", media_type)], body)
}

/// The same page for every request.
pub(crate) fn hello(_: &Asked, wire: &mut dyn Wire) -> io::Result<()> {
    page(wire, "text/plain", b"hello")
}
