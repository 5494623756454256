//! Holds the network that the commands of a session share.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Holds the network that the commands of a session share. The first command that needs the network
/// creates it. Only the code that starts commands knows the type of the network.
#[derive(Default)]
pub struct SessionNetwork(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl SessionNetwork {
    /// Returns the network, or `None` if it hasn't been created.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let network = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        network.downcast().ok()
    }

    /// Returns the network. If it is missing, `make` creates it, and other callers wait.
    ///
    /// # Errors
    ///
    /// Returns the error of `make`.
    pub fn get_or_make<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The type changes if a first command finds that this machine has no namespaces.
        if let Some(any) = stored.clone()
            && let Ok(network) = any.downcast()
        {
            return Ok(network);
        }
        let network = Arc::new(make()?);
        *stored = Some(Arc::clone(&network) as _);
        Ok(network)
    }
}

impl fmt::Debug for SessionNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionNetwork")
    }
}
