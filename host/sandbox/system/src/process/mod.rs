//! Starts all processes: Toolhold's own helpers, which are the Toolhold program with a single task,
//! and the programs of calls, which a helper confines first. No other code starts processes.

mod call_rules;
mod changes;
mod child;
mod command;
mod connections;
mod denied_paths;
mod helper;
mod limits;
mod network;
mod network_namespaces;
mod places;
mod sandbox;
mod sockets;
mod state;
mod warm;

pub use child::{Child, CommandResult, Ending, Output};
pub use command::{Command, StartError};
pub use helper::{HelperBounds, HelperError, INPUT_AT_FAULT, run_helper};
pub use limits::PlacesError;
pub use network::{LoopbackSide, NetworkSockets, SharedNetwork};
pub use places::{Places, Relayed, RememberedPlaces};
