//! The packages that `npx` and `uvx` would fetch. The packages are resolved once and pinned by the
//! digest of each archive. They are fetched into a separate folder of the server, and the server
//! can't write to this folder.

mod fetched;
mod line;
mod lock;

pub use fetched::forget;
pub(crate) use fetched::{PackageError, fetch, resolve};
pub(crate) use line::Line;
pub(crate) use lock::packages;
