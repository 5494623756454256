//! Runs all checks of `toolhold doctor` in order.
//!
//! ```no_run
//! use toolhold_core::doctor::{Examination, State};
//!
//! # async fn example() {
//! let report = Examination::default().run().await;
//! for finding in report.findings.iter().filter(|finding| finding.state != State::Ok) {
//!     println!("{}: {}", finding.name, finding.found);
//! }
//! # }
//! ```

mod audit;
mod configuration;
mod kept;
pub mod machine;
mod plugins;

use std::path::PathBuf;
use std::time::Duration;

use toolhold_engine::Builtin;

use toolhold_config::Inputs;

pub use crate::doctor::machine::{Finding, Report, State};
use crate::doctor::machine::{engine, folders, kernel, limits, network, processes, within};

/// Time limit of one group of checks. A folder on a network file system may never answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for loading all plugins, because some of them may have to be compiled.
const LOADING: Duration = Duration::from_secs(180);

/// The settings of the host to examine.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// Settings in addition to the user's file.
    pub inputs: Inputs,
    /// Plugins that are part of the program.
    pub builtins: Vec<Builtin>,
    /// Plugins in addition to the configured plugins.
    pub plugin_files: Vec<PathBuf>,
    /// See [`HostBuilder::helper`](crate::HostBuilder::helper).
    pub helper: Option<PathBuf>,
}

impl Examination {
    /// Examines everything. Parts that other parts need come first.
    ///
    /// The examination always ends, and changes nothing except the cache of compiled plugins. Needs
    /// a tokio runtime with its time driver.
    pub async fn run(self) -> Report {
        let mut report = Report::default();
        report.add("Kernel", within(PATIENCE, kernel::findings).await);
        let inputs = self.inputs.clone();
        let (read, mut config_findings) = configuration::read(inputs, PATIENCE).await;
        let helper = self.helper.clone();
        let table = read.loaded.own_table("tools.shell");
        report.add(
            "Process sandbox",
            within(PATIENCE, move || processes::findings(helper, &table)).await,
        );
        config_findings.extend(processes::configured(&read.loaded));
        report.add("Configuration", config_findings);

        let loaded = read.loaded.clone();
        report.add("Limits", within(PATIENCE, move || limits::findings(&loaded)).await);
        if let Some(folders) = read.folders.clone() {
            let loaded = read.loaded.clone();
            let own_folders = folders.clone();
            let config = loaded.clone();
            report.add(
                "Folders",
                within(PATIENCE, move || folders::findings(&own_folders, &config)).await,
            );
            let own_folders = folders.clone();
            let config = loaded.clone();
            report.add(
                "Requests",
                within(PATIENCE, move || network::findings(&own_folders, &config)).await,
            );
            let own_folders = folders.clone();
            let config = loaded.clone();
            report
                .add("Kept", within(PATIENCE, move || kept::findings(&own_folders, &config)).await);
            report.add("Audit", within(PATIENCE, move || audit::findings(&folders, &loaded)).await);
        }

        let runtime = read.runtime(self.helper.clone());
        let builtins = self.builtins.clone();
        let table = read.loaded.own_table("tools");
        report.add(
            "Engine",
            within(PATIENCE, move || engine::findings(runtime, &builtins, &table)).await,
        );
        report.add("Plugins", plugins::findings(self, read, LOADING).await);
        report
    }
}
