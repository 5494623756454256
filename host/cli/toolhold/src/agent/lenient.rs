//! Asks the person whether a model's calls in plain JSON are accepted.

use std::io::Write;

use toolhold_core::HostError;
use toolhold_core::config::insert;
use toolhold_core::text::neutral_line;
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::style::STRONG;

use crate::agent::Surroundings;

/// Asks at the terminal whether plain JSON of `model`, which is `PROVIDER/MODEL`, is accepted as
/// calls. If the person agrees, adds the model to `lenient_models` in the user's `toolhold.toml`,
/// and returns `true`.
pub(crate) async fn offer_lenient(
    model: String,
    around: &Surroundings<'_>,
) -> Result<bool, CommandError> {
    let Some(mut dialogue) = ask::open_dialogue("calls in plain JSON are not accepted") else {
        return Ok(false);
    };
    let name = neutral_line(&model);
    let mut err = anstream::stderr();
    writeln!(
        err,
        "{STRONG}{name}{STRONG:#} writes calls as plain JSON, as some local models do.\nIf you \
         accept such calls, each call that does more than read needs your approval."
    )?;
    let default_answer = false;
    if !dialogue.yes_or_no("Accept calls in plain JSON from now on?", default_answer)? {
        return Ok(false);
    }
    writeln!(err, "{}", write_lenient(model, around).await?)?;
    Ok(true)
}

/// Adds `model` to `lenient_models` in the user's `toolhold.toml`. Returns a message for the
/// person.
pub(crate) async fn write_lenient(
    model: String,
    around: &Surroundings<'_>,
) -> Result<String, CommandError> {
    let folders = around.folders.clone();
    let file = tokio::task::spawn_blocking(move || insert::lenient_model(&folders, &model))
        .await
        .map_err(|error| HostError::Config(error.to_string()))??;
    Ok(format!("The model is now in `lenient_models` in [agent] of {}.", file.display()))
}
