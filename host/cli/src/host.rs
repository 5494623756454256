//! From the options to a host: the one way in which every command builds it.

use berth_host::config::{self, Folders, Inputs, Loaded, PathAccess};
use berth_host::{Host, HostError};
use tokio::runtime::{Builder, Runtime};

use crate::arguments::Options;
use crate::builtins::BUILTINS;
use crate::error::Error;

impl Options {
    /// What the command line and the environment say about the configuration.
    pub(crate) fn inputs(&self) -> Result<Inputs, HostError> {
        let read_write = self.allow.iter().map(|path| (path.clone(), PathAccess::ReadWrite));
        let read = self.allow_read.iter().map(|path| (path.clone(), PathAccess::Read));
        Ok(Inputs {
            file: self.config.clone(),
            settings: self.set.clone(),
            allow: read_write.chain(read).collect(),
            ..Inputs::from_environment()?
        })
    }
}

/// Builds the host that `options` ask for and does something with it.
pub(crate) fn run<T>(options: &Options, work: impl AsyncFnOnce(Host) -> Result<T, Error>) -> Result<T, Error> {
    let folders = Folders::from_environment()?;
    let loaded = config::load(&folders, &options.inputs()?).map_err(HostError::from)?;
    block_on(async {
        let host = build(options, folders, loaded).await?;
        work(host).await
    })
}

/// Runs a future to its end. What it leaves behind is not waited for: it may be stuck in a system call.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = reactor()?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

async fn build(options: &Options, folders: Folders, loaded: Loaded) -> Result<Host, HostError> {
    let working_directory = std::env::current_dir().map_err(HostError::io("finding the working directory"))?;
    let mut builder = Host::builder().config(loaded).folders(folders).working_directory(working_directory).builtins(BUILTINS);
    for file in &options.plugin {
        builder = builder.plugin_file(file.clone());
    }
    builder.build().await
}

fn reactor() -> Result<Runtime, HostError> {
    Builder::new_multi_thread().worker_threads(2).enable_time().build().map_err(HostError::io("starting the reactor"))
}
