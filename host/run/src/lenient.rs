//! The offer to let a model's JSON texts count as calls.

use std::io::Write;

use berth_core::HostError;
use berth_core::config::insert;
use berth_core::text::neutral_line;
use berth_terminal::ask;
use berth_terminal::error::CommandError;
use berth_terminal::style::STRONG;

use crate::Surroundings;

/// Asks at a terminal whether such texts of `model`, a `PROVIDER/MODEL`, count from now on, and
/// writes it into the user's `berth.toml`. `true`: they do.
pub(crate) async fn offer_lenient(
    model: String,
    around: &Surroundings<'_>,
) -> Result<bool, CommandError> {
    let Some(mut dialogue) = ask::open_dialogue("such calls are not made") else {
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

/// Writes it into the user's `berth.toml`. Returns what to tell the person.
pub(crate) async fn write_lenient(
    model: String,
    around: &Surroundings<'_>,
) -> Result<String, CommandError> {
    let folders = around.folders.clone();
    let written =
        tokio::task::spawn_blocking(move || insert::lenient_model(&folders, &model)).await;
    let file = written.map_err(|error| HostError::Config(error.to_string()))??;
    Ok(format!("`lenient_models` in [agent] of {} has it now.", file.display()))
}
