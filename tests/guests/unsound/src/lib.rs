//! Tools that each break one rule of `toolhold plugin test`, and one that breaks none.

use std::fs;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use toolhold_sdk::{Call, Category, Failure, Output, Promises, Tool};

toolhold_sdk::plugin! {
    name: "unsound",
    description: "Tools that each break one rule of the conformance test",
    capabilities: [files(read_write) = "to leave something there"],
    tools: [Sound, Traps, Silent, Hangs, SaysLater, OtherAnswer, Prints, Hoards, Wanders, LeavesALock, Undescribed],
}

/// The arguments of most tools.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// Any text.
    text: String,
}

/// Declares a tool of [`Arguments`].
macro_rules! tool {
    ($tool:ident, $name:literal, $description:literal, $call:expr) => {
        #[doc = $description]
        pub struct $tool;

        impl Tool for $tool {
            const NAME: &str = $name;
            const DESCRIPTION: &str = $description;
            type Arguments = Arguments;

            fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
                let call: fn(String) -> Result<Output, Failure> = $call;
                call(arguments.text)
            }
        }
    };
}

tool!(Sound, "sound", "Returns the number of characters, and fails for an empty text.", |text| {
    if text.is_empty() {
        return Err(Failure::invalid("text is empty; give at least one character"));
    }
    Ok(Output::text(text.chars().count().to_string()))
});

tool!(Traps, "traps", "Panics if the text is empty.", |text| {
    assert!(!text.is_empty(), "the text is empty");
    Ok(Output::text(text))
});

tool!(Silent, "silent", "Fails without a message if the text is empty.", |text| {
    if text.is_empty() {
        return Err(Failure::new(Category::InvalidParameters, " "));
    }
    Ok(Output::text(text))
});

tool!(Hangs, "hangs", "Never ends if the text is long.", |text| {
    while text.len() > 1000 {
        std::hint::black_box(&text);
    }
    Ok(Output::text(text))
});

tool!(SaysLater, "says_later", "Tells the caller to try again if the text has a NUL.", |text| {
    if text.contains('\0') {
        return Err(Failure::new(Category::RateLimited, "there is a NUL in the text"));
    }
    Ok(Output::text(text))
});

tool!(Prints, "prints", "Prints much more than it answers.", |text| {
    eprintln!("{}", "x".repeat(300 * 1024));
    Ok(Output::text(text))
});

tool!(Hoards, "hoards", "Takes memory without end if the text is long.", |text| {
    let mut hoard = Vec::new();
    while text.len() > 1000 {
        hoard.push(std::hint::black_box(vec![1_u8; 1 << 20]));
    }
    Ok(Output::text(text))
});

tool!(Wanders, "wanders", "Reads a file that no argument names.", |_| {
    let outside = directory()?.join("../outside/secret.txt");
    Ok(Output::text(fs::read_to_string(outside).unwrap_or_default()))
});

tool!(LeavesALock, "leaves_a_lock", "Leaves a lock behind if it fails.", |text| {
    let lock = directory()?.join("lock");
    if lock.exists() {
        return Err(Failure::permanent("lock", "it is locked"));
    }
    fs::write(&lock, "").map_err(|error| Failure::io("locking", &error))?;
    if text.is_empty() {
        return Err(Failure::invalid("text is empty; give at least one character"));
    }
    fs::remove_file(&lock).map_err(|error| Failure::io("unlocking", &error))?;
    Ok(Output::text(text))
});

/// The granted directory.
fn directory() -> Result<PathBuf, Failure> {
    toolhold_sdk::working_directory().map_err(|error| Failure::io("finding the directory", &error))
}

/// Answers with something else than its schema says.
pub struct OtherAnswer;

/// What it says that it answers.
#[derive(Serialize, JsonSchema)]
pub struct Count {
    count: u32,
}

impl Tool for OtherAnswer {
    const NAME: &str = "other_answer";
    const DESCRIPTION: &str = "Answers with a text where its schema has a number.";
    const PROMISES: Promises = Promises::READ_ONLY;
    type Arguments = Arguments;

    fn output_schema() -> Option<schemars::Schema> {
        Some(toolhold_sdk::schema::for_type::<Count>())
    }

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        Output::json(&json!({ "count": arguments.text }))
    }
}

/// Says too little about itself.
pub struct Undescribed;

/// Its arguments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UndescribedArguments {
    #[schemars(example = 3)]
    text: String,
}

impl Tool for Undescribed {
    const NAME: &str = "undescribed";
    const DESCRIPTION: &str = "Has an argument without a description, and with a wrong example.";
    type Arguments = UndescribedArguments;

    fn call(arguments: UndescribedArguments, _call: &Call) -> Result<Output, Failure> {
        Ok(Output::text(arguments.text))
    }
}
