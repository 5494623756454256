//! `toolhold models`: lists and tests models, or explains how to configure a provider.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use thiserror::Error;
use toolhold_core::CancellationToken;
use toolhold_core::text::neutral;
use toolhold_models::choice::{ChosenModel, KNOWN_PROVIDERS, choose_model};
use toolhold_models::{
    ModelError, ModelEvent, ModelTool, Part, RawJson, ThinkingLevel, Turn, TurnMessage,
};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{BAD, GOOD, note};
use toolhold_terminal::table::Table;

use crate::agent::Surroundings;
use crate::agent::failed;
use crate::arguments::agent::ModelsArguments;

/// The most models in the list of a provider.
const MAX_SHOWN: usize = 50;

const TEST_TIME: Duration = Duration::from_secs(120);

/// The most tokens of the answer to a test.
const MAX_TEST_TOKENS: u32 = 512;

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
        let first = &around.config.values.agent.provider;
        let origin = found.origin(first);
        note(&format!("no provider is configured, so Toolhold asks {first}, {origin}"))?;
    }
    let mut reports = Vec::new();
    let mut all_are_ok = true;
    for name in names {
        let Surroundings { config, folders, directory, front_end, .. } = *around;
        let choice = choose_model(config, folders, directory, front_end, Some(&name)).await;
        let report = match choice {
            Ok(model) if arguments.test => test(&model).await,
            Ok(model) => list(&model).await,
            // If all providers are listed, the error of one goes into its report, so that the
            // others are listed too.
            Err(error) if arguments.model.is_none() => {
                json!({ "provider": name, "ok": false, "error": error.to_string() })
            }
            Err(error) => return Err(failed(error.into(), around)),
        };
        if report["ok"] != true {
            all_are_ok = false;
        }
        reports.push(report);
    }
    if arguments.json {
        writeln!(io::stdout().lock(), "{:#}", Value::Array(reports))?;
    } else {
        print_table(&reports)?;
    }
    Ok(if all_are_ok { Exit::Success } else { Exit::Host })
}

/// Returns the names of the provider's models as a JSON report.
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

/// Asks the model for a short text and for a call of a tool. Returns the times and the abilities of
/// the model as a JSON report.
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
    // A model that streams sends several parts.
    let streams = answer.parts > 1;
    let report = json!({
        "ok": true,
        "first_ms": millis(answer.first),
        "whole_ms": millis(answer.whole),
        "streams": streams,
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
        max_output: Some(MAX_TEST_TOKENS),
        thinking: ThinkingLevel::default(),
        output_schema: None,
    }
}

struct MeasuredAnswer {
    /// The time until the first part of the answer arrived.
    first: Duration,
    /// The time until the answer was complete.
    whole: Duration,
    parts: usize,
    calls: usize,
}

#[derive(Debug, Error)]
enum ModelTestError {
    #[error("the model didn't answer within {} s", TEST_TIME.as_secs())]
    Time,
    #[error(transparent)]
    Model(#[from] ModelError),
}

async fn ask(model: &ChosenModel, turn: &Turn) -> Result<MeasuredAnswer, ModelTestError> {
    let started = Instant::now();
    let mut first_part_after = None;
    let mut parts = 0;
    let mut events = |event: ModelEvent| {
        if matches!(event, ModelEvent::Text(_) | ModelEvent::Thinking(_) | ModelEvent::CallBegun(_))
        {
            first_part_after.get_or_insert_with(|| started.elapsed());
            parts += 1;
        }
    };
    let never_cancelled = CancellationToken::new();
    let asking = model.ask(turn, &mut events, &never_cancelled);
    let Ok(result) = tokio::time::timeout(TEST_TIME, asking).await else {
        return Err(ModelTestError::Time);
    };
    let answer = result?;
    let whole = started.elapsed();
    let calls = answer.calls().count();
    let first = first_part_after.unwrap_or(whole);
    Ok(MeasuredAnswer { first, whole, parts, calls })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns `report`, preceded by the names of the provider and the model.
fn with_names(model: &ChosenModel, report: Value) -> Value {
    let mut named = json!({ "provider": model.provider(), "model": model.model() });
    if let Value::Object(fields) = report {
        for (key, value) in fields {
            named[key.as_str()] = value;
        }
    }
    named
}

fn print_table(reports: &[Value]) -> io::Result<()> {
    let mut table = Table::new(["PROVIDER", "MODEL", "STATE"], &[]);
    let state_column = 2;
    for report in reports {
        let is_ok = report["ok"] == true;
        let (state, style) = if is_ok { ("ok", GOOD) } else { ("failed", BAD) };
        let provider = field(report, "provider").to_owned();
        table.row([provider, field(report, "model").to_owned(), state.to_owned()]);
        table.colour(state_column, style);
        if !is_ok {
            table.detail(field(report, "error"));
        }
        if let Some(first) = report["first_ms"].as_u64() {
            table.detail(&format!(
                "first text after {first} ms, whole answer after {} ms; streams: {}; calls tools: {}",
                report["whole_ms"],
                yes_or_no(&report["streams"]),
                yes_or_no(&report["calls_tools"])
            ));
        }
        if let Some(models) = report["models"].as_array() {
            add_models(&mut table, models);
        }
    }
    table.print(&mut anstream::stdout().lock())
}

/// Adds the names and the context sizes of a provider's models below the last row.
fn add_models(table: &mut Table<3>, models: &[Value]) {
    for model in models.iter().take(MAX_SHOWN) {
        let context = match model["context_tokens"].as_u64() {
            Some(tokens) => format!("  context: {tokens} tokens"),
            None => String::new(),
        };
        table.detail(&format!("{}{context}", field(model, "name")));
    }
    if models.len() > MAX_SHOWN {
        let more = models.len() - MAX_SHOWN;
        table.detail(&format!("and {more} more; `--json` lists all"));
    }
}

fn field<'r>(report: &'r Value, key: &str) -> &'r str {
    report[key].as_str().unwrap_or_default()
}

fn yes_or_no(value: &Value) -> &'static str {
    if *value == true { "yes" } else { "no" }
}

/// Explains how to configure a provider.
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
        "no model provider is configured, the environment has no key, and no model server runs on \
         this machine. Set one of {}, or write this into {}:\n\n{}\n\nFor a local model, start \
         `ollama serve` or `llama-server -m MODEL.gguf`: Toolhold finds it at its usual port.",
        variables.join(", "),
        neutral(&file.display().to_string()),
        first.table()
    )
}
