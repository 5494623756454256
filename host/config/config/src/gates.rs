//! Builds the rules of the gates from the configuration.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use toolhold_contract::{Access, HostError};
use toolhold_policy::files::PathGlobs;
use toolhold_policy::rules::{Argument, Effect, Rule, RuleSet, Test};
use toolhold_policy::{
    BUILT_IN_COMMANDS, Blocklist, Containment, DEFAULT_BLOCKED, ExpressionError, GlobError, Origin,
    OriginKind, Pattern, PatternLengthError, Permission, Permissions, Phase, Placed, Policy,
    ProviderTrust, TextGlob, ToolGlob, Trust, Verdict, expression, literal,
};

use super::policy::{is_everything, spellings};
use super::{
    ArgumentTest, Autonomy, Ceiling, Config, PathGlob, PermissionAction, PermissionRule,
    PolicyAccess, PolicyEffect, PolicyPhase, PolicyRule, Problem, Problems, SandboxMode, Shell,
    Source, TrustLevel,
};

/// The tool of `confirm_patterns` in `[tools.shell]`.
const SHELL_TOOL: &str = "bash";

impl Config {
    /// Builds the policy that decides on calls.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if a value can't be used.
    pub fn policy(&self) -> Result<Policy, HostError> {
        let home = self.read_from.as_ref().and_then(|(folders, _)| folders.home.as_deref());
        let tools = &self.values.tools;
        let autonomy = match tools.autonomy {
            Autonomy::ReadOnly => toolhold_policy::Autonomy::ReadOnly,
            Autonomy::Ask => toolhold_policy::Autonomy::Ask,
            Autonomy::Sandboxed => toolhold_policy::Autonomy::Sandboxed,
            Autonomy::Full => toolhold_policy::Autonomy::Full,
        };
        let mut ceiling = Vec::new();
        for Ceiling { contents, path, .. } in &self.ceilings {
            ceiling.push(with_ceiling_origin(contents.rules(home)?, path));
        }
        let only_commands =
            tools.shell.only_commands.iter().map(|name| name.as_str().to_owned()).collect();
        Ok(Policy {
            blocklist: self.blocklist(),
            ceiling,
            policy: self.rules(home)?,
            permissions: self.permissions(home)?,
            autonomy: self.placed("tools.autonomy", autonomy),
            containment: self.containment(),
            only_commands: self.placed("tools.shell.only_commands", only_commands),
            strict_parse: self.placed("tools.shell.strict_parse", tools.shell.strict_parse),
            block_high_risk: self.placed(
                "tools.shell.block_high_risk_commands",
                tools.shell.block_high_risk_commands,
            ),
            ask_for_medium_risk: self.placed(
                "tools.shell.require_approval_for_medium_risk",
                tools.shell.require_approval_for_medium_risk,
            ),
            network: self.network_of_commands(),
            web: Some(self.web()?),
            trusted: self.provider_trust(),
        })
    }

    /// Returns the settings that make `autonomy = "sandboxed"` unsafe: commands could leave the
    /// sandbox, or their changes couldn't be undone.
    fn containment(&self) -> Containment {
        let tools = &self.values.tools;
        let Shell { sandbox, transactional, ref transaction_scope, .. } = tools.shell;
        if !tools.undo.enabled {
            let setting = Some("enabled = false in [tools.undo]");
            return Containment { commands: setting, files: setting };
        }
        let commands = if sandbox == SandboxMode::BestEffort {
            Some("sandbox = \"best-effort\" in [tools.shell]")
        } else if sandbox == SandboxMode::Off {
            Some("sandbox = \"off\" in [tools.shell]")
        } else if !transactional {
            Some("transactional = false in [tools.shell]")
        } else if !is_everything(transaction_scope) {
            Some("transaction_scope in [tools.shell], which leaves files out")
        } else {
            None
        };
        Containment { commands, files: None }
    }

    fn placed<T>(&self, key: &str, value: T) -> Placed<T> {
        Placed { value, place: self.origin(key) }
    }

    /// Returns the commands that the shell doesn't run, with the places where they are set.
    fn blocklist(&self) -> Blocklist {
        let shell = &self.values.tools.shell;
        let built_in = Origin {
            text: BUILT_IN_COMMANDS.into(),
            kind: OriginKind::Default(self.table_place("tools.shell")),
        };
        let mut commands = Vec::new();
        for default in DEFAULT_BLOCKED {
            let mut allowed = shell.allowed_commands.iter();
            if !allowed.any(|command| command.as_str().eq_ignore_ascii_case(default)) {
                commands.push((default.to_owned(), built_in.clone()));
            }
        }
        for (index, command) in shell.blocked_commands.iter().enumerate() {
            let key = format!("tools.shell.blocked_commands.{index}");
            commands.push((command.as_str().to_owned(), self.origin(&key)));
        }
        Blocklist::new(commands)
    }

    /// Returns the trust levels of the plugins that have another level than the default.
    fn provider_trust(&self) -> ProviderTrust {
        let mut plugins = HashMap::new();
        for (name, plugin) in &self.values.plugins {
            if plugin.trust != TrustLevel::default() {
                let key = format!("plugins.{name}.trust");
                plugins.insert(name.clone(), self.placed(&key, trust_of(plugin.trust)));
            }
        }
        ProviderTrust { plugins }
    }

    /// Builds the rules of `[tools.permissions]`. If the operator has no own rule for the shell,
    /// the rules of `confirm_patterns` are added.
    fn permissions(&self, home: Option<&Path>) -> Result<Permissions, HostError> {
        let mut permissions = Permissions::new(self.own_file());
        let mut shell_has_own_rules = false;
        for (tool, rules) in &self.values.tools.permissions {
            let key = format!("tools.permissions.{}", super::dotted_name(tool));
            // The rules of each file form a separate list. In one list, an `ask` of an untrusted
            // file would come before the operator's `deny`, and decide.
            let mut lists_by_file: Vec<(Option<&Path>, Vec<Permission>)> = Vec::new();
            for (index, rule) in rules.iter().enumerate() {
                let source = self.source(&format!("{key}.{index}"));
                let permission = self.permission(rule, &source, &key, home)?;
                let file = match &source {
                    Source::File { path, .. } => self.foreign_file(path),
                    // The rules of a task's limits need a separate list, too. They have no file, so
                    // an empty path stands for it.
                    Source::TaskBounds => Some(Path::new("")),
                    // The operator's own rules form one list.
                    _ => None,
                };
                if tool == SHELL_TOOL && file.is_none() {
                    shell_has_own_rules = true;
                }
                match lists_by_file.iter_mut().find(|(known, _)| *known == file) {
                    Some((_, list)) => list.push(permission),
                    None => lists_by_file.push((file, vec![permission])),
                }
            }
            let glob = ToolGlob::new(tool)
                .map_err(|error| config_error(&self.source_below(&key), error.to_string()))?;
            for (_, list) in lists_by_file {
                match &glob {
                    Some(glob) => permissions.add_glob(glob.clone(), list),
                    None => permissions.add(tool, list),
                }
            }
        }
        if !shell_has_own_rules {
            permissions.add(SHELL_TOOL, self.confirm_patterns(home)?);
        }
        Ok(permissions)
    }

    /// Returns `path` if it is the working directory's file or a ceiling.
    fn foreign_file(&self, path: &Path) -> Option<&Path> {
        let project = self.project.iter().map(|project| project.path.as_path());
        let ceilings = self.ceilings.iter().map(|ceiling| ceiling.path.as_path());
        project.chain(ceilings).find(|foreign| *foreign == path)
    }

    /// Builds a rule for each text in `confirm_patterns`. A command that contains the text needs
    /// approval. The default texts don't apply if `autonomy` is `sandboxed` or `full`.
    fn confirm_patterns(&self, home: Option<&Path>) -> Result<Vec<Permission>, HostError> {
        let shell = &self.values.tools.shell;
        let is_autonomous =
            matches!(self.values.tools.autonomy, Autonomy::Sandboxed | Autonomy::Full);
        let mut permissions = Vec::new();
        for (index, text) in shell.confirm_patterns.iter().enumerate() {
            let source = self.source(&format!("tools.shell.confirm_patterns.{index}"));
            if source == Source::Default && is_autonomous {
                continue;
            }
            let pattern = written_pattern(&format!("*{}*", literal(text.as_str())))?;
            let rule = PermissionRule { pattern, exact: false, action: PermissionAction::Ask };
            let mut permission = self.permission(&rule, &source, "tools.shell", home)?;
            permission.rule = format!("confirm_patterns = {:?}", text.as_str());
            permissions.push(permission);
        }
        Ok(permissions)
    }

    /// Converts a rule of the configuration. `key` is the key of the list with the rule.
    fn permission(
        &self,
        rule: &PermissionRule,
        source: &Source,
        key: &str,
        home: Option<&Path>,
    ) -> Result<Permission, HostError> {
        let pattern = permission_pattern(rule, source, key, home)?;
        let verdict = match rule.action {
            PermissionAction::Allow => Verdict::Allow,
            PermissionAction::Ask => Verdict::Ask,
            PermissionAction::Deny => Verdict::Deny,
        };
        Ok(Permission {
            pattern,
            verdict,
            rule: describe_rule(rule),
            // The place names the table before the last dot of a key. The list is itself a table,
            // such as `[[tools.permissions.write]]`, so the appended dot makes the place name the
            // list.
            place: self.origin_of(source, &format!("{key}.")),
        })
    }

    /// Builds the rules of `[tools.policy]`.
    fn rules(&self, home: Option<&Path>) -> Result<RuleSet, HostError> {
        let mut rules = Vec::new();
        for (index, rule) in self.values.tools.policy.rules.iter().enumerate() {
            let element = format!("tools.policy.rules.{index}");
            let rule = policy_rule(rule, self.origin(&element), home)
                .map_err(|error| config_error(&self.source(&element), error.to_string()))?;
            rules.push(rule);
        }
        Ok(RuleSet { rules })
    }
}

fn written_pattern(pattern: &str) -> Result<super::WrittenPattern, HostError> {
    super::WrittenPattern::new(pattern).map_err(|error| HostError::Config(error.to_string()))
}

fn config_error(source: &Source, message: String) -> HostError {
    Problems::from(Problem::new(source.clone(), message)).into()
}

/// Builds the pattern of a rule. `key` is the key of the list with the rule.
fn permission_pattern(
    rule: &PermissionRule,
    source: &Source,
    key: &str,
    home: Option<&Path>,
) -> Result<Pattern, HostError> {
    let text = rule.pattern.as_str();
    if !rule.exact {
        return Pattern::new(text, spellings(text, home))
            .map_err(|error| config_error(source, error.to_string()));
    }
    // Another spelling of a command could avoid an exact denial, so only rules that allow may be
    // exact.
    if rule.action != PermissionAction::Allow {
        let message =
            format!("{key}: `exact` is for rules with `action = \"allow\"`; leave it out");
        return Err(config_error(source, message));
    }
    Ok(Pattern::exactly(text))
}

/// Sets the origin of `rules` to the ceiling at `path`. Denials then name the ceiling. The rules of
/// a task's limits keep their origin.
fn with_ceiling_origin(mut rules: RuleSet, path: &Path) -> RuleSet {
    for rule in &mut rules.rules {
        if rule.place.kind != OriginKind::TaskBounds {
            rule.place.kind = OriginKind::Ceiling(path.display().to_string());
        }
    }
    rules
}

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
    let tools = rule.tools.iter().map(|glob| TextGlob::new(glob.as_str()));
    let paths =
        if rule.paths.is_empty() { None } else { Some(path_globs(&rule.paths, effect, home)?) };
    let access = rule.access.map(|access| match access {
        PolicyAccess::Read => Access::Read,
        PolicyAccess::Write => Access::Write,
    });
    Ok(Rule {
        effect,
        tools: tools.collect::<Result<_, _>>()?,
        paths,
        access,
        arguments: rule.arguments.iter().map(parse_argument).collect::<Result<_, _>>()?,
        trust: rule.trust.map(trust_of),
        phases: rule.phases.iter().map(phase_of).collect(),
        rule: describe_rule(rule),
        place,
    })
}

fn path_globs(
    paths: &[PathGlob],
    effect: Effect,
    home: Option<&Path>,
) -> Result<PathGlobs, GlobError> {
    let mut globs = Vec::new();
    for glob in paths {
        for spelling in spellings(glob.as_str(), home) {
            // The rule itself has a place, so its globs need no place.
            globs.push((spelling, String::new()));
        }
    }
    // Some file systems ignore case, so a denial does too. A glob that allows must match exactly.
    if effect == Effect::Deny { PathGlobs::ignoring_case(globs) } else { PathGlobs::new(globs) }
}

fn phase_of(phase: &PolicyPhase) -> Phase {
    match phase {
        PolicyPhase::Planner => Phase::Planner,
        PolicyPhase::Executor => Phase::Executor,
        PolicyPhase::Verifier => Phase::Verifier,
        PolicyPhase::Autonomous => Phase::Autonomous,
    }
}

fn parse_argument(argument: &ArgumentTest) -> Result<Argument, ExpressionError> {
    let test = match &argument.glob {
        Some(glob) => Test::Glob(TextGlob::new(glob.as_str())?),
        None => Test::Expression(expression(argument.regex.as_deref().unwrap_or_default())?),
    };
    Ok(Argument { pointer: argument.pointer.clone(), test })
}

fn trust_of(level: TrustLevel) -> Trust {
    match level {
        TrustLevel::Trusted => Trust::Trusted,
        TrustLevel::Verified => Trust::Verified,
        TrustLevel::Quarantined => Trust::Quarantined,
        TrustLevel::Blocked => Trust::Blocked,
    }
}

/// Writes a rule as in a file, on one line and without the braces.
fn describe_rule(rule: &impl Serialize) -> String {
    match serde_json::to_value(rule) {
        Ok(Value::Object(fields)) => describe_fields(&fields),
        _ => String::new(),
    }
}

fn describe_fields(fields: &Map<String, Value>) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(key, value)| format!("{key} = {}", describe_value(value))).collect();
    pairs.join(", ")
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let described: Vec<String> = items.iter().map(describe_value).collect();
            format!("[{}]", described.join(", "))
        }
        Value::Object(fields) => format!("{{ {} }}", describe_fields(fields)),
        scalar => scalar.to_string(),
    }
}
