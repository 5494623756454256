//! HTTP for everybody on this machine, in one session.

use std::error::Error;
use std::sync::Arc;

use berth_host::Session;
use berth_mcp::Server;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;

/// Serves until the process is killed.
pub(crate) async fn serve(server: Server) -> Result<(), Box<dyn Error>> {
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, StreamableHttpServerConfig::default());
    let service = TowerToHyperService::new(service);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    let session = Session::new("conformance");
    loop {
        let (stream, _) = listener.accept().await?;
        let (service, session) = (service.clone(), session.clone());
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(session.clone());
            service.call(request)
        });
        // What ends a connection is its client's matter.
        tokio::spawn(async move { hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await });
    }
}
