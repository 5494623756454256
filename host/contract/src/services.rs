//! The interface that keeps programs of plugins that outlive a call, by session.

use std::any::Any;
use std::fmt;

/// Stores the programs that keep running after a call, for its session. Other sessions can't use
/// them.
pub trait ServiceKeeper: fmt::Debug + Send + Sync + 'static {
    /// Reserves a service for one connection. A running program with other grants is ended.
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
    #[error("another call is connected to the service `{0}`; try again when it has ended")]
    Taken(String),
    /// The plugin has reached its limit of services in the session.
    #[error(
        "the plugin has {own} services in this session; its limit is {limit} (`services` in its table)"
    )]
    Plugin {
        /// Services of the plugin.
        own: usize,
        /// The limit.
        limit: usize,
    },
    /// All sessions together have reached the limit of services.
    #[error("all sessions together have {0} services, which is the limit")]
    Host(usize),
    /// The host ends.
    #[error("the host ends")]
    Ended,
}

/// A service that is reserved for a connection. If the place is dropped before
/// [`keep`](Self::keep), the service's name is free again.
pub trait ServicePlace: fmt::Debug + Send + Sync + 'static {
    /// Takes the running program. Returns `None` if the program must be started first.
    fn program(&mut self) -> Option<ServiceProgram>;

    /// Keeps the program for the next connection, unless the session has ended meanwhile.
    fn keep(self: Box<Self>, program: ServiceProgram);
}

/// A running program, whose type only its provider knows. Dropping it ends the program.
pub type ServiceProgram = Box<dyn Any + Send + Sync>;

/// Names a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceKey {
    /// The plugin to which the service belongs.
    pub plugin: String,
    /// The name of the service.
    pub name: String,
    /// The rights that the program was started with. A connection with other rights gets another
    /// program.
    pub rights: String,
    /// Maximum number of services that the plugin may have in one session.
    pub most: usize,
}
