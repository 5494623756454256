//! What becomes of a tool's output before its answer leaves: it is cleaned, redacted, filtered, fenced and cut; the whole of a long one is
//! kept for `read_overflow`; and one that is provably still true may serve again.

mod answer;
mod answer_cache;
mod blocking;
mod filters;
mod overflow;
mod results;
mod shape;

pub use answer::{Answer, Approval, Filtered, Remainder, Scope, Step};
pub use answer_cache::{Answers, AnswersKept, Key};
pub use filters::{FilterCounts, Filtering};
pub use overflow::{Overflow, Reader};
pub use results::{CacheResult, Results};
pub use shape::{ShapeReport, Shaping, structured_schema};
