//! Shapes a tool's output before the answer leaves the host: the output is cleaned, redacted,
//! filtered, fenced and cut. The complete text of a long answer is stored for `read_overflow`.
//! Answers of cacheable tools are reused until a file that they depend on changes.

mod answer;
mod answer_cache;
mod blocking;
mod filters;
mod overflow;
mod results;
mod shape;
mod terminal;

pub use answer::{Answer, Approval, FilterSummary, Remainder, Scope, Step};
pub use answer_cache::{AnswerCache, CacheKey, CacheSummary};
pub use filters::{FilterCounts, FilterPipeline};
pub use overflow::{LiveOutput, OverflowReader, OverflowStore, Spool};
pub use results::{CacheResult, Results};
pub use shape::{ShapeReport, Shaper, fenced, holds_secret, structured_schema, without_fence_keys};
