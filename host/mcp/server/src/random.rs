//! Creates random names.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns a random name of 64 hexadecimal digits.
pub(crate) fn name() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
