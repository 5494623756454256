//! The autonomy gate: decides on a call if no permission decides.

use std::borrow::Cow;
use std::path::Path;

use toolhold_contract::{Access, BuiltInGrant, BuiltInPlugin, SubjectKind};

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::origin::Placed;
use crate::permissions::Permissions;
use crate::planted::runs_later;
use crate::rules::{DELEGATE, DIAGNOSTICS, JOB_STOP, SEARCH_CODE};

const CHOOSES_COMMANDS: &str = "each command that the tool chooses is checked like a call of \
                                `bash`";

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

    /// Returns the line of the configuration that sets this level.
    pub(crate) const fn rule(self) -> &'static str {
        match self {
            Self::ReadOnly => "autonomy = \"read-only\"",
            Self::Ask => "autonomy = \"ask\"",
            Self::Sandboxed => "autonomy = \"sandboxed\"",
            Self::Full => "autonomy = \"full\"",
        }
    }
}

/// The settings that stop calls from being contained. A contained call acts only on granted
/// resources, and its changes to files can be undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Containment {
    /// The setting that stops commands from being contained. `None` if commands are contained.
    pub commands: Option<&'static str>,
    /// The setting that stops file tools from being contained. `None` if file tools are contained.
    pub files: Option<&'static str>,
}

impl Containment {
    /// Checks whether a call is contained.
    ///
    /// The error is the setting that stops the containment. The error is `None` for a call that no
    /// setting can contain: a call of a third-party plugin, a call without subjects, a call that
    /// reaches the network, or a call that writes a file that runs later outside of the sandbox.
    fn check(&self, action: &Action<'_>) -> Result<(), Option<&'static str>> {
        if action.built_in && BuiltInPlugin::has(action.provider, BuiltInGrant::Memory) {
            // The memory is stored only in Toolhold's own file, and `toolhold memory` shows and
            // deletes it. So these calls are contained.
            return Ok(());
        }
        // No setting can contain a call of a third-party plugin, or a call that doesn't say what it
        // acts on.
        if !action.built_in || action.subjects.is_empty() {
            return Err(None);
        }

        let has_command =
            action.subjects.iter().any(|subject| subject.kind == SubjectKind::Command);
        if !has_command {
            let acts_only_on_files = action
                .subjects
                .iter()
                .all(|subject| matches!(subject.kind, SubjectKind::Path | SubjectKind::Name));
            let reaches_network = action.annotations.open_world;
            if !acts_only_on_files || reaches_network {
                return Err(None);
            }
            let writes_what_runs_later = action.subjects.iter().any(|subject| {
                subject.access == Access::Write && runs_later(Path::new(&subject.text))
            });
            if writes_what_runs_later {
                return Err(None);
            }
        }

        let stopping_setting = if has_command { self.commands } else { self.files };
        match stopping_setting {
            Some(setting) => Err(Some(setting)),
            None => Ok(()),
        }
    }
}

impl Placed<Autonomy> {
    /// Returns the level for a call. `sandboxed` becomes `ask` for a call that isn't contained.
    pub(crate) fn level(&self, action: &Action<'_>, containment: &Containment) -> Autonomy {
        match self.value {
            Autonomy::Sandboxed if containment.check(action).is_err() => Autonomy::Ask,
            value => value,
        }
    }

    pub(crate) fn to_be_asked(&self) -> Cow<'static, str> {
        self.place.remedy_to_set("To be asked for approval", "tools", "autonomy = \"ask\"")
    }

    /// Returns the decision of this gate. `permitted` means that a permission of the tool already
    /// decides. `permissions` gives the remedy.
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
            DELEGATE => Some("each call of the sub-agent is checked separately"),
            _ => None,
        };
        if let Some(rule) = unasked_rule
            && action.built_in
        {
            return if permitted { None } else { Some(allow_by_default(rule)) };
        }
        if autonomy == Autonomy::ReadOnly && action.acts() {
            let remedy = self.place.remedy_to_set(
                "To be asked for approval instead",
                "tools",
                "autonomy = \"ask\"",
            );
            return Some(self.decision(Verdict::Deny, autonomy.rule().into(), remedy));
        }
        if permitted {
            return None;
        }
        if !action.acts() {
            return Some(allow_by_default("calls that only read are allowed"));
        }
        // `Policy::explain`, the only caller that shows this remedy, replaces it.
        let to_be_asked = "To be asked for approval, set `autonomy = \"ask\"` in [tools].";
        let rule = match (autonomy, containment.check(action)) {
            (Autonomy::Full, _) | (Autonomy::Sandboxed, Ok(())) => {
                let rule = autonomy.rule().into();
                return Some(self.decision(Verdict::Allow, rule, to_be_asked.into()));
            }
            (Autonomy::Sandboxed, Err(Some(reason))) => {
                format!("{}, which needs approval because of `{reason}`", autonomy.rule()).into()
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

/// Allows a call by a built-in rule. Most calls end here, so the texts are static and need no
/// allocation.
fn allow_by_default(rule: &'static str) -> Decision {
    Decision {
        verdict: Verdict::Allow,
        gate: Gate::Autonomy,
        rule: Cow::Borrowed(rule),
        place: Cow::Borrowed("built in"),
        remedy: Cow::Borrowed(
            "To be asked for approval, give the tool a permission with `action = \"ask\"`.",
        ),
    }
}
