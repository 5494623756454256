//! From what the operator wrote to what the gates decide by.

use berth_policy::{Placed, Policy};

use super::{Autonomy, Loaded};

impl Loaded {
    /// What calls are decided by.
    pub(crate) fn policy(&self) -> Policy {
        let autonomy = match self.config.tools.autonomy {
            Autonomy::ReadOnly => berth_policy::Autonomy::ReadOnly,
            Autonomy::Supervised => berth_policy::Autonomy::Supervised,
            Autonomy::Full => berth_policy::Autonomy::Full,
        };
        Policy { autonomy: Placed { value: autonomy, place: self.place("tools.autonomy").into() } }
    }
}
