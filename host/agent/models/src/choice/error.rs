//! Why no model can be asked, as the person is told.

use toolhold_core::HostError;

/// Why no model can be asked.
#[derive(Debug, thiserror::Error)]
pub enum ChoiceError {
    /// No provider of models is configured.
    #[error("no provider of models is configured")]
    NoProvider,
    /// The configuration is wrong, or a key can't be read.
    #[error(transparent)]
    Host(#[from] HostError),
}
