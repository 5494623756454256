//! Short constructors of calls and policies for tests.

use serde_json::{Value, json};
use toolhold_contract::{Access, Annotations, SubjectKind};
use toolhold_policy::egress::{Grant, HostPattern, PrivateHosts, Reach};
use toolhold_policy::files::PathGlobs;
use toolhold_policy::rules::{Effect, Rule, RuleSet};
use toolhold_policy::{
    Action, Autonomy, Blocklist, DEFAULT_BLOCKED, Decision, OwnTable, Pattern, Permission, Phase,
    Placed, Policy, ResolvedSubject, TextGlob, Trust, Verdict,
};

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    pub tool: &'static str,
    pub provider: &'static str,
    pub aliases: Vec<String>,
    pub annotations: Annotations,
    pub says_destructive: bool,
    pub subjects: Vec<ResolvedSubject>,
    pub subjects_trusted: bool,
    pub arguments: Value,
    pub trust: Trust,
    pub doubtful: bool,
    pub phase: Option<Phase>,
}

impl Call {
    /// The call as the gates see it.
    pub fn action(&self) -> Action<'_> {
        Action {
            tool: self.tool,
            aliases: &self.aliases,
            provider: self.provider,
            built_in: !matches!(self.provider, "third-party" | "git" | "git-evil"),
            annotations: self.annotations,
            says_destructive: self.says_destructive,
            subjects: &self.subjects,
            subjects_trusted: self.subjects_trusted,
            arguments: &self.arguments,
            network: self.arguments["network"] == true,
            trust: self.trust,
            doubtful: self.doubtful,
            phase: self.phase,
            caller: None,
        }
    }
}

/// A call of a tool with these subjects.
pub fn call(tool: &'static str, read_only: bool, subjects: &[(SubjectKind, Access, &str)]) -> Call {
    let subjects = subjects.iter().map(|(kind, access, text)| ResolvedSubject {
        kind: *kind,
        access: *access,
        text: (*text).to_owned(),
    });
    Call {
        tool,
        provider: "some",
        aliases: Vec::new(),
        annotations: Annotations { read_only, open_world: false, ..Annotations::default() },
        says_destructive: false,
        subjects: subjects.collect(),
        subjects_trusted: true,
        arguments: json!({}),
        trust: Trust::Trusted,
        doubtful: false,
        phase: None,
    }
}

pub fn write(path: &str) -> Call {
    call("write", false, &[(SubjectKind::Path, Access::Write, path)])
}

pub fn read(path: &str) -> Call {
    call("read", true, &[(SubjectKind::Path, Access::Read, path)])
}

pub fn bash(command: &str) -> Call {
    call("bash", false, &[(SubjectKind::Command, Access::Write, command)])
}

pub fn moved(from: &str, to: &str) -> Call {
    call(
        "move_path",
        false,
        &[(SubjectKind::Name, Access::Write, from), (SubjectKind::Name, Access::Write, to)],
    )
}

pub fn decide(policy: &Policy, call: &Call, confirmed: bool) -> Decision {
    policy.decide(&call.action(), confirmed)
}

pub fn placed<T>(value: T) -> Placed<T> {
    Placed { value, place: "here".into() }
}

pub fn blocklist() -> Blocklist {
    Blocklist::new(DEFAULT_BLOCKED.iter().map(|entry| ((*entry).to_owned(), "the list".to_owned())))
}

/// A list of permissions of a tool.
pub fn list(rules: &[(&str, Verdict)]) -> Vec<Permission> {
    let permission = |(pattern, verdict): &(&str, Verdict)| Permission {
        pattern: Pattern::new(pattern, vec![(*pattern).to_owned()]).expect("a pattern"),
        verdict: *verdict,
        rule: format!("pattern = {pattern:?}"),
        place: "here".into(),
    };
    rules.iter().map(permission).collect()
}

/// A policy with lists of permissions for a tool, and the blocklist.
pub fn permitting(tool: &str, lists: &[&[(&str, Verdict)]]) -> Policy {
    let mut policy = autonomy(Autonomy::Ask);
    lists.iter().for_each(|rules| policy.permissions.add(tool, list(rules)));
    policy
}

/// A policy with only a level of autonomy, and the blocklist.
pub fn autonomy(level: Autonomy) -> Policy {
    Policy { autonomy: placed(level), blocklist: blocklist(), ..Policy::default() }
}

/// A rule for tools and paths.
pub fn rule(effect: Effect, tools: &[&str], paths: &[&str]) -> Rule {
    let globs = paths.iter().map(|path| ((*path).to_owned(), String::new())).collect();
    Rule {
        effect,
        tools: tools.iter().map(|tool| TextGlob::new(tool).expect("a glob")).collect(),
        paths: if paths.is_empty() {
            None
        } else {
            Some(PathGlobs::ignoring_case(globs).expect("globs"))
        },
        access: None,
        arguments: Vec::new(),
        trust: None,
        phases: Vec::new(),
        rule: format!("{effect:?} {tools:?} {paths:?}"),
        place: "here".into(),
    }
}

/// A policy that allows everything that these rules and the blocklist don't deny.
pub fn policed(rules: Vec<Rule>) -> Policy {
    Policy { policy: RuleSet { rules }, ..autonomy(Autonomy::Full) }
}

/// A table of the user's own file.
pub fn table(name: &str) -> OwnTable {
    OwnTable { name: name.to_owned(), ..OwnTable::default() }
}

/// A reach without grants.
pub fn reach(table: &str) -> Reach {
    Reach {
        table: self::table(table),
        grants: Vec::new(),
        denied: Vec::new(),
        private: Vec::new(),
        job_servers: false,
        https_only: placed(true),
        place: "here".into(),
        ceilings: Vec::new(),
    }
}

/// The reach of the web tools with hosts that are granted, denied, and opened.
pub fn reaching(granted: &[&str], denied: &[&str], private: &[&str]) -> Reach {
    Reach {
        grants: granted.iter().map(|text| placed(Grant::new(text).expect("a grant"))).collect(),
        denied: denied
            .iter()
            .map(|text| placed(HostPattern::new(text).expect("a pattern")))
            .collect(),
        private: private
            .iter()
            .map(|text| placed(PrivateHosts::new(text).expect("a private host")))
            .collect(),
        ..reach("tools.web")
    }
}
