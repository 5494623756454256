//! The results of an attack that tries several ways.

use hostile_support::Loot;

/// The results of several attempts: everything that they got, or how all were refused.
#[derive(Default)]
pub(crate) struct Attempts {
    got: Vec<String>,
    refused: Vec<String>,
}

impl Attempts {
    /// Adds the result of one attempt.
    pub(crate) fn note<T: ToString, E: std::fmt::Debug>(
        &mut self,
        what: &str,
        result: Result<T, E>,
    ) {
        match result {
            Ok(loot) => self.got.push(format!("{what}: {}", loot.to_string())),
            Err(error) => self.refused.push(format!("{what}: {error:?}")),
        }
    }

    pub(crate) fn loot(self) -> Loot {
        if self.got.is_empty() {
            Err(self.refused.join("\n").into())
        } else {
            Ok(self.got.join("\n").into())
        }
    }
}
