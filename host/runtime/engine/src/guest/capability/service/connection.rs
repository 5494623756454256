//! A connection to a service, as a resource of an instance.

use toolhold_contract::{BoundedOutput, ServicePlace};
use toolhold_system::process;

/// Most bytes of an output that a function returns.
pub(super) const MAX_OUTPUT: usize = 1 << 20;

/// A guest's connection to a service. Dropping the connection ends the program, unless the service
/// was kept for later calls.
#[expect(unreachable_pub, reason = "the bindings name it in a public place")]
pub struct Connection {
    /// `None` after the service was kept. `place` is then `None` too.
    pub(super) child: Option<process::Child>,
    pub(super) place: Option<Box<dyn ServicePlace>>,
    pub(super) is_new: bool,
    pub(super) errors: BoundedOutput,
}

impl Connection {
    /// Takes the standard error, so that a later wait doesn't return at once because of it.
    pub(super) fn take_errors(&mut self) {
        if let Some(child) = &mut self.child {
            let bytes = child.output().stderr.take();
            self.errors.push(&bytes, MAX_OUTPUT);
        }
    }
}
