//! For random configurations: the rights of a caller are never wider than those of the operator, of
//! the caller's table, of the ceiling, and of the limits of its token.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::test_runner::{Config as RunnerConfig, TestRunner};
use serde::Deserialize;
use serde_json::Value;
use toolhold_config_keys::Narrowing;

use super::super::keys::{Key, known, rule};
use super::super::narrow::{effective, value_at};
use super::super::resolved::expand;
use super::attempts::attempt;
use super::ceiling::bound;
use super::principals::who;
use super::*;

/// The tables without which the keys below them are unknown.
const BASE: &str = r#"plugins.known.path = "known.wasm"
mcp.servers.other.command = "known"
providers.known.model = "m"
index.qdrant.url = "http://localhost:1"
principals.t.models = ["*"]
"#;

/// The layers of a configuration.
const OPERATOR: usize = 0;
const TABLE: usize = 1;
const CEILING: usize = 2;
const TOKEN: usize = 3;

/// A key with the values that a layer can have.
struct Choice {
    path: Vec<String>,
    rule: Narrowing,
    /// Lines of TOML.
    lines: Vec<String>,
}

fn choices() -> Vec<Choice> {
    let mut choices = Vec::new();
    for key in known().iter().filter(|key| !key.table && !key.in_list) {
        let rule = match rule(&key.path) {
            Some(Narrowing::InCeiling(rule)) => *rule,
            Some(rule) => rule,
            None => continue,
        };
        let name = key.path.join(".");
        let is_shared = ["serve.", "audit.", "telemetry.", "installing.", "plugin_folder."]
            .iter()
            .any(|table| name.starts_with(table))
            || name.ends_with("policy.rules")
            || name == "tools.max_concurrent";
        if is_shared && name != "serve.max_requests" && name != "serve.requests_per_minute" {
            continue;
        }
        let Some(lines) = lines(key, &name) else { continue };
        let name = name.replace("servers.*", "servers.other").replace('*', "known");
        let path = name.split('.').map(str::to_owned).collect();
        choices.push(Choice { path, rule, lines });
    }
    choices
}

/// A wide value, a narrow value, and a value that would widen the test's usual configuration.
fn lines(key: &Key, name: &str) -> Option<Vec<String>> {
    let (wide, narrow, _) = bound(key)?;
    let path = name.replace("servers.*", "servers.other").replace('*', "known");
    let mut lines = vec![format!("{path} = {wide}"), format!("{path} = {narrow}")];
    lines.extend(attempt(name).map(str::to_owned));
    Some(lines)
}

/// The choices of one layer, the first line of each key.
fn layer(
    picks: &[(usize, usize, usize)],
    wanted: usize,
    choices: &[Choice],
) -> Vec<(usize, String)> {
    let mut picked: Vec<(usize, String)> = Vec::new();
    for (layer, key, value) in picks {
        let key = key % choices.len();
        let is_new = picked.iter().all(|(known, _)| *known != key);
        if *layer == wanted && is_new {
            let lines = &choices[key].lines;
            picked.push((key, lines[value % lines.len()].clone()));
        }
    }
    picked
}

fn text(lines: &[(usize, String)], prefix: &str) -> String {
    lines.iter().map(|(_, line)| format!("{prefix}{line}\n")).collect()
}

fn values(loaded: &Config) -> Value {
    serde_json::to_value(effective(loaded)).expect("it has a JSON form")
}

struct Comparison<'a> {
    scene: &'a Scene,
    less: &'a Value,
    more: &'a Value,
    /// Whether `more` is a limit, which removes no rule that allows a call.
    only_limits: bool,
}

impl Comparison<'_> {
    /// Whether the value of `less` grants no more than the value of `more`.
    fn is_within(&self, Choice { path, rule, .. }: &Choice) -> bool {
        let less = value_at(self.less, path);
        let more = value_at(self.more, path);
        if less == more {
            return true;
        }
        let lists = || (list(less), list(more));
        let number = |value: &Value, zero: f64| match value.as_f64() {
            Some(0.0) => zero,
            Some(number) => number,
            None => f64::INFINITY,
        };
        match rule {
            Narrowing::Smaller | Narrowing::SmallerOrAutomatic => {
                number(less, 0.0) <= number(more, 0.0)
            }
            Narrowing::SmallerOrUnbounded => {
                number(less, f64::INFINITY) <= number(more, f64::INFINITY)
            }
            Narrowing::OnlyFalse => *less == Value::Bool(false),
            Narrowing::OnlyTrue => *less == Value::Bool(true),
            Narrowing::OnlyEmpty => *less == "",
            Narrowing::Approve => *less == "approve",
            Narrowing::Stricter(words) => rank(words, less) <= rank(words, more),
            Narrowing::Adds => lists().1.iter().all(|item| lists().0.contains(item)),
            Narrowing::Denials(key) => {
                let (less, more) = lists();
                let allows = |item: &&Value| item[key] == "allow";
                let keeps_denials =
                    more.iter().filter(|item| !allows(item)).all(|item| less.contains(item));
                let adds_none =
                    less.iter().filter(|item| allows(item)).all(|item| more.contains(item));
                keeps_denials && (adds_none || self.only_limits)
            }
            Narrowing::Restricts => {
                let (less, more) = lists();
                more.is_empty() || !less.is_empty() && less.iter().all(|item| more.contains(item))
            }
            Narrowing::Subset => lists().0.iter().all(|item| lists().1.contains(item)),
            Narrowing::Covered(covers) => {
                let (less, more) = lists();
                less.iter().all(|item| more.iter().any(|wider| covers(wider, item)))
            }
            Narrowing::Directories => self.directories_within(path, less, more),
            _ => false,
        }
    }

    /// Whether each directory of `less` is in a directory of `more` with at least its access.
    fn directories_within(&self, path: &[String], less: &Value, more: &Value) -> bool {
        let switch = [&path[..path.len() - 1], &["enabled".to_owned()]].concat();
        if *value_at(self.less, &switch) == Value::Bool(false) {
            return true;
        }
        let more = self.directories(more);
        self.directories(less).iter().all(|(less, access)| {
            let containing = more.iter().filter(|(more, _)| less.starts_with(more));
            let longest = containing.max_by_key(|(more, _)| more.components().count());
            longest.is_some_and(|(_, more)| access <= more)
        })
    }

    fn directories(&self, list: &Value) -> Vec<(PathBuf, PathAccess)> {
        let items = list.as_array().into_iter().flatten();
        let written = items.map(|item| AllowedPath::deserialize(item).expect("it is a directory"));
        let real = written.map(|AllowedPath { path, access }| {
            let path = expand(&path, &self.scene.work, &self.scene.folders);
            (path.canonicalize().expect("it exists"), access)
        });
        real.collect()
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn rank(words: &[&str], value: &Value) -> Option<usize> {
    words.iter().position(|known| known.split('|').any(|known| *value == known))
}

fn is_grant(rule: Narrowing) -> bool {
    matches!(rule, Narrowing::Directories | Narrowing::Covered(_) | Narrowing::Subset)
}

#[test]
fn rights_are_never_wider_than_any_layer() {
    let scene = Scene::new();
    let choices = choices();
    assert!(choices.len() > 100, "{}", choices.len());
    let ceiling = scene.work.parent().expect("it has a parent").join("ceiling.toml");
    let there = Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() };
    let compared = Cell::new(0);

    // `None` if the configuration isn't valid. Then nothing runs.
    let load_text = |text: &str, inputs: &Inputs| {
        scene.write(&format!("{BASE}{text}"));
        load(&scene.folders, inputs).ok()
    };
    let check = |picks: Vec<(usize, usize, usize)>| {
        let [operator, table, limits, token] =
            [OPERATOR, TABLE, CEILING, TOKEN].map(|wanted| layer(&picks, wanted, &choices));
        let alone = load_text(&text(&operator, ""), &there);
        let named = load_text(&text(&table, ""), &there);
        let limited = load_text(&text(&limits, ""), &there);
        let made = load_text(&text(&token, ""), &there);
        let (Some(alone), Some(named), Some(limited), Some(made)) = (alone, named, limited, made)
        else {
            return Ok(());
        };
        fs::write(&ceiling, text(&limits, "")).expect("the file is written");
        let inputs = Inputs {
            who: Some(who("anna", &[])),
            bounds: made.task_bounds().expect("it isn't too long").texts,
            variables: vec![("TOOLHOLD_CEILING".into(), ceiling.clone().into())],
            ..there.clone()
        };
        let all = text(&operator, "") + &text(&table, "principals.t.");
        let Some(caller) = load_text(&all, &inputs) else { return Ok(()) };
        compared.set(compared.get() + 1);

        let less = values(&caller);
        let whole: Vec<usize> = (0..choices.len()).collect();
        let keys_of = |lines: &[(usize, String)]| lines.iter().map(|(key, _)| *key).collect();
        for (layer, more, keys) in [
            ("operator", values(&alone), whole.clone()),
            ("table", values(&named), keys_of(&table)),
            ("ceiling", values(&limited), keys_of(&limits)),
            ("token", values(&made), whole),
        ] {
            let only_limits = layer != "operator";
            let comparison = Comparison { scene: &scene, less: &less, more: &more, only_limits };
            for choice in keys.into_iter().map(|key: usize| &choices[key]) {
                assert!(
                    comparison.is_within(choice),
                    "{layer}: {:?}: {} isn't within {}",
                    choice.path,
                    value_at(&less, &choice.path),
                    value_at(&more, &choice.path)
                );
            }
        }
        // Grants that the table doesn't name are empty.
        for (key, choice) in choices.iter().enumerate() {
            let is_named = table.iter().any(|(named, _)| *named == key);
            let is_file_list =
                choice.path.ends_with(&["allowed_paths".to_owned()]) && choice.path[0] == "tools";
            if is_grant(choice.rule) && !is_named && !is_file_list {
                let value = value_at(&less, &choice.path);
                assert!(list(value).is_empty(), "{:?} is {value}", choice.path);
            }
        }
        Ok(())
    };
    let picks = vec((0..4_usize, 0..1000_usize, 0..3_usize), 0..24);
    let config = RunnerConfig { cases: 128, failure_persistence: None, ..RunnerConfig::default() };
    TestRunner::new(config).run(&picks, check).expect("no right is wider");
    assert!(compared.get() > 10, "{}", compared.get());
}
