//! A guest's connection to a service, as a resource of its instance.

use toolhold_contract::{BoundedOutput, ServicePlace};
use toolhold_system::process;

/// Most bytes of each output that one function returns.
pub(super) const MAX_OUTPUT: usize = 1 << 20;

/// A guest's connection to a service. Dropping the connection ends the program, unless the service
/// was kept for later calls.
#[expect(unreachable_pub, reason = "the bindings name it in a public place")]
pub struct Connection {
    /// The running program. Both fields are `None` after the service was handed to the keeper.
    pub(super) child: Option<process::Child>,
    pub(super) place: Option<Box<dyn ServicePlace>>,
    pub(super) is_new: bool,
    pub(super) errors: BoundedOutput,
}

impl Connection {
    /// Takes the standard error, so that later waits are only for standard output.
    pub(super) fn take_errors(&mut self) {
        if let Some(child) = &mut self.child {
            let bytes = child.output().stderr.take();
            self.errors.push(&bytes, MAX_OUTPUT);
        }
    }
}
