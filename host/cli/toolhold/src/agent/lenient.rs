//! Offers to accept a model's JSON texts as calls, and writes this setting into `toolhold.toml`.

use std::io::Write;

use toolhold_core::HostError;
use toolhold_core::config::insert;
use toolhold_core::text::neutral_line;
use toolhold_terminal::ask;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::style::STRONG;

use crate::agent::Surroundings;

/// Asks at a terminal whether JSON texts of `model`, a `PROVIDER/MODEL`, are calls from now on, and
/// writes the choice into the user's `toolhold.toml`. Returns `true` if the texts are calls.
pub(crate) async fn offer_lenient(
    model: String,
    around: &Surroundings<'_>,
) -> Result<bool, CommandError> {
    let Some(mut dialogue) = ask::open_dialogue("calls in plain JSON are not made") else {
        return Ok(false);
    };
    let name = neutral_line(&model);
    let mut err = anstream::stderr();
    writeln!(
        err,
        "{STRONG}{name}{STRONG:#} writes calls as JSON alone, as some models on a machine of one's \
         own do.\nIf they count, whatever such a call does beside reading needs your approval."
    )?;
    if !dialogue.yes_or_no("Let them count from now on?", false)? {
        return Ok(false);
    }
    writeln!(err, "{}", write_lenient(model, around).await?)?;
    Ok(true)
}

/// Writes the choice into the user's `toolhold.toml`. Returns a message for the person.
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
