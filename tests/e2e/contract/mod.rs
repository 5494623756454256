//! The contract between hosts and plugins: its versions, and what passes beside arguments and
//! answers.

mod answers;
mod index;
mod meta;
mod parts;
mod schedule;
mod services;
mod session;
mod settings;
mod store;
mod versions;

use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Builtin, Host};

use crate::support::{shared_cache, toolhold};

/// A host in a folder with these plugins and settings. `{folder}` in a setting is the folder.
async fn host(folder: &std::path::Path, builtins: &[Builtin], settings: &[String]) -> Host {
    host_with(folder, shared_cache(), builtins, settings).await
}

/// The same with a cache of its own.
async fn host_with(
    folder: &std::path::Path,
    cache: std::path::PathBuf,
    builtins: &[Builtin],
    settings: &[String],
) -> Host {
    let folders = Folders { cache, ..Folders::inside(&folder.join("toolhold")) };
    let shown = folder.display().to_string();
    let mut all = vec!["tools.autonomy=full".to_owned()];
    all.extend(settings.iter().map(|setting| setting.replace("{folder}", &shown)));
    let variables = std::env::vars_os().filter(|(name, _)| name == "PATH").collect();
    let inputs = Inputs { settings: all, variables, ..Inputs::default() };
    let loaded = config::load(&folders, &inputs).expect("the settings are valid");
    let host = Host::builder()
        .config(loaded)
        .folders(folders)
        .working_directory(folder)
        .builtins(builtins)
        .helper(toolhold())
        .build();
    host.await.expect("the host starts")
}

/// The settings for a plugin that is served without approval.
fn served(name: &str, path: &std::path::Path) -> Vec<String> {
    vec![format!("plugins.{name}.path={path:?}"), format!("plugins.{name}.reload=trust")]
}
