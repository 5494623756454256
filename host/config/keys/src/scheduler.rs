//! `[tools.scheduler]`: whether tools can be called at a later time, and the limits of these tasks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

section! {
    /// Scheduled tasks.
    #[derive(Copy, Eq)]
    pub struct Scheduler {
        /// Whether scheduled tasks and the tools for them exist. `toolhold tasks daemon` runs the
        /// tasks, and so does `toolhold serve` while it runs.
        pub enabled: bool = false, Narrowing::OnlyFalse;
        /// The number of tasks that one principal may have. All principals together may have 1,000
        /// tasks.
        pub max_tasks: Bounded<1, 1000> = Bounded::clamped(100), Narrowing::Smaller;
        /// The shortest time between two runs of a task, in seconds.
        pub min_interval: Bounded<1, 86_400> = Bounded::clamped(60), Narrowing::Ignored;
        /// The number of tasks that run at the same time. Others wait.
        pub max_running: Bounded<1, 16> = Bounded::clamped(4), Narrowing::Ignored;
    }
}
