//! The one place that starts processes: Toolhold's own helpers, which are the program itself with
//! one task, and the programs of calls, which such a helper confines first.

mod call_rules;
mod changes;
mod child;
mod helper;
mod network;
mod places;
mod sockets;
mod state;
mod warm;

pub use child::{Child, Command, CommandResult, Ending, Output, StartError};
pub use helper::{HelperBounds, HelperError, INPUT_AT_FAULT, run_helper};
pub use network::{LoopbackSide, SharedNetwork};
pub use places::{Places, PlacesError, RememberedPlaces};
