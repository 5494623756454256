//! `memory_forget`: deletes an entry of the memory.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::index;
use toolhold_sdk::{Access, Call, Failure, Output, Promises, Subject, SubjectKind, Tool};

use crate::entry::check_key;
use crate::scope::{Scope, scopes};

pub(crate) struct Forget;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    key: String,
    scope: Option<Scope>,
}

impl Tool for Forget {
    const NAME: &str = "memory_forget";
    const TITLE: Option<&str> = Some("Forget");
    const DESCRIPTION: &str = "\
        Deletes a remembered entry by its key, because it is wrong or the user wants it gone.";
    const PROMISES: Promises = Promises { idempotent: true, closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::new("/key", SubjectKind::Text, Access::Write)];
    const ALIASES: &[&str] = &["memory_delete"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("key", &["name", "id"])];
    const BARE_ARGUMENT: Option<&str> = Some("key");
    type Arguments = Arguments;

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let key = arguments.key.trim();
        check_key(key)?;
        let caller = call.caller();
        for scope in scopes(arguments.scope) {
            let whole = [format!("{}{key}", scope.prefix(&caller))];
            if index::get(&whole)?.iter().any(Option::is_some) {
                index::delete(&whole)?;
                return Ok(Output::text(format!("Forgot memory: {key}")));
            }
        }
        Err(Failure::invalid(format!("there is no memory with the key {key}"))
            .with_suggestion("Find it with memory_search: each hit begins with its key."))
    }
}
