//! `[tools.undo]`: which changes of files are saved, and for how long.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Bounded;
use crate::narrowing::{Narrowing, section};

// A project's file can't disable undo: the user couldn't undo the changes that the project causes.
section! {
    /// The files that are saved before calls change them, for `toolhold undo`.
    #[derive(Copy, Eq)]
    pub struct Undo {
        /// Whether changes are saved.
        pub enabled: bool = true, Narrowing::OnlyTrue;
        /// MiB that are saved for one call. A file that would exceed this limit is changed without
        /// being saved, and the call can't be undone.
        pub call_mib: Bounded<1, 65_536> = Bounded::clamped(64), Narrowing::Ignored;
        /// MiB of the saved changes of all calls together. The oldest changes are removed first.
        pub max_mib: Bounded<1, 1_048_576> = Bounded::clamped(512), Narrowing::Ignored;
        /// Days that changes are saved.
        pub days: Bounded<1, 3650> = Bounded::clamped(7), Narrowing::Ignored;
    }
}
