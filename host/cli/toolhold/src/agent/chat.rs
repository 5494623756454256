//! `toolhold chat` in lines, and the choice between lines and a full screen.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use toolhold_agent::{RunEvent, RunEvents};
use toolhold_core::HostError;
use toolhold_models::Part;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::interrupt::Interrupts;
use toolhold_terminal::style::STRONG;

use crate::agent::full_screen::chat_on_screen;
use crate::agent::lenient::offer_lenient;
use crate::agent::printer::Printer;
use crate::agent::run::{Opened, open, remove_old};
use crate::agent::{MakeHost, Surroundings};
use crate::arguments::agent::ChatArguments;

/// Bytes of a message.
const MAX_MESSAGE: u64 = 1024 * 1024;

/// Runs a chat until the person ends it.
///
/// # Errors
///
/// Returns an error if no model is configured, or if the session can't be used.
pub(crate) async fn chat(
    arguments: &ChatArguments,
    around: &Surroundings<'_>,
    host: impl MakeHost,
) -> Result<Exit, CommandError> {
    let interrupts = Interrupts::listen()?;
    if !arguments.plain && toolhold_tui::fits() {
        return chat_on_screen(arguments, around, host, &interrupts).await;
    }
    let approver = Arc::clone(&around.approver);
    let Opened { mut agent, id, .. } = open(&arguments.session, around, approver, host).await?;
    let directory = around.directory.display().to_string();
    let mut first = Some(RunEvent::Session { id, directory });
    let mut is_offered = false;
    loop {
        let message = tokio::task::spawn_blocking(read_message)
            .await
            .map_err(|error| HostError::Config(error.to_string()))??;
        let Some(message) = message else { break };

        let cancel = interrupts.arm();
        let mut printer = Printer::new(false, !arguments.plain, cancel.clone());
        if let Some(session) = first.take() {
            printer.event(session);
        }
        match message.trim() {
            "" => {}
            "/exit" => break,
            "/compact" => agent.compact(&mut printer, &cancel).await,
            "/status" => {
                let text = agent.status().join("\n");
                printer.event(RunEvent::Notice { text });
            }
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                let text = "the commands are `/compact`, `/status` and `/exit`".to_owned();
                printer.event(RunEvent::Notice { text });
            }
            message => {
                agent.run(vec![Part::Text(message.to_owned())], &mut printer, &cancel).await;
            }
        }
        interrupts.disarm();

        if !is_offered && let Some(model) = agent.wants_lenient() {
            is_offered = true;
            if offer_lenient(model, around).await? {
                agent.be_lenient();
            }
        }
    }
    remove_old(around);
    Ok(Exit::Success)
}

/// Reads the next message. Returns `None` at the end of stdin.
fn read_message() -> Result<Option<String>, CommandError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let mut err = anstream::stderr();
        write!(err, "{STRONG}>{STRONG:#} ")?;
        err.flush()?;
    }
    let mut line = Vec::new();
    let mut limited = std::io::Read::take(stdin.lock(), MAX_MESSAGE + 1);
    limited
        .read_until(b'\n', &mut line)
        .map_err(|error| CommandError::Usage(format!("stdin can't be read: {error}")))?;
    if line.is_empty() {
        return Ok(None);
    }
    // What follows the limit would become another message.
    if line.len() as u64 > MAX_MESSAGE && !line.ends_with(b"\n") {
        return Err(CommandError::Usage(format!(
            "the message is too long; the limit is {MAX_MESSAGE} bytes. Put the text into a file \
             and name the file"
        )));
    }
    match String::from_utf8(line) {
        Ok(message) => Ok(Some(message)),
        Err(_) => Err(CommandError::Usage("the message isn't UTF-8".to_owned())),
    }
}
