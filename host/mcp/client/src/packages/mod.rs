//! The packages that `npx` and `uvx` would fetch: resolved once, pinned with the digest of each
//! archive, and fetched into a folder of the server's own that it can't write.

mod fetched;
mod line;
mod lock;

pub use fetched::forget;
pub(crate) use fetched::{PackageError, fetch, resolve};
pub(crate) use line::Line;
pub(crate) use lock::packages;
