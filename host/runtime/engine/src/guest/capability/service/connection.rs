//! A guest's connection to a service, as a resource of its instance.

use toolhold_contract::{BoundedOutput, ServicePlace};
use toolhold_system::process;

/// Most bytes that one function returns of each output.
pub(super) const MAX_OUTPUT: usize = 1 << 20;

/// A connection of a guest. If it is dropped, its program ends, unless it was kept.
#[expect(unreachable_pub, reason = "the bindings name it in a public place")]
pub struct Connection {
    /// Both are `None` once the service was kept.
    pub(super) child: Option<process::Child>,
    pub(super) place: Option<Box<dyn ServicePlace>>,
    pub(super) is_new: bool,
    pub(super) errors: BoundedOutput,
}

impl Connection {
    /// Takes the standard error, so that only standard output is waited for.
    pub(super) fn take_errors(&mut self) {
        if let Some(child) = &mut self.child {
            let bytes = child.output().stderr.take();
            self.errors.push(&bytes, MAX_OUTPUT);
        }
    }
}
