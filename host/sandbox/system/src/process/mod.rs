//! Starts processes. No other code does this. The processes are Toolhold's own helpers, which are
//! the program itself with a single task, and the programs of calls, which a helper confines first.

mod call_rules;
mod changes;
mod child;
mod command;
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
pub use network::{LoopbackSide, SharedNetwork};
pub use places::{Places, RememberedPlaces};
