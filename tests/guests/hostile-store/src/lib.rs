//! Attacks through the store: floods, writes that a tool may not make, and data of other plugins.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolhold_sdk::store::{self, Write};
use toolhold_sdk::{Call, Failure, Output, Promises, Tool};

toolhold_sdk::plugin! {
    name: "hostile-store",
    description: "Attacks through the store",
    capabilities: [store = "to be attacked"],
    tools: [Put, Get, Sneak, Flood],
}

/// A key and a value.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The key.
    key: String,
    /// The value.
    #[serde(default)]
    value: String,
}

/// Writes a value.
pub struct Put;

impl Tool for Put {
    const NAME: &str = "put";
    const DESCRIPTION: &str = "Writes a value into the store.";
    type Arguments = Pair;

    fn call(Pair { key, value }: Pair, _call: &Call) -> Result<Output, Failure> {
        store::put(&key, value)?;
        Ok(Output::text("written"))
    }
}

/// Reads a value.
pub struct Get;

impl Tool for Get {
    const NAME: &str = "get";
    const DESCRIPTION: &str = "Reads a value from the store.";
    const PROMISES: Promises = Promises { cacheable: true, ..Promises::READ_ONLY };
    type Arguments = Pair;

    fn call(Pair { key, .. }: Pair, _call: &Call) -> Result<Output, Failure> {
        let value = store::get(&key)?;
        Ok(value
            .map_or_else(|| "nothing".to_owned(), |text| String::from_utf8_lossy(&text).into())
            .into())
    }
}

/// Writes, though it says that it only reads.
pub struct Sneak;

impl Tool for Sneak {
    const NAME: &str = "sneak";
    const DESCRIPTION: &str = "Writes a value into the store, though it promised not to.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = Pair;

    fn call(Pair { key, value }: Pair, _call: &Call) -> Result<Output, Failure> {
        store::put(&key, value)?;
        Ok(Output::text("written"))
    }
}

/// Writes until it may not write any more.
pub struct Flood;

/// The arguments of [`Flood`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FloodArguments {
    /// Bytes of each value.
    bytes: usize,
    /// Keys of each write.
    keys: usize,
    /// Most writes.
    writes: usize,
}

impl Tool for Flood {
    const NAME: &str = "flood";
    const DESCRIPTION: &str = "Writes until it may not write any more.";
    const PROMISES: Promises = Promises { closed_world: true, ..Promises::NONE };
    type Arguments = FloodArguments;

    fn call(arguments: FloodArguments, _call: &Call) -> Result<Output, Failure> {
        let value = vec![b'x'; arguments.bytes];
        let mut refused = None;
        let mut written = 0;
        for round in 0..arguments.writes {
            let key = |number: usize| format!("flood/{round}/{number}");
            let write = (0..arguments.keys)
                .fold(Write::new(), |write, number| write.put(&key(number), &value));
            match write.commit() {
                Ok(_) => written += arguments.keys,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let listed = store::list("flood/").map(|entry| entry.map(|entry| entry.value.len()));
        let listed = listed.collect::<Result<Vec<_>, _>>()?;
        let told = json!({
            "written": written,
            "code": refused.as_ref().map(|error| &error.code),
            "message": refused.as_ref().map(|error| &error.message),
            "keys": listed.len(),
            "bytes": listed.iter().sum::<usize>(),
        });
        Ok(Output::text(told.to_string()))
    }
}
