//! The place of the network that the commands of a session share.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Holder for the network that the commands of a session share. It is empty until a command needs
/// the network. Only the code that starts commands knows the network's type.
#[derive(Default)]
pub struct SessionNetwork(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl SessionNetwork {
    /// Returns the network, or `None` if it hasn't been created.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let network = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        network.downcast().ok()
    }

    /// Returns the network. If it is missing, `make` creates it. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the error of `make`.
    pub fn get_or_make<T: Any + Send + Sync, E>(
        &self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Ok(network)) = place.clone().map(Arc::downcast) {
            return Ok(network);
        }
        let network = Arc::new(make()?);
        *place = Some(Arc::clone(&network) as _);
        Ok(network)
    }
}

impl fmt::Debug for SessionNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionNetwork")
    }
}
