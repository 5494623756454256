//! For the unit tests of tools, which run natively and need no host.

use serde_json::Value;

use crate::plugin::{Invocation, Offered};
use crate::{Content, Failure, Output, Tool};

/// Calls `T` as the host would: the arguments are decoded from JSON. Paths in them have to be absolute, as the host makes them.
///
/// # Errors
///
/// What a caller would get: the arguments' fault, or the tool's failure.
pub fn call<T: Tool>(arguments: Value) -> Result<Output, Failure> {
    call_with::<T>(arguments, Vec::new())
}

/// The same with attachments.
///
/// # Errors
///
/// As [`call`].
pub fn call_with<T: Tool>(arguments: Value, attachments: Vec<Content>) -> Result<Output, Failure> {
    let invocation = Invocation { tool: T::NAME.to_owned(), arguments: arguments.to_string(), attachments };
    (Offered::new::<T>().call)(invocation)
}
