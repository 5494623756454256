//! The autonomy gate: whether a call needs approval if no rule decides.

use std::borrow::Cow;
use std::path::Path;

use toolhold_contract::{Access, BuiltInGrant, BuiltInPlugin, SubjectKind};

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;
use crate::permissions::Permissions;
use crate::planted::runs_later;
use crate::rules::{DELEGATE, DIAGNOSTICS, JOB_STOP, SEARCH_CODE};

/// The reason why a tool that chooses commands needs no approval itself.
const CHOOSES_COMMANDS: &str = "each command that the tool chooses is checked as a call of `bash`";

/// How much an agent may do on its own. Earlier variants allow less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Autonomy {
    /// Calls that act are denied, even if a permission allows them.
    ReadOnly,
    /// Calls that act need approval, unless a permission allows them.
    Ask,
    /// Calls that act only inside the sandbox, and that can be undone, are allowed. Other calls
    /// that act need approval, unless a permission allows them.
    #[default]
    Sandboxed,
    /// Calls that act are allowed. Calls for which a rule asks still need approval.
    Full,
}

impl Autonomy {
    /// Returns the name in configuration, JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Ask => "ask",
            Self::Sandboxed => "sandboxed",
            Self::Full => "full",
        }
    }

    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::ReadOnly => "autonomy = \"read-only\"",
            Self::Ask => "autonomy = \"ask\"",
            Self::Sandboxed => "autonomy = \"sandboxed\"",
            Self::Full => "autonomy = \"full\"",
        }
    }
}

/// The settings because of which calls aren't contained. A contained call can act only on granted
/// resources, and its changes in files can be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Containment {
    /// The setting for commands. `None` if commands are contained.
    pub commands: Option<&'static str>,
    /// The setting for file tools. `None` if file tools are contained.
    pub files: Option<&'static str>,
}

impl Containment {
    /// Checks whether a call is contained.
    ///
    /// # Errors
    ///
    /// Returns the setting because of which the call isn't contained. Returns `None` if no setting
    /// can change this: the call reaches the network, writes a file that runs later outside of the
    /// sandbox, or belongs to a third-party plugin.
    fn check(&self, action: &Action<'_>) -> Result<(), Option<&'static str>> {
        if action.built_in && BuiltInPlugin::has(action.provider, BuiltInGrant::Memory) {
            // The memory is only in Toolhold's own file, and `toolhold memory` shows and deletes
            // it.
            return Ok(());
        }
        if !action.built_in || action.subjects.is_empty() {
            return Err(None);
        }

        let mut kinds = action.subjects.iter().map(|subject| subject.kind);
        let has_command = kinds.clone().any(|kind| kind == SubjectKind::Command);
        if !has_command {
            let are_files = kinds.all(|kind| matches!(kind, SubjectKind::Path | SubjectKind::Name));
            if !are_files || action.annotations.open_world {
                return Err(None);
            }
            let writes_what_runs_later = action.subjects.iter().any(|subject| {
                subject.access == Access::Write && runs_later(Path::new(&subject.text))
            });
            if writes_what_runs_later {
                return Err(None);
            }
        }

        let setting = if has_command { self.commands } else { self.files };
        match setting {
            Some(_) => Err(setting),
            None => Ok(()),
        }
    }
}

impl Placed<Autonomy> {
    /// Returns the level for a call. `sandboxed` means `ask` for a call that isn't contained.
    pub(crate) fn level(&self, action: &Action<'_>, containment: &Containment) -> Autonomy {
        match self.value {
            Autonomy::Sandboxed if containment.check(action).is_err() => Autonomy::Ask,
            value => value,
        }
    }

    /// Returns the remedy for a call that acts and is allowed.
    pub(crate) fn to_be_asked(&self) -> Cow<'static, str> {
        self.place.remedy_to_set("To be asked", "tools", "autonomy = \"ask\"")
    }

    /// Decides for this gate. `permissions` gives the remedy. `permitted` says whether a permission
    /// of the tool has decided.
    pub(crate) fn decide(
        &self,
        action: &Action<'_>,
        containment: &Containment,
        permissions: &Permissions,
        permitted: bool,
    ) -> Option<Decision> {
        let autonomy = self.value;
        let unasked_rule = match action.tool {
            JOB_STOP => Some("a session may stop its own jobs"),
            DIAGNOSTICS => Some(CHOOSES_COMMANDS),
            SEARCH_CODE if action.acts() => Some(CHOOSES_COMMANDS),
            DELEGATE => Some("each call of the sub-agent is checked on its own"),
            _ => None,
        };
        if let Some(rule) = unasked_rule
            && action.built_in
        {
            return if permitted { None } else { Some(allow_by_default(rule)) };
        }
        if autonomy == Autonomy::ReadOnly && action.acts() {
            let remedy =
                self.place.remedy_to_set("To be asked instead", "tools", "autonomy = \"ask\"");
            return Some(self.decision(Verdict::Deny, autonomy.rule().into(), remedy));
        }
        if permitted {
            return None;
        }
        if !action.acts() {
            return Some(allow_by_default("calls that only read are allowed"));
        }
        // This text isn't shown for a call that is made. `Policy::explain` names the file.
        let to_be_asked = "To be asked, set `autonomy = \"ask\"` in [tools].";
        let rule = match (autonomy, containment.check(action)) {
            (Autonomy::Full, _) | (Autonomy::Sandboxed, Ok(())) => {
                let rule = autonomy.rule().into();
                return Some(self.decision(Verdict::Allow, rule, to_be_asked.into()));
            }
            (Autonomy::Sandboxed, Err(Some(reason))) => {
                format!("{}, which asks because of `{reason}`", autonomy.rule()).into()
            }
            _ => autonomy.rule().into(),
        };
        Some(self.decision(Verdict::Ask, rule, permissions.to_allow(action).into()))
    }

    fn decision(
        &self,
        verdict: Verdict,
        rule: Cow<'static, str>,
        remedy: Cow<'static, str>,
    ) -> Decision {
        Decision { verdict, gate: Gate::Autonomy, rule, place: self.place.text.clone(), remedy }
    }
}

/// Allows a call by a rule that is built in. All texts are static, without an allocation, since
/// most calls end here.
fn allow_by_default(rule: &'static str) -> Decision {
    Decision {
        verdict: Verdict::Allow,
        gate: Gate::Autonomy,
        rule: Cow::Borrowed(rule),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Borrowed("To be asked, give its tool a permission with `action = \"ask\"`."),
    }
}
