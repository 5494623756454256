//! Pins the packages that `npx` and `uvx` would fetch. The packages are resolved once and pinned by
//! the digests of their archives. The server can't write to their folder.

mod fetched;
mod line;
mod lock;

pub use fetched::forget;
pub(crate) use fetched::{PackageError, fetch, resolve};
pub(crate) use line::RunnerLine;
pub(crate) use lock::packages;
