//! Berth's own agent: the loop, its sessions, and what models write.

pub mod plausible;
#[cfg(test)]
mod testing;
pub mod text_calls;
pub mod think;
pub mod tokens;
