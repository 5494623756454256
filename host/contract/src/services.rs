//! The interface that keeps programs of plugins that outlive a call, by session.

use std::any::Any;
use std::fmt;

/// Keeps the programs that outlive a call, for its session. No other session reaches them.
pub trait ServiceKeeper: fmt::Debug + Send + Sync + 'static {
    /// Takes a service for one connection. A program that runs with other rights is ended.
    ///
    /// # Errors
    ///
    /// Another connection has the service, or a limit is reached.
    fn take(&self, service: &ServiceKey) -> Result<Box<dyn ServicePlace>, ServicePlaceError>;

    /// Ends a service. Returns `false` if no service of this name runs.
    fn stop(&self, plugin: &str, name: &str) -> bool;
}

/// A reason why there is no place for a service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServicePlaceError {
    /// Another connection has the service of this name.
    #[error("another call is connected to the service `{0}`; try again when it has ended")]
    Taken(String),
    /// The plugin has its most services in the session.
    #[error(
        "the plugin has {own} services in this session; its limit is {limit} (`services` in its table)"
    )]
    Plugin {
        /// Services of the plugin.
        own: usize,
        /// The limit.
        limit: usize,
    },
    /// All sessions together have their most services.
    #[error("all sessions together have {0} services, which is the limit")]
    Host(usize),
    /// The host ends.
    #[error("the host ends")]
    Ended,
}

/// A service during a connection. If it is dropped before [`keep`](Self::keep), its name is free.
pub trait ServicePlace: fmt::Debug + Send + Sync + 'static {
    /// Takes the running program. Returns `None` if the program has to be started.
    fn program(&mut self) -> Option<ServiceProgram>;

    /// Keeps the program for the next connection, unless the session has ended meanwhile.
    fn keep(self: Box<Self>, program: ServiceProgram);
}

/// A running program, which only the provider that started it knows. If it is dropped, it ends.
pub type ServiceProgram = Box<dyn Any + Send + Sync>;

/// Names a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceKey {
    /// The plugin that it belongs to.
    pub plugin: String,
    /// Its name.
    pub name: String,
    /// The rights that the program was started with. A connection with other rights gets another
    /// program.
    pub rights: String,
    /// Services that the plugin may have in one session.
    pub most: usize,
}
