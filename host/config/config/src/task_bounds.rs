//! The limits of a scheduled task: the configuration of the task's creator, without the flags that
//! applied to one command only.

use toolhold_contract::HostError;
use toolhold_contract::text::{cut, neutral_line};

use super::{Config, Inputs, PathAccess, Problems, Source, load};

/// The setting that enables tasks. It limits no task: a task that was created where a flag enables
/// tasks must run where a flag enables them.
const ENABLED: &str = "tools.scheduler.enabled";

/// Most bytes of a flag that are shown. A longer flag is cut.
const MAX_FLAG: usize = 300;

/// The limits of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskBounds {
    /// The limits, for [`Inputs::bounds`](super::Inputs::bounds).
    pub texts: Vec<String>,
    /// The dotted keys for which flags allow more. The task doesn't get the flags' values.
    pub by_flags: Vec<String>,
}

impl Config {
    /// Returns the limits of this configuration without its flags, for
    /// [`Inputs::bounds`](super::Inputs::bounds) of a later configuration. The later configuration
    /// then allows no more than this configuration. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the configuration is too long, or isn't valid without the
    /// flags.
    pub fn task_bounds(&self) -> Result<TaskBounds, HostError> {
        let (Some((folders, inputs)), Some(without_flags)) =
            (&self.read_from, self.without_flags()?)
        else {
            // All flags of this configuration apply to a task.
            return Ok(TaskBounds { texts: self.bounds_with_flags()?, by_flags: Vec::new() });
        };
        // A flag may also forbid something. The task is therefore limited by the values with flags
        // and by the values without flags.
        let bounds = without_flags.bounds_with_flags()?;
        let inputs = Inputs { bounds, ..inputs.clone() };
        let bounded = load(folders, &inputs).map_err(invalid)?;
        let mut by_flags = Vec::new();
        for taken in bounded.ceilings.iter().flat_map(|ceiling| &ceiling.taken) {
            let is_limited = taken.held != taken.wanted;
            if is_limited && taken.source == Source::TaskBounds {
                by_flags.push(taken.key.clone());
            }
        }
        by_flags.sort();
        by_flags.dedup();
        Ok(TaskBounds { texts: bounded.bounds_with_flags()?, by_flags })
    }

    /// Loads this configuration without the flags that don't apply to a task. Returns `None` if all
    /// flags apply to a task. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if the configuration isn't valid without the flags.
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

    /// Returns the flags that don't apply to a task, such as `--allow-read /data`. Values of
    /// settings are left out, because they may be secrets.
    pub fn flags(&self) -> Vec<String> {
        let Some((_, inputs)) = &self.read_from else { return Vec::new() };
        let mut flags = Vec::new();
        for (path, access) in &inputs.allow {
            let flag = if *access == PathAccess::Read { "--allow-read" } else { "--allow" };
            flags.push(format!("{flag} {}", path.display()));
        }
        for setting in inputs.settings.iter().filter(|setting| !applies_to_tasks(setting)) {
            // A setting without `=` was refused before.
            let key = setting.split_once('=').map_or("", |(key, _)| key.trim());
            flags.push(format!("--set {key}"));
        }
        flags.iter().map(|flag| neutral_line(cut(flag, MAX_FLAG))).collect()
    }
}

fn applies_to_tasks(setting: &str) -> bool {
    setting.split_once('=').is_some_and(|(key, _)| key.trim() == ENABLED)
}

fn invalid(problems: Problems) -> HostError {
    HostError::Config(format!(
        "a task runs without the flags of this command, and without these flags the configuration \
         isn't valid: {problems}"
    ))
}
