//! Chooses the steps of a rule by how the command ended.

use crate::strategy::Step;

/// The steps of a rule, by how the command ended.
#[derive(Default)]
pub struct Branches {
    /// Where no other branch fits. Without steps, the output stays as it is.
    pub otherwise: Vec<Step>,
    /// For a command that succeeded.
    pub success: Option<Vec<Step>>,
    /// For a command that failed, or that may have.
    pub failure: Option<Vec<Step>>,
    /// For exit codes. They go before success and failure.
    pub by_code: Vec<(Vec<i32>, Vec<Step>)>,
}

impl Branches {
    /// The steps for an output. `code` is `None` if the exit code isn't that of the rule's command.
    pub fn steps(&self, failed: bool, code: Option<i32>) -> &[Step] {
        let by_code = code.and_then(|code| {
            let mut branches = self.by_code.iter();
            branches.find(|(codes, _)| codes.contains(&code)).map(|(_, steps)| steps)
        });
        let outcome = if failed { &self.failure } else { &self.success };
        by_code.or(outcome.as_ref()).unwrap_or(&self.otherwise)
    }
}

impl From<Vec<Step>> for Branches {
    fn from(steps: Vec<Step>) -> Self {
        Self { otherwise: steps, ..Self::default() }
    }
}
