//! The server of `toolhold serve --http` at a Unix socket, where it needs no token, which the suite
//! couldn't send. In front of it is a port that forwards all bytes unchanged, with the suite's own
//! `Host` and `Origin`.

use std::error::Error;
use std::path::Path;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use toolhold_core::CancellationToken;
use toolhold_core::config::{Folders, Serve};
use toolhold_mcp_server::{Http, ListenAddress, Server, serve_http};
use toolhold_net::requests::OutboundClient;

/// Serves until the process is killed.
pub(crate) async fn serve(
    server: Server,
    settings: Serve,
    folder: &Path,
    folders: &Folders,
    door: &OutboundClient,
) -> Result<(), Box<dyn Error>> {
    let socket = folder.join("socket");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    // The suite expects that a page of this port is accepted, and one from elsewhere refused.
    let settings = Serve { allowed_origins: vec![origin.clone()], ..settings };
    let http =
        Http::bind(ListenAddress::Unix(socket.clone()), settings, folders, false, door).await?;
    println!("{origin}/mcp");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let socket = socket.clone();
            // The client decides when a connection ends.
            tokio::spawn(async move {
                copy_bidirectional(&mut client, &mut UnixStream::connect(socket).await?).await
            });
        }
    });
    serve_http(server, http, CancellationToken::new()).await?;
    Ok(())
}
