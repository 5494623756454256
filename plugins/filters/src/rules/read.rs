//! Reads the operator's rules from `filters.toml`, and leaves out those that aren't valid.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toolhold_sdk::filter::{Matcher, Pattern};

use super::Branches;
use crate::strategy::{MAX_REGEX, Step, StepForm};

/// The size in bytes at which `filters.toml` is refused.
pub const MAX_TEXT: usize = 1024 * 1024;
/// The greatest number of rules in `filters.toml`.
pub const MAX_RULES: usize = 256;

/// The rules that were read from `filters.toml`.
#[derive(Default)]
pub struct OperatorRules {
    /// The valid, enabled rules, in order.
    pub rules: Vec<OperatorRule>,
    /// The names of all valid rules. Each replaces the built-in rule of the same name.
    pub replaced: Vec<String>,
    /// The errors in the other rules.
    pub problems: Vec<String>,
}

/// A rule of the operator.
pub struct OperatorRule {
    /// The name.
    pub name: String,
    /// The matcher.
    pub matcher: Matcher,
    /// The steps, ready to run.
    pub steps: Branches,
    /// The metadata in the listing, as a JSON object.
    pub meta: String,
}

/// Reads `filters.toml`. A rule that isn't valid is left out, the others are used.
pub fn read(text: &str) -> OperatorRules {
    let mut read = OperatorRules::default();
    if text.len() >= MAX_TEXT {
        read.problems.push(
            "the file has 1 MiB or more, so none of its rules is used: shorten it".to_owned(),
        );
        return read;
    }
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            read.problems.push(format!(
                "line {line}: {}: none of the file's rules is used until the file is valid TOML",
                error.message()
            ));
            return read;
        }
    };
    for (key, value) in table {
        let line = line_of(text, key.span().start);
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("rules", DeValue::Array(_)) => {
                let DeValue::Array(rules) = value.into_inner() else { continue };
                read_rules(text, rules.into_iter(), &mut read);
            }
            ("rules", _) => read.problems.push(format!(
                "line {line}: `rules` isn't a list: start each rule with `[[rules]]`"
            )),
            (other, _) => read.problems.push(format!(
                "line {line}: the key `{other}` is unknown: the file can have only `[[rules]]`"
            )),
        }
    }
    read
}

fn read_rules<'a>(
    text: &str,
    rules: impl ExactSizeIterator<Item = Spanned<DeValue<'a>>>,
    read: &mut OperatorRules,
) {
    let many = rules.len();
    for rule in rules.take(MAX_RULES) {
        let line = line_of(text, rule.span().start);
        let name =
            rule.get_ref().get("name").and_then(|name| name.get_ref().as_str()).map(str::to_owned);
        let shown = name
            .as_deref()
            .map_or_else(|| "a rule without a name".to_owned(), |name| format!("rule {name:?}"));
        match read_rule(rule) {
            Ok((name, _)) if read.replaced.contains(&name) => {
                read.problems.push(format!(
                    "line {line}: {shown}: an earlier rule has the same name: use another name"
                ));
            }
            Ok((name, rule)) => {
                read.replaced.push(name);
                read.rules.extend(rule);
            }
            Err(RuleError { at, what }) => {
                let line = at.map_or(line, |at| line_of(text, at));
                read.problems.push(format!("line {line}: {shown}: {what}"));
            }
        }
    }
    if many > MAX_RULES {
        read.problems.push(format!(
            "the file has {many} rules; the limit is {MAX_RULES}: the rules after the first {MAX_RULES} are left out"
        ));
    }
}

/// An error in a rule.
struct RuleError {
    /// The offset of the error in the text. `None` if only the rule's own is known.
    at: Option<usize>,
    what: String,
}

impl From<String> for RuleError {
    fn from(what: String) -> Self {
        Self { at: None, what }
    }
}

/// The name of a rule, and the rule itself. `None` for the rule if it is disabled.
fn read_rule(rule: Spanned<DeValue<'_>>) -> Result<(String, Option<OperatorRule>), RuleError> {
    let rule = RuleForm::deserialize(ValueDeserializer::from(rule)).map_err(|error| RuleError {
        at: error.span().map(|span| span.start),
        what: error.message().to_owned(),
    })?;
    let name = rule.name;
    let fits = name.bytes().all(|byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    });
    if !(1..=64).contains(&name.len()) || !fits {
        return Err("the name isn't valid: use 1 to 64 characters out of a-z, 0-9, `_` and `-`"
            .to_owned()
            .into());
    }
    let has_strategy = rule.strategy.is_some()
        || rule.on_success.is_some()
        || rule.on_failure.is_some()
        || rule.on_exit.is_some();
    if !rule.enabled && rule.matcher.is_none() && !has_strategy {
        let is_known = super::BUILT_IN.iter().any(|built_in| built_in.name == name);
        if is_known {
            return Ok((name, None));
        }
        let unknown = "no built-in rule has this name, so it can't be switched off: `toolhold filter list` shows the names";
        return Err(unknown.to_owned().into());
    }
    let Some(matcher) = rule.matcher else { return Err("`match` is missing".to_owned().into()) };
    let by_code = rule.on_exit.map(ByCode::read).transpose()?.unwrap_or_default();
    let forms = [
        ("strategy", &rule.strategy),
        ("on_success", &rule.on_success),
        ("on_failure", &rule.on_failure),
    ];
    let mut types = Vec::new();
    for (key, strategies) in forms {
        match strategies.as_ref().map(|strategies| strategies.0.as_slice()) {
            None => {}
            Some([]) => {
                return Err(format!("`{key}` is an empty list: add at least one table").into());
            }
            Some(strategies) => types.push(describe(key, strategies)),
        }
    }
    types.extend(
        by_code
            .iter()
            .map(|(_, text, strategies)| describe(&format!("on_exit {text}"), &strategies.0)),
    );
    if types.is_empty() {
        return Err("`strategy` is missing".to_owned().into());
    }
    let subject = matcher.pattern()?;
    if rule.tool.as_deref().is_none_or(|tool| tool == "bash")
        && let Pattern::Exact(text) | Pattern::Prefix(text) = &subject
        && let Some(name) = text.strip_prefix("./")
    {
        let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
        return Err(format!(
            "commands are compared without the folder of their program: write {name:?}"
        )
        .into());
    }
    let tool = rule.tool.unwrap_or_else(|| "*".to_owned());
    if tool.is_empty() {
        return Err("`tool` is empty: name a tool, use a glob, or leave it out".to_owned().into());
    }
    let mut meta = json!({ "strategy": types.join("; "), "built_in": false });
    if rule.project {
        meta["project"] = true.into();
    }
    if !rule.examples.is_empty() {
        meta["examples"] = rule.examples.into_iter().map(|example| example.0).collect();
    }
    let project = rule.project;
    let steps = Branches {
        otherwise: branch("strategy", rule.strategy.as_ref(), project)?.unwrap_or_default(),
        success: branch("on_success", rule.on_success.as_ref(), project)?,
        failure: branch("on_failure", rule.on_failure.as_ref(), project)?,
        by_code: by_code
            .iter()
            .map(|(codes, text, strategies)| {
                Ok((codes.clone(), read_steps(&format!("on_exit.{text}"), strategies, project)?))
            })
            .collect::<Result<_, String>>()?,
    };
    let own = OperatorRule {
        name: name.clone(),
        matcher: Matcher { tool: tool.into(), subject },
        steps,
        meta: meta.to_string(),
    };
    Ok((name, rule.enabled.then_some(own)))
}

fn branch(
    key: &str,
    strategies: Option<&Strategies>,
    project: bool,
) -> Result<Option<Vec<Step>>, String> {
    strategies.map(|strategies| read_steps(key, strategies, project)).transpose()
}

/// The steps of a branch. `project`: whether the rule is of a project, so that it keeps warnings.
fn read_steps(key: &str, strategies: &Strategies, project: bool) -> Result<Vec<Step>, String> {
    let mut steps = Vec::with_capacity(strategies.0.len());
    for form in &strategies.0 {
        let step = Step::new(form)
            .map_err(|what| if key == "strategy" { what } else { format!("`{key}`: {what}") })?;
        steps.push(if project { step.keeping_warnings() } else { step });
    }
    Ok(steps)
}

/// A rule as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleForm {
    name: String,
    #[serde(rename = "match")]
    matcher: Option<Match>,
    tool: Option<String>,
    /// What runs where no branch fits.
    strategy: Option<Strategies>,
    on_success: Option<Strategies>,
    on_failure: Option<Strategies>,
    on_exit: Option<ByCode>,
    #[serde(default = "default_true")]
    enabled: bool,
    #[serde(default)]
    examples: Vec<Example>,
    /// Set by the host for the rules of a project's file.
    #[serde(default)]
    project: bool,
}

fn default_true() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Match {
    exact: Option<String>,
    prefix: Option<String>,
    regex: Option<String>,
}

impl Match {
    fn pattern(self) -> Result<Pattern, String> {
        match self {
            Self { exact: Some(text), prefix: None, regex: None } if !text.trim().is_empty() => Ok(Pattern::Exact(text.into())),
            Self { exact: None, prefix: Some(text), regex: None } if !text.trim().is_empty() => Ok(Pattern::Prefix(text.into())),
            Self { exact: None, prefix: None, regex: Some(text) } if !text.is_empty() => {
                crate::strategy::compile(&text).map_err(|what| format!("`match.regex`: {what}"))?;
                Ok(Pattern::Regex(text.into()))
            }
            Self { exact: None, prefix: None, regex: None } => {
                Err("`match` is empty: add one of `exact`, `prefix` and `regex`".to_owned())
            }
            Self { exact, prefix, regex } if [&exact, &prefix, &regex].iter().filter(|text| text.is_some()).count() == 1 => {
                Err("the text in `match` is empty, so it matches no command: write the first words of the commands".to_owned())
            }
            _ => Err("`match` has more than one of `exact`, `prefix` and `regex`: keep one, or write two rules".to_owned()),
        }
    }
}

/// The names of strategies, for the listing.
fn describe(key: &str, strategies: &[StepForm]) -> String {
    let types: Vec<&str> = strategies.iter().map(|form| form.strategy.name()).collect();
    let types = types.join("+");
    if key == "strategy" { types } else { format!("{key}: {types}") }
}

/// The branches by exit code, as the file has them: a code, or a list of them, and its strategies.
#[derive(Deserialize)]
#[serde(transparent)]
struct ByCode(BTreeMap<String, Strategies>);

/// The greatest number of branches by exit code.
const MAX_BRANCHES: usize = 32;

impl ByCode {
    /// The codes of each branch, as numbers and as text.
    fn read(self) -> Result<Vec<(Vec<i32>, String, Strategies)>, String> {
        if self.0.is_empty() {
            return Err(
                "`on_exit` is empty: add a code and its strategy, as in `on_exit = { 2 = { type = \"…\" } }`"
                    .to_owned(),
            );
        }
        if self.0.len() > MAX_BRANCHES {
            return Err(format!(
                "`on_exit` has {} branches; the limit is {MAX_BRANCHES}: join those with the same strategy, as in `\"2,3\"`",
                self.0.len()
            ));
        }
        let mut seen = Vec::new();
        let mut branches = Vec::new();
        for (text, strategies) in self.0 {
            if strategies.0.is_empty() {
                return Err(format!("`on_exit.{text}` is an empty list: add at least one table"));
            }
            let mut codes = Vec::new();
            for code in text.split(',').map(str::trim) {
                let number = code.parse().ok().filter(|code| (0..=255).contains(code));
                let Some(number) = number else {
                    return Err(format!(
                        "`on_exit` has the code {code:?}: use numbers from 0 to 255, separated by commas, as in `\"2,3\"`"
                    ));
                };
                if seen.contains(&number) {
                    return Err(format!("`on_exit` has the code {number} twice: keep one of them"));
                }
                seen.push(number);
                codes.push(number);
            }
            branches.push((codes, text, strategies));
        }
        Ok(branches)
    }
}

/// One table or a list of tables.
struct Strategies(Vec<StepForm>);

impl<'de> Deserialize<'de> for Strategies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Strategies;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table `{ type = \"…\" }` or a list of such tables")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Strategies, A::Error> {
                StepForm::deserialize(de::value::MapAccessDeserializer::new(map))
                    .map(|form| Strategies(vec![form]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, sequence: A) -> Result<Strategies, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(sequence)).map(Strategies)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// An example of a rule. Only its form is checked here. The host runs it.
struct Example(serde_json::Value);

impl<'de> Deserialize<'de> for Example {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, serde::Serialize)]
        #[serde(deny_unknown_fields)]
        struct Form {
            #[serde(skip_serializing_if = "Option::is_none")]
            exit: Option<i32>,
            input: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            output: Option<String>,
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            contains: Vec<String>,
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            lacks: Vec<String>,
        }

        let form = Form::deserialize(deserializer)?;
        if form.output.is_none() && form.contains.is_empty() && form.lacks.is_empty() {
            return Err(de::Error::custom("an example needs `output`, `contains` or `lacks`"));
        }
        serde_json::to_value(form).map(Self).map_err(de::Error::custom)
    }
}

/// The number, from 1, of the line at this offset.
fn line_of(text: &str, at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count()
}

const _: () = assert!(MAX_REGEX <= 512, "the contract's limit");
