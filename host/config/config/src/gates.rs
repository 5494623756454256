//! Builds the rules that the gates decide by from the configuration.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use toolhold_contract::{Access, HostError};
use toolhold_policy::files::PathGlobs;
use toolhold_policy::rules::{Argument, Effect, Rule, RuleSet, Test};
use toolhold_policy::{
    BUILT_IN_COMMANDS, Blocklist, Containment, DEFAULT_BLOCKED, ExpressionError, GlobError, Origin,
    OriginKind, Pattern, PatternLengthError, Permission, Permissions, Phase, Placed, Policy,
    ProviderTrust, TextGlob, Trust, Verdict, expression, literal,
};

use super::policy::{is_everything, spellings};
use super::{
    ArgumentTest, Autonomy, Config, PathGlob, PermissionAction, PermissionRule, PolicyAccess,
    PolicyEffect, PolicyPhase, PolicyRule, Problem, Problems, SandboxMode, Shell, Source,
    TrustLevel,
};

/// The tool to which `[tools.shell] confirm_patterns` applies.
const SHELL_TOOL: &str = "bash";

impl Config {
    /// The policy that decides on calls.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] with the place of a value that can't be used.
    pub fn policy(&self) -> Result<Policy, HostError> {
        let home = self.read_from.as_ref().and_then(|(folders, _)| folders.home.as_deref());
        let tools = &self.values.tools;
        let autonomy = match tools.autonomy {
            Autonomy::ReadOnly => toolhold_policy::Autonomy::ReadOnly,
            Autonomy::Ask => toolhold_policy::Autonomy::Ask,
            Autonomy::Sandboxed => toolhold_policy::Autonomy::Sandboxed,
            Autonomy::Full => toolhold_policy::Autonomy::Full,
        };
        let ceiling = self.ceilings.iter().map(|ceiling| {
            ceiling.contents.rules(home).map(|rules| as_ceiling(rules, &ceiling.path))
        });
        let only = tools.shell.only_commands.iter().map(|name| name.as_str().to_owned()).collect();
        Ok(Policy {
            blocklist: self.blocklist(),
            ceiling: ceiling.collect::<Result<_, _>>()?,
            policy: self.rules(home)?,
            permissions: self.permissions(home)?,
            autonomy: self.placed("tools.autonomy", autonomy),
            containment: self.containment(),
            only_commands: self.placed("tools.shell.only_commands", only),
            strict_parse: self.placed("tools.shell.strict_parse", tools.shell.strict_parse),
            block_high_risk: self.placed(
                "tools.shell.block_high_risk_commands",
                tools.shell.block_high_risk_commands,
            ),
            ask_for_medium_risk: self.placed(
                "tools.shell.require_approval_for_medium_risk",
                tools.shell.require_approval_for_medium_risk,
            ),
            network: self.placed("tools.shell.network", tools.shell.network.into()),
            web: Some(self.web()?),
            trusted: self.trusted(),
        })
    }

    /// The containment that `autonomy = "sandboxed"` relies on.
    fn containment(&self) -> Containment {
        let tools = &self.values.tools;
        let Shell { sandbox, transactional, ref transaction_scope, .. } = tools.shell;
        let files = (!tools.undo.enabled).then_some("enabled = false in [tools.undo]");
        let commands = files
            .or((sandbox == SandboxMode::BestEffort)
                .then_some("sandbox = \"best-effort\" in [tools.shell]"))
            .or((sandbox == SandboxMode::Off).then_some("sandbox = \"off\" in [tools.shell]"))
            .or((!transactional).then_some("transactional = false in [tools.shell]"))
            .or((!is_everything(transaction_scope))
                .then_some("transaction_scope in [tools.shell], which leaves files out"));
        Containment { commands, files }
    }

    fn placed<T>(&self, key: &str, value: T) -> Placed<T> {
        Placed { value, place: self.origin(key) }
    }

    fn blocklist(&self) -> Blocklist {
        let shell = &self.values.tools.shell;
        let built_in = Origin {
            text: BUILT_IN_COMMANDS.into(),
            kind: OriginKind::Default(self.table_place("tools.shell")),
        };
        let default = DEFAULT_BLOCKED
            .iter()
            .filter(|entry| {
                let mut allowed = shell.allowed_commands.iter();
                !allowed.any(|allowed| allowed.as_str().eq_ignore_ascii_case(entry))
            })
            .map(|entry| ((*entry).to_owned(), built_in.clone()));
        let written = shell.blocked_commands.iter().enumerate().map(|(index, entry)| {
            let key = format!("tools.shell.blocked_commands.{index}");
            (entry.as_str().to_owned(), self.origin(&key))
        });
        Blocklist::new(default.chain(written))
    }

    fn trusted(&self) -> ProviderTrust {
        let changed =
            self.values.plugins.iter().filter(|(_, plugin)| plugin.trust != TrustLevel::default());
        let placed = changed.map(|(name, plugin)| {
            (name.clone(), self.placed(&format!("plugins.{name}.trust"), trust(plugin.trust)))
        });
        ProviderTrust { plugins: placed.collect::<HashMap<_, _>>() }
    }

    fn permissions(&self, home: Option<&Path>) -> Result<Permissions, HostError> {
        let mut permissions = Permissions::new(self.own_file());
        let mut shell_has_rules = false;
        for (tool, rules) in &self.values.tools.permissions {
            let key = format!("tools.permissions.{}", super::dotted_name(tool));
            // The rules of each file are a list of their own: an untrusted file's `ask` doesn't
            // undo a denial that comes after it.
            let mut lists: Vec<(Option<&Path>, Vec<Permission>)> = Vec::new();
            for (index, rule) in rules.iter().enumerate() {
                let source = self.source(&format!("{key}.{index}"));
                let permission = self.permission(rule, &source, &key, home)?;
                let file = match &source {
                    Source::File { path, .. } => self.foreign_file(path),
                    // Their place is no file; it only has to be a list of its own.
                    Source::TaskBounds => Some(Path::new("")),
                    _ => None,
                };
                shell_has_rules |= tool == SHELL_TOOL && file.is_none();
                match lists.iter_mut().find(|(known, _)| *known == file) {
                    Some((_, list)) => list.push(permission),
                    None => lists.push((file, vec![permission])),
                }
            }
            lists.into_iter().for_each(|(_, list)| permissions.add(tool, list));
        }
        if !shell_has_rules {
            permissions.add(SHELL_TOOL, self.confirm_patterns(home)?);
        }
        Ok(permissions)
    }

    /// The file, if it is the working directory's or a ceiling. `None` for the operator's own file.
    fn foreign_file(&self, path: &Path) -> Option<&Path> {
        let project = self.project.iter().map(|project| project.path.as_path());
        let mut others = project.chain(self.ceilings.iter().map(|ceiling| ceiling.path.as_path()));
        others.find(|other| *other == path)
    }

    /// The permissions that `confirm_patterns` stands for. If autonomy is sandboxed or full, only
    /// patterns that are written in a source count, not those of the default.
    fn confirm_patterns(&self, home: Option<&Path>) -> Result<Vec<Permission>, HostError> {
        let shell = &self.values.tools.shell;
        let mut permissions = Vec::new();
        for (index, text) in shell.confirm_patterns.iter().enumerate() {
            let source = self.source(&format!("tools.shell.confirm_patterns.{index}"));
            let is_free =
                matches!(self.values.tools.autonomy, Autonomy::Sandboxed | Autonomy::Full);
            if source == Source::Default && is_free {
                continue;
            }
            let pattern = format!("*{}*", literal(text.as_str()));
            let rule = PermissionRule {
                pattern: written(&pattern)?,
                exact: false,
                action: PermissionAction::Ask,
            };
            let permission = self.permission(&rule, &source, "tools.shell", home)?;
            permissions.push(Permission {
                rule: format!("confirm_patterns = {:?}", text.as_str()),
                ..permission
            });
        }
        Ok(permissions)
    }

    fn permission(
        &self,
        rule: &PermissionRule,
        source: &Source,
        key: &str,
        home: Option<&Path>,
    ) -> Result<Permission, HostError> {
        let pattern = rule.pattern.as_str();
        let pattern = match (rule.exact, rule.action) {
            (false, _) => Pattern::new(pattern, spellings(pattern, home))
                .map_err(|error| problem(source, error.to_string()))?,
            (true, PermissionAction::Allow) => Pattern::exactly(pattern),
            // A rule that denies or asks for one spelling only would protect nothing.
            (true, _) => {
                let message =
                    format!("{key}: `exact` is for rules with `action = \"allow\"`; leave it out");
                return Err(problem(source, message));
            }
        };
        Ok(Permission {
            pattern,
            verdict: match rule.action {
                PermissionAction::Allow => Verdict::Allow,
                PermissionAction::Ask => Verdict::Ask,
                PermissionAction::Deny => Verdict::Deny,
            },
            rule: shown(rule),
            // The list is a table of its own: `[[tools.permissions.write]]`.
            place: self.origin_of(source, &format!("{key}.")),
        })
    }

    fn rules(&self, home: Option<&Path>) -> Result<RuleSet, HostError> {
        let mut rules = Vec::new();
        for (index, rule) in self.values.tools.policy.rules.iter().enumerate() {
            let element = format!("tools.policy.rules.{index}");
            let rule = policy_rule(rule, self.origin(&element), home)
                .map_err(|error| problem(&self.source(&element), error.to_string()))?;
            rules.push(rule);
        }
        Ok(RuleSet { rules })
    }
}

fn written(pattern: &str) -> Result<super::WrittenPattern, HostError> {
    super::WrittenPattern::new(pattern).map_err(|error| HostError::Config(error.to_string()))
}

fn problem(source: &Source, message: String) -> HostError {
    Problems::from(Problem::new(source.clone(), message)).into()
}

/// Makes the rules of a file those of a ceiling. A ceiling is read like any other file, so its
/// rules don't know that they are a ceiling's. The rules of a task's maker keep their own place.
fn as_ceiling(mut rules: RuleSet, path: &Path) -> RuleSet {
    for rule in &mut rules.rules {
        if rule.place.kind != OriginKind::TaskBounds {
            rule.place.kind = OriginKind::Ceiling(path.display().to_string());
        }
    }
    rules
}

/// A rule with a pattern that isn't valid.
#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error(transparent)]
    Tool(#[from] PatternLengthError),
    #[error(transparent)]
    Path(#[from] GlobError),
    #[error(transparent)]
    Argument(#[from] ExpressionError),
}

fn policy_rule(rule: &PolicyRule, place: Origin, home: Option<&Path>) -> Result<Rule, RuleError> {
    let effect = match rule.effect {
        PolicyEffect::Allow => Effect::Allow,
        PolicyEffect::Deny => Effect::Deny,
    };
    Ok(Rule {
        effect,
        tools: rule
            .tools
            .iter()
            .map(|glob| TextGlob::new(glob.as_str()))
            .collect::<Result<_, _>>()?,
        paths: if rule.paths.is_empty() {
            None
        } else {
            Some(rule_globs(&rule.paths, effect, home)?)
        },
        access: rule.access.map(|access| match access {
            PolicyAccess::Read => Access::Read,
            PolicyAccess::Write => Access::Write,
        }),
        arguments: rule.arguments.iter().map(argument).collect::<Result<_, _>>()?,
        trust: rule.trust.map(trust),
        phases: rule.phases.iter().map(phase).collect(),
        rule: shown(rule),
        place,
    })
}

fn rule_globs(
    paths: &[PathGlob],
    effect: Effect,
    home: Option<&Path>,
) -> Result<PathGlobs, GlobError> {
    let spelled = paths
        .iter()
        .flat_map(|glob| spellings(glob.as_str(), home))
        .map(|glob| (glob, String::new()))
        .collect();
    // A denial ignores case. A glob that allows is compared as it is written.
    if effect == Effect::Deny { PathGlobs::ignoring_case(spelled) } else { PathGlobs::new(spelled) }
}

fn phase(phase: &PolicyPhase) -> Phase {
    match phase {
        PolicyPhase::Planner => Phase::Planner,
        PolicyPhase::Executor => Phase::Executor,
        PolicyPhase::Verifier => Phase::Verifier,
        PolicyPhase::Autonomous => Phase::Autonomous,
    }
}

fn argument(test: &ArgumentTest) -> Result<Argument, ExpressionError> {
    let comparison = match (&test.glob, &test.regex) {
        (Some(glob), _) => Test::Glob(TextGlob::new(glob.as_str())?),
        (None, regex) => Test::Expression(expression(regex.as_deref().unwrap_or_default())?),
    };
    Ok(Argument { pointer: test.pointer.clone(), test: comparison })
}

fn trust(level: TrustLevel) -> Trust {
    match level {
        TrustLevel::Trusted => Trust::Trusted,
        TrustLevel::Verified => Trust::Verified,
        TrustLevel::Quarantined => Trust::Quarantined,
        TrustLevel::Blocked => Trust::Blocked,
    }
}

/// A rule as it is written in a file, on one line and without the braces.
fn shown(rule: &impl Serialize) -> String {
    let value = serde_json::to_value(rule).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(key, value)| format!("{key} = {}", inline(value))).collect::<Vec<_>>().join(", ")
}

fn inline(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            format!(
                "{{ {} }}",
                fields
                    .iter()
                    .map(|(key, value)| format!("{key} = {}", inline(value)))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        scalar => scalar.to_string(),
    }
}
