//! The interface that keeps programs of plugins running after a call.

use std::any::Any;
use std::fmt;

/// Keeps programs running after a call. Only calls of the same session can use them.
pub trait ServiceKeeper: fmt::Debug + Send + Sync + 'static {
    /// Reserves a service for one connection. A running program with other grants is ended first.
    ///
    /// # Errors
    ///
    /// Returns an error if another connection uses the service, or if a limit is reached.
    fn take(&self, service: &ServiceKey) -> Result<Box<dyn ServicePlace>, ServicePlaceError>;

    /// Ends a service. Returns `false` if no service of this name runs.
    fn stop(&self, plugin: &str, name: &str) -> bool;
}

/// The reason why a service can't be reserved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServicePlaceError {
    /// Another connection has the service of this name.
    #[error("another call is connected to the service `{0}`; try again when that call has ended")]
    Taken(String),
    /// The plugin has reached its limit of services in the session.
    #[error(
        "the plugin has {own} services in this session; the limit is {limit} (`services` in the \
         plugin's table)"
    )]
    Plugin {
        /// Services of the plugin.
        own: usize,
        /// The limit.
        limit: usize,
    },
    /// All sessions together have reached the limit of services.
    #[error("all sessions together have {0} services, the limit")]
    Host(usize),
    /// The host is shutting down.
    #[error("the host is shutting down")]
    Ended,
}

/// A service that is reserved for one connection. Dropping it without [`keep`](Self::keep) frees
/// the name.
pub trait ServicePlace: fmt::Debug + Send + Sync + 'static {
    /// Takes the running program. `None` means that the program must be started first.
    fn program(&mut self) -> Option<ServiceProgram>;

    /// Keeps the program for the next connection. If the session has ended, the program ends.
    fn keep(self: Box<Self>, program: ServiceProgram);
}

/// A running program of a type that only its starter knows. Dropping it ends the program.
pub type ServiceProgram = Box<dyn Any + Send + Sync>;

/// Identifies a service in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceKey {
    /// The plugin to which the service belongs.
    pub plugin: String,
    /// The name of the service.
    pub name: String,
    /// The grants with which the program was started. Connections with other grants get another
    /// program.
    pub rights: String,
    /// Maximum number of services that the plugin may have in one session.
    pub most: usize,
}
