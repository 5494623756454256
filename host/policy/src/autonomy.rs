//! What an agent may do without a person if no rule decides.

use std::borrow::Cow;

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;
use crate::permissions::Permissions;

/// How much an agent may do on its own. Earlier variants allow less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Autonomy {
    /// Calls that act are denied, even if a permission allows them.
    ReadOnly,
    /// Calls that act need approval, unless a permission allows them.
    #[default]
    Supervised,
    /// Calls that act are allowed. Calls for which a rule asks still need approval.
    Full,
}

impl Autonomy {
    /// The name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Supervised => "supervised",
            Self::Full => "full",
        }
    }

    const fn rule(self) -> &'static str {
        match self {
            Self::ReadOnly => "autonomy = \"read-only\"",
            Self::Supervised => "autonomy = \"supervised\"",
            Self::Full => "autonomy = \"full\"",
        }
    }
}

impl Placed<Autonomy> {
    /// Decides for this gate. `permissions` gives the remedy. `permitted`: whether a permission of
    /// the tool has decided.
    pub(crate) fn decide(
        &self,
        action: &Action<'_>,
        permissions: &Permissions,
        permitted: bool,
    ) -> Option<Decision> {
        let (autonomy, place) = (self.value, &self.place);
        let decision = |verdict, rule: &'static str, remedy: Cow<'static, str>| {
            Some(Decision {
                verdict,
                gate: Gate::Autonomy,
                rule: rule.into(),
                place: place.text.clone(),
                remedy,
            })
        };
        if autonomy == Autonomy::ReadOnly && action.acts() {
            let remedy = place.remedy(|| {
                "To be asked instead, set `autonomy = \"supervised\"` in [tools].".to_owned()
            });
            return decision(Verdict::Deny, autonomy.rule(), remedy);
        }
        if permitted {
            return None;
        }
        if !action.acts() {
            // Only static texts, without an allocation: most calls end here.
            return Some(Decision {
                verdict: Verdict::Allow,
                gate: Gate::Autonomy,
                rule: Cow::Borrowed("calls that only read are allowed"),
                place: Cow::Borrowed("built in"),
                remedy: Cow::Borrowed(
                    "To be asked, give its tool a permission with `action = \"ask\"`.",
                ),
            });
        }
        match autonomy {
            Autonomy::Full => decision(
                Verdict::Allow,
                autonomy.rule(),
                "To be asked, set `autonomy = \"supervised\"` in [tools].".into(),
            ),
            _ => decision(Verdict::Ask, autonomy.rule(), permissions.to_allow(action).into()),
        }
    }
}
