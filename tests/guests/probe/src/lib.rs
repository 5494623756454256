//! Tools for the tests of the contract: they show what a call gets beside its arguments, and answer
//! in every form that an answer can have.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Instant, SystemTime};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolhold_sdk::{Call, Category, Content, Failure, Output, Promises, Tool, config};

toolhold_sdk::plugin! {
    name: "probe",
    description: "Shows what a call gets beside its arguments, and answers in every form",
    config_schema: r#"{
        "type": "object",
        "properties": {
            "server": { "type": "string", "description": "The server that is asked." },
            "retries": { "type": "integer", "minimum": 0, "default": 3 },
            "limits": { "type": "object", "properties": { "rows": { "type": "integer" } } }
        },
        "additionalProperties": false
    }"#,
    tools: [Settings, Meta, Long, Moment],
}

/// Shows the settings.
pub struct Settings;

/// The arguments of [`Settings`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingsArguments {
    /// The key. All of them if it is left out.
    key: Option<String>,
}

impl Tool for Settings {
    const NAME: &str = "settings";
    const DESCRIPTION: &str = "Returns the settings of the plugin.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = SettingsArguments;

    fn call(arguments: SettingsArguments, _call: &Call) -> Result<Output, Failure> {
        let value = match arguments.key {
            Some(key) => json!(config::get::<Value>(&key)?),
            None => config::all::<Value>()?,
        };
        Ok(Output::text(value.to_string()))
    }
}

/// Shows the meta of the call, and answers with meta.
pub struct Meta;

/// The arguments of [`Meta`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetaArguments {
    /// The meta of the answer.
    answer: Option<Value>,
    /// Whether the call fails.
    #[serde(default)]
    fail: bool,
}

impl Tool for Meta {
    const NAME: &str = "meta";
    const DESCRIPTION: &str = "Returns the meta of the call, and answers with the given meta.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = MetaArguments;

    fn call(arguments: MetaArguments, call: &Call) -> Result<Output, Failure> {
        let text = json!(call.meta()).to_string();
        if arguments.fail {
            let mut failure = Failure::new(Category::PermanentFailure, text);
            failure.meta = arguments.answer.map(Box::new);
            return Err(failure);
        }
        Ok(Output { meta: arguments.answer, ..Output::text(text) })
    }
}

/// Emits its answer.
pub struct Long;

/// The arguments of [`Long`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongArguments {
    /// The number of parts.
    parts: usize,
    /// The bytes of each.
    bytes: usize,
    /// The bytes of the content behind them.
    #[serde(default)]
    behind: usize,
    /// Whether the answer begins with them.
    #[serde(default)]
    after_emitted: bool,
}

impl Tool for Long {
    const NAME: &str = "long";
    const DESCRIPTION: &str = "Emits parts, and answers with a text behind them.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = LongArguments;

    fn call(arguments: LongArguments, call: &Call) -> Result<Output, Failure> {
        let emitted = (0..arguments.parts).take_while(|number| {
            call.emit(Content::text(format!("{number}{}\n", "x".repeat(arguments.bytes))))
        });
        let text = format!("{} emitted{}", emitted.count(), "y".repeat(arguments.behind));
        Ok(Output { after_emitted: arguments.after_emitted, ..Output::text(text) })
    }
}

/// A tool whose schema depends on time and chance, if it can.
pub struct Moment;

/// The arguments of [`Moment`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MomentArguments {
    #[serde(default)]
    #[schemars(schema_with = "schema_of_this_moment")]
    text: String,
}

fn schema_of_this_moment(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let chance = RandomState::new().build_hasher().finish();
    let began = Instant::now();
    let about = format!("{:?} {chance} {:?}", SystemTime::now(), began.elapsed());
    schemars::json_schema!({ "type": "string", "description": about })
}

impl Tool for Moment {
    const NAME: &str = "moment";
    const DESCRIPTION: &str = "Returns its text.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = MomentArguments;

    fn call(arguments: MomentArguments, _call: &Call) -> Result<Output, Failure> {
        Ok(Output::text(arguments.text))
    }
}

#[cfg(test)]
mod tests {
    use toolhold_sdk::testing;

    use super::*;

    #[test]
    fn settings_are_shown() {
        testing::set_config(json!({ "server": "a" }));
        let shown = testing::call::<Settings>(json!({})).unwrap();
        assert_eq!(shown.joined_text(), r#"{"server":"a"}"#);
        let missing = testing::call::<Settings>(json!({ "key": "retries" })).unwrap();
        assert_eq!(missing.joined_text(), "null");
    }
}
