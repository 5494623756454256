//! Serves what the protocol's conformance suite expects: `conformance FOLDER PLUGIN`. It prints its
//! address.

mod extras;
mod http;
mod tools;

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use toolhold_core::Host;
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_mcp_server::Server;

/// A picture of one point.
const PNG: &[u8] =
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\
    \xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";

/// A sound without a sample.
const WAV: &[u8] =
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0data\0\0\0\0";

fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolhold_core::helper_hook();
    let [folder, plugin] = std::env::args()
        .skip(1)
        .map(PathBuf::from)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "conformance FOLDER PLUGIN")?;
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let folders = Folders::inside(&folder);
    let place = folder.join("plugins");
    std::fs::create_dir_all(&place)?;
    let settings = vec![
        "plugin_folder.reload=trust".to_owned(),
        format!("plugin_folder.path={:?}", place.display().to_string()),
    ];
    let loaded = config::load(&folders, &Inputs { settings, ..Inputs::default() })
        .map_err(|error| error.to_string())?;
    let (approvals, serve) = (loaded.values.approvals.clone(), loaded.values.serve.clone());
    let door = toolhold_core::outbound_client(&loaded, &folders, "conformance");
    let reactor =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    reactor.block_on(async {
        let tools = tools::Tools {
            place: place.join(plugin.file_name().ok_or("the plugin has no name")?),
            plugin,
        };
        let host = Host::builder()
            .config(loaded)
            .folders(folders.clone())
            .working_directory(&folder)
            .provider(Arc::new(tools));
        let host = host.front_end("conformance").watch().build().await?;
        let server = Server::new(Arc::new(host), folders.clone(), &approvals)?
            .with_extras(Arc::new(extras::Fixtures));
        http::serve(server, serve, &folder, &folders, &door).await
    })
}
