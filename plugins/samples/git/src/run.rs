//! Runs git, where the repository names no program that git would start.

use toolhold_sdk::Failure;

use crate::command::{Git, failure};
use crate::programs::refuse_programs;

/// The output of git.
pub struct Printed {
    pub text: String,
    /// Whether the end of the text is missing.
    pub cut: bool,
    /// Its standard error. Git can succeed and still leave something undone.
    pub warnings: String,
}

impl Git {
    /// Runs it.
    ///
    /// # Errors
    ///
    /// If git fails, or if the repository names programs that git would start.
    pub fn run(self) -> Result<Printed, Failure> {
        refuse_programs(self.directory.as_deref(), self.locks)?;
        let finished = self.start()?;
        if !finished.success() {
            return Err(failure(&finished));
        }
        let output = finished.output;
        Ok(Printed {
            text: String::from_utf8_lossy(&output.stdout).into_owned(),
            cut: output.stdout_truncated,
            warnings: String::from_utf8_lossy(&output.stderr).chars().take(2000).collect(),
        })
    }
}
