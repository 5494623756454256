//! `toolhold models`: lists and tests models. If no provider is configured, explains how to
//! configure one.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thiserror::Error;
use toolhold_core::CancellationToken;
use toolhold_core::text::{neutral, neutral_line};
use toolhold_models::choice::{ChosenModel, KNOWN_PROVIDERS, choose_model};
use toolhold_models::{
    ModelError, ModelEvent, ModelTool, Part, RawJson, ThinkingLevel, Turn, TurnMessage,
};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{BAD, FAINT, STRONG, note};

use crate::agent::Surroundings;
use crate::agent::failed;
use crate::arguments::agent::ModelsArguments;

/// The most models that are shown for one provider.
const MAX_SHOWN: usize = 50;

/// The longest wait for an answer of a test.
const TEST_TIME: Duration = Duration::from_secs(120);

/// Lists models, or tests some.
///
/// # Errors
///
/// No provider is configured.
pub(crate) async fn models(
    arguments: &ModelsArguments,
    around: &Surroundings<'_>,
) -> Result<Exit, CommandError> {
    let names: Vec<String> = match &arguments.model {
        Some(model) => vec![model.clone()],
        None => around.config.values.providers.keys().cloned().collect(),
    };
    if names.is_empty() {
        return Err(CommandError::Usage(how_to_begin(around)));
    }
    if let Some(found) = &around.found {
        note(&format!("no provider is configured: found one {}", found.origin))?;
    }
    let mut reports = Vec::new();
    let mut all_are_ok = true;
    for name in names {
        let Surroundings { config, folders, directory, front_end, .. } = *around;
        let choice = choose_model(config, folders, directory, front_end, Some(&name)).await;
        let report = match choice {
            Ok(model) if arguments.test => test(&model).await,
            Ok(model) => list(&model).await,
            // A provider without a chosen model can still list its models.
            Err(error) if arguments.model.is_none() => {
                json!({ "provider": name, "ok": false, "error": error.to_string() })
            }
            Err(error) => return Err(failed(error.into(), around)),
        };
        if report["ok"] != true {
            all_are_ok = false;
        }
        if !arguments.json {
            anstream::stdout().lock().write_all(in_words(&report).as_bytes())?;
        }
        reports.push(report);
    }
    if arguments.json {
        writeln!(std::io::stdout().lock(), "{:#}", Value::Array(reports))?;
    }
    Ok(if all_are_ok { Exit::Success } else { Exit::Host })
}

/// Returns a report with the models of a provider.
async fn list(model: &ChosenModel) -> Value {
    let report = match model.list().await {
        Ok(models) => {
            let models: Vec<Value> = models
                .into_iter()
                .map(|model| json!({ "name": model.name, "context_tokens": model.context }))
                .collect();
            json!({ "ok": true, "models": models })
        }
        Err(error) => json!({ "ok": false, "error": error.to_string() }),
    };
    with_names(model, report)
}

/// Asks for a short answer, and for a call. Returns a report.
async fn test(model: &ChosenModel) -> Value {
    let tool = ModelTool {
        name: "get_time".to_owned(),
        description: "Says what time it is in a city.".to_owned(),
        schema: RawJson::from_value(
            &json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] }),
        ),
    };
    let count_turn = turn(model, "Count from 1 to 20, in words.", Vec::new());
    let answer = match ask(model, &count_turn).await {
        Ok(answer) => answer,
        Err(error) => {
            return with_names(model, json!({ "ok": false, "error": error.to_string() }));
        }
    };
    let call_turn = turn(model, "What time is it in Oslo? Use the tool.", vec![tool]);
    let calls_tools = ask(model, &call_turn).await.is_ok_and(|answer| answer.calls > 0);
    let report = json!({
        "ok": true,
        "first_ms": millis(answer.first),
        "whole_ms": millis(answer.whole),
        "streams": answer.parts > 1,
        "calls_tools": calls_tools,
    });
    with_names(model, report)
}

fn turn(model: &ChosenModel, text: &str, tools: Vec<ModelTool>) -> Turn {
    Turn {
        model: model.model().to_owned(),
        system: String::new(),
        tools,
        forbid_calls: false,
        messages: vec![TurnMessage::User(vec![Part::Text(text.to_owned())])],
        max_output: Some(512),
        thinking: ThinkingLevel::default(),
        output_schema: None,
    }
}

/// The measurements of an answer.
struct MeasuredAnswer {
    /// The time until the first part.
    first: Duration,
    /// The time until the end.
    whole: Duration,
    parts: usize,
    calls: usize,
}

/// A test of a model that brought no answer.
#[derive(Debug, Error)]
enum ModelTestError {
    #[error("no answer within {} s", TEST_TIME.as_secs())]
    Time,
    #[error(transparent)]
    Model(#[from] ModelError),
}

async fn ask(model: &ChosenModel, turn: &Turn) -> Result<MeasuredAnswer, ModelTestError> {
    let started = Instant::now();
    let mut first = None;
    let mut parts = 0;
    let mut events = |event: ModelEvent| {
        if matches!(event, ModelEvent::Text(_) | ModelEvent::Thinking(_) | ModelEvent::CallBegun(_))
        {
            first.get_or_insert_with(|| started.elapsed());
            parts += 1;
        }
    };
    let never = CancellationToken::new();
    let answer = tokio::time::timeout(TEST_TIME, model.ask(turn, &mut events, &never))
        .await
        .map_err(|_| ModelTestError::Time)??;
    let whole = started.elapsed();
    let calls = answer.calls().count();
    Ok(MeasuredAnswer { first: first.unwrap_or(whole), whole, parts, calls })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Puts the names of the provider and the model before the fields of a report.
fn with_names(model: &ChosenModel, report: Value) -> Value {
    let mut named = json!({ "provider": model.provider(), "model": model.model() });
    if let Value::Object(fields) = report {
        for (key, value) in fields {
            named[key.as_str()] = value;
        }
    }
    named
}

fn in_words(report: &Value) -> String {
    let provider = field(report, "provider");
    let model = field(report, "model");
    let mut words = format!("{STRONG}{provider}{STRONG:#} {FAINT}{model}{FAINT:#}\n");
    // Writing to a string never fails.
    if report["ok"] != true {
        let _ = writeln!(words, "  {BAD}{}{BAD:#}", field(report, "error"));
    }
    if let Some(first) = report["first_ms"].as_u64() {
        let _ = writeln!(
            words,
            "  first text after {first} ms, whole answer after {} ms; streams: {}; calls tools: {}",
            report["whole_ms"],
            yes_or_no(&report["streams"]),
            yes_or_no(&report["calls_tools"])
        );
    }
    let models = report["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    for model in models.iter().take(MAX_SHOWN) {
        let name = neutral_line(model["name"].as_str().unwrap_or_default());
        let context = match model["context_tokens"].as_u64() {
            Some(tokens) => format!("  {FAINT}context: {tokens} tokens{FAINT:#}"),
            None => String::new(),
        };
        let _ = writeln!(words, "  {name}{context}");
    }
    if models.len() > MAX_SHOWN {
        let _ = writeln!(words, "  and {} more; `--json` lists all", models.len() - MAX_SHOWN);
    }
    words
}

fn field(report: &Value, key: &str) -> String {
    neutral_line(report[key].as_str().unwrap_or_default())
}

fn yes_or_no(value: &Value) -> &'static str {
    if *value == true { "yes" } else { "no" }
}

/// Describes the first steps if no provider is configured, and none was found.
pub(crate) fn how_to_begin(around: &Surroundings<'_>) -> String {
    let mut variables = Vec::new();
    for known in KNOWN_PROVIDERS {
        if !known.key_variable.is_empty() {
            variables.push(known.key_variable);
        }
    }
    let [first, ..] = KNOWN_PROVIDERS;
    let file = around.folders.config_file();
    format!(
        "no provider of models is configured, no key is in the environment, and no model server \
         of yours runs on this machine. Set one of {}, or write this into {}:\n\n{}",
        variables.join(", "),
        neutral(&file.display().to_string()),
        first.table()
    )
}
