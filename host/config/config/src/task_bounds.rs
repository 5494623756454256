//! The bounds of a scheduled task: the values of its maker's configuration without the flags of one
//! command.

use toolhold_contract::HostError;
use toolhold_contract::text::{cut, neutral_line};

use super::{Config, Inputs, PathAccess, Problems, Source, load};

/// The setting that enables tasks. It doesn't bound a task: a task that was made where a flag
/// enables tasks runs where a flag does.
const ENABLED: &str = "tools.scheduler.enabled";

/// Bytes of a flag that are shown.
const MAX_FLAG: usize = 300;

/// The bounds of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskBounds {
    /// For [`Inputs::bounds`](super::Inputs::bounds).
    pub texts: Vec<String>,
    /// The dotted keys that allow more because of flags. The task goes without.
    pub by_flags: Vec<String>,
}

impl Config {
    /// The limits of this configuration without its flags, for
    /// [`Inputs::bounds`](super::Inputs::bounds) of a later one. The later one then allows no more,
    /// whatever has been added to it meanwhile. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if it is too long, or isn't valid without the flags.
    pub fn task_bounds(&self) -> Result<TaskBounds, HostError> {
        let (Some((folders, inputs)), Some(without)) = (&self.read_from, self.without_flags()?)
        else {
            return Ok(TaskBounds { texts: self.bounds_with_flags()?, by_flags: Vec::new() });
        };
        let without = without.bounds_with_flags()?;
        // What flags take away stays away, so that both bound the task.
        let both = Inputs { bounds: without, ..inputs.clone() };
        let both = load(folders, &both).map_err(invalid)?;
        let taken = both.ceilings.iter().flat_map(|ceiling| &ceiling.taken);
        let mut by_flags: Vec<String> = taken
            .filter(|taken| taken.source == Source::TaskBounds && taken.held != taken.wanted)
            .map(|taken| taken.key.clone())
            .collect();
        by_flags.sort();
        by_flags.dedup();
        Ok(TaskBounds { texts: both.bounds_with_flags()?, by_flags })
    }

    /// This configuration without the flags that a task goes without. `None`: there are none.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if it isn't valid without them.
    pub fn without_flags(&self) -> Result<Option<Self>, HostError> {
        let Some((folders, inputs)) = &self.read_from else { return Ok(None) };
        if self.flags().is_empty() {
            return Ok(None);
        }
        let settings = inputs.settings.iter().filter(|setting| is_lasting(setting));
        let without =
            Inputs { settings: settings.cloned().collect(), allow: Vec::new(), ..inputs.clone() };
        load(folders, &without).map(Some).map_err(invalid)
    }

    /// The flags that a task goes without, for people: `--allow-read /data`, `--set tools.call`.
    /// Values are left out, since one may be a secret.
    pub fn flags(&self) -> Vec<String> {
        let Some((_, inputs)) = &self.read_from else { return Vec::new() };
        let allowed = inputs.allow.iter().map(|(path, access)| {
            let flag = if *access == PathAccess::Read { "--allow-read" } else { "--allow" };
            format!("{flag} {}", path.display())
        });
        let passing = inputs.settings.iter().filter(|setting| !is_lasting(setting));
        let settings = passing.map(|setting| {
            let key = setting.split_once('=').map_or("", |(key, _)| key.trim());
            format!("--set {key}")
        });
        allowed.chain(settings).map(|flag| neutral_line(cut(&flag, MAX_FLAG))).collect()
    }
}

/// Whether a setting of the command line applies to tasks too.
fn is_lasting(setting: &str) -> bool {
    setting.split_once('=').is_some_and(|(key, _)| key.trim() == ENABLED)
}

fn invalid(problems: Problems) -> HostError {
    HostError::Config(format!(
        "a task runs without the flags of this command; without the flags, the configuration isn't \
         valid: {problems}"
    ))
}
