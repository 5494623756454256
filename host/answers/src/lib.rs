//! What becomes of a tool's output before its answer leaves: it is cleaned, redacted, filtered,
//! fenced and cut; the whole of a long one is kept for `read_overflow`; and one that is provably
//! still true may serve again.

mod answer;
mod answer_cache;
mod blocking;
mod filters;
mod overflow;
mod results;
mod shape;

pub use answer::{Answer, Approval, FilterSummary, Remainder, Scope, Step};
pub use answer_cache::{AnswerCache, CacheKey, CacheSummary};
pub use filters::{FilterCounts, FilterPipeline};
pub use overflow::{OverflowReader, OverflowStore};
pub use results::{CacheResult, Results};
pub use shape::{ShapeReport, Shaper, structured_schema};
