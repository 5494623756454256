use berth_sdk::filter::{Matcher, Pattern};
use serde::{Deserialize, Deserializer, de};
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use crate::strategy::{MAX_REGEX, Step, Strategy};

/// The most bytes that `filters.toml` may have.
pub const MAX_TEXT: usize = 1024 * 1024;
/// The most rules that it may have.
pub const MAX_RULES: usize = 256;

/// The operator's rules, as they were read.
#[derive(Default)]
pub struct OperatorRules {
    /// Those that can be used and are enabled, in their order.
    pub rules: Vec<OperatorRule>,
    /// The names of all rules that can be used. Each replaces the built-in rule of its name.
    pub replaced: Vec<String>,
    /// What is wrong with the others.
    pub problems: Vec<String>,
}

/// A rule of the operator's.
pub struct OperatorRule {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub matcher: Matcher,
    /// What it does, ready to run.
    pub steps: Vec<Step>,
    /// Its metadata in the listing, as a JSON object.
    pub meta: String,
}

/// Reads `filters.toml`. A rule that is wrong is left out, the others count.
pub fn read(text: &str) -> OperatorRules {
    let mut read = OperatorRules::default();
    if text.len() >= MAX_TEXT {
        read.problems.push(
            "the file has 1 MiB or more, and none of its rules is in force: shorten it".to_owned(),
        );
        return read;
    }
    let table = match DeTable::parse(text) {
        Ok(table) => table.into_inner(),
        Err(error) => {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            read.problems.push(format!(
                "line {line}: {}: none of the file's rules is in force until it is valid TOML",
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
                "line {line}: `rules` isn't a list: begin each rule with `[[rules]]`"
            )),
            (other, _) => read.problems.push(format!(
                "line {line}: unknown key `{other}`: a rule file has only `[[rules]]`"
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
                    "line {line}: {shown}: there is one of that name above: give it another"
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
            "there are {many} rules: those after the first {MAX_RULES} are left out"
        ));
    }
}

/// What is wrong with a rule, and where in the text, if the place is known more precisely than the
/// rule's own.
struct RuleError {
    at: Option<usize>,
    what: String,
}

impl From<String> for RuleError {
    fn from(what: String) -> Self {
        Self { at: None, what }
    }
}

/// The name of a rule, and the rule where it is enabled.
fn read_rule(rule: Spanned<DeValue<'_>>) -> Result<(String, Option<OperatorRule>), RuleError> {
    let rule = Written::deserialize(ValueDeserializer::from(rule)).map_err(|error| RuleError {
        at: error.span().map(|span| span.start),
        what: error.message().to_owned(),
    })?;
    let name = rule.name;
    let fits = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    if !(1..=64).contains(&name.len()) || !name.bytes().all(fits) {
        return Err("a name is 1 to 64 characters out of a-z, 0-9, `_` and `-`".to_owned().into());
    }
    if !rule.enabled && rule.matcher.is_none() && rule.strategy.is_none() {
        let is_known = super::BUILT_IN.iter().any(|built_in| built_in.name == name);
        let unknown = || {
            "there is no built-in rule of that name to disable: `berth filter list` shows them"
                .to_owned()
        };
        return if is_known { Ok((name, None)) } else { Err(unknown().into()) };
    }
    let Some(matcher) = rule.matcher else { return Err("it has no `match`".to_owned().into()) };
    let Some(Strategies(strategies)) = rule.strategy else {
        return Err("it has no `strategy`".to_owned().into());
    };
    if strategies.is_empty() {
        return Err("its `strategy` is an empty list: give it one table at least"
            .to_owned()
            .into());
    }
    let subject = matcher.pattern()?;
    if rule.tool.as_deref().is_none_or(|tool| tool == "bash")
        && let Pattern::Exact(text) | Pattern::Prefix(text) = &subject
        && let Some(name) = text.strip_prefix("./")
    {
        let name = name.rsplit_once('/').map_or(name, |(_, name)| name);
        return Err(format!(
            "the folder of a program is taken off before commands are compared: write {name:?}"
        )
        .into());
    }
    let tool = rule.tool.unwrap_or_else(|| "*".to_owned());
    if tool.is_empty() {
        return Err("`tool` is empty: name a tool, use a glob, or leave it out".to_owned().into());
    }
    let types: Vec<&str> = strategies.iter().map(Strategy::name).collect();
    let mut meta = json!({ "strategy": types.join("+"), "built_in": false });
    if !rule.examples.is_empty() {
        meta["examples"] = rule.examples.into_iter().map(|example| example.0).collect();
    }
    let steps = strategies.iter().map(Step::new).collect::<Result<_, _>>()?;
    let own = OperatorRule {
        name: name.clone(),
        matcher: Matcher { tool: tool.into(), subject },
        steps,
        meta: meta.to_string(),
    };
    Ok((name, rule.enabled.then_some(own)))
}

/// A rule as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(rename = "match")]
    matcher: Option<Match>,
    tool: Option<String>,
    strategy: Option<Strategies>,
    #[serde(default = "default_true")]
    enabled: bool,
    #[serde(default)]
    examples: Vec<Example>,
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
                Err("its `match` is empty: give it one of `exact`, `prefix` and `regex`".to_owned())
            }
            Self { exact, prefix, regex } if [&exact, &prefix, &regex].iter().filter(|text| text.is_some()).count() == 1 => {
                Err("its matcher is an empty text, which fits nothing that is run: write what commands begin with".to_owned())
            }
            _ => Err("its `match` has more than one of `exact`, `prefix` and `regex`: keep one, or write two rules".to_owned()),
        }
    }
}

/// One table or a list of tables.
struct Strategies(Vec<Strategy>);

impl<'de> Deserialize<'de> for Strategies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Strategies;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a table `{ type = \"…\" }` or a list of such tables")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Strategies, A::Error> {
                Strategy::deserialize(de::value::MapAccessDeserializer::new(map))
                    .map(|strategy| Strategies(vec![strategy]))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, sequence: A) -> Result<Strategies, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(sequence)).map(Strategies)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// An example of a rule. Its form is checked here; the host runs it.
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

/// The number of the line at this place, from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..at.min(text.len())]).count()
}

const _: () = assert!(MAX_REGEX <= 512, "the contract's limit");
