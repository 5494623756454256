//! The bounds of a scheduled task: the configuration of the task's creator, without the flags that
//! applied to one command only.

use toolhold_contract::HostError;
use toolhold_contract::text::{cut, neutral_line};

use super::{Config, Inputs, PathAccess, Problems, Source, load};

/// The setting that enables tasks. This setting isn't a bound: a task that was created where a flag
/// enables tasks also runs where a flag enables them.
const ENABLED: &str = "tools.scheduler.enabled";

/// Bytes of a flag that are shown.
const MAX_FLAG: usize = 300;

/// The bounds of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskBounds {
    /// The bounds for [`Inputs::bounds`](super::Inputs::bounds).
    pub texts: Vec<String>,
    /// The dotted keys for which flags allow more. The task doesn't get these values.
    pub by_flags: Vec<String>,
}

impl Config {
    /// Returns the limits of this configuration without its flags, for
    /// [`Inputs::bounds`](super::Inputs::bounds) of a later configuration. The later configuration
    /// then allows no more than this configuration, even if it has new values. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if the configuration is too long, or isn't valid without the flags.
    pub fn task_bounds(&self) -> Result<TaskBounds, HostError> {
        let (Some((folders, inputs)), Some(without_flags)) =
            (&self.read_from, self.without_flags()?)
        else {
            return Ok(TaskBounds { texts: self.bounds_with_flags()?, by_flags: Vec::new() });
        };
        // Flags may also take away. So the task is bounded by the values with and without flags.
        let bounds = without_flags.bounds_with_flags()?;
        let inputs = Inputs { bounds, ..inputs.clone() };
        let bounded = load(folders, &inputs).map_err(invalid)?;
        let taken = bounded.ceilings.iter().flat_map(|ceiling| &ceiling.taken);
        let mut by_flags: Vec<String> = taken
            .filter(|taken| taken.source == Source::TaskBounds && taken.held != taken.wanted)
            .map(|taken| taken.key.clone())
            .collect();
        by_flags.sort();
        by_flags.dedup();
        Ok(TaskBounds { texts: bounded.bounds_with_flags()?, by_flags })
    }

    /// Loads this configuration without the flags that don't apply to a task. Returns `None` if all
    /// flags apply to a task. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if the configuration isn't valid without the flags.
    pub fn without_flags(&self) -> Result<Option<Self>, HostError> {
        let Some((folders, inputs)) = &self.read_from else { return Ok(None) };
        if self.flags().is_empty() {
            return Ok(None);
        }
        let settings =
            inputs.settings.iter().filter(|setting| applies_to_tasks(setting)).cloned().collect();
        let without_flags = Inputs { settings, allow: Vec::new(), ..inputs.clone() };
        load(folders, &without_flags).map(Some).map_err(invalid)
    }

    /// Returns the flags that don't apply to a task, for display: `--allow-read /data`, `--set
    /// tools.call`. Values are omitted, since a value may be a secret.
    pub fn flags(&self) -> Vec<String> {
        let Some((_, inputs)) = &self.read_from else { return Vec::new() };
        let mut flags = Vec::new();
        for (path, access) in &inputs.allow {
            let flag = if *access == PathAccess::Read { "--allow-read" } else { "--allow" };
            flags.push(format!("{flag} {}", path.display()));
        }
        for setting in inputs.settings.iter().filter(|setting| !applies_to_tasks(setting)) {
            let key = setting.split_once('=').map_or("", |(key, _)| key.trim());
            flags.push(format!("--set {key}"));
        }
        flags.iter().map(|flag| neutral_line(cut(flag, MAX_FLAG))).collect()
    }
}

/// Checks whether a setting of the command line applies to tasks, too.
fn applies_to_tasks(setting: &str) -> bool {
    setting.split_once('=').is_some_and(|(key, _)| key.trim() == ENABLED)
}

fn invalid(problems: Problems) -> HostError {
    HostError::Config(format!(
        "a task runs without the flags of this command; without the flags, the configuration isn't \
         valid: {problems}"
    ))
}
