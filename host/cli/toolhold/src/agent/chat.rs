//! `toolhold chat` in lines, and the choice between lines and a full screen.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::sync::Arc;

use toolhold_agent::{RunEvent, RunEvents};
use toolhold_core::HostError;
use toolhold_models::Part;
use toolhold_skills::CustomCommands;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::interrupt::Interrupts;
use toolhold_terminal::style::{STRONG, note};

use crate::agent::full_screen::chat_on_screen;
use crate::agent::lenient::offer_lenient;
use crate::agent::printer::Printer;
use crate::agent::run::{Opened, open, remove_old_sessions};
use crate::agent::{MakeHost, Surroundings};
use crate::arguments::agent::ChatArguments;

/// The most bytes of a message.
const MAX_MESSAGE: u64 = 1024 * 1024;

pub(crate) async fn chat(
    arguments: &ChatArguments,
    around: &Surroundings<'_>,
    host: impl MakeHost,
) -> Result<Exit, CommandError> {
    let interrupts = Interrupts::listen()?;
    let commands =
        CustomCommands::find(around.folders, around.directory, toolhold_tui::is_command)?;
    if !arguments.plain && toolhold_tui::fits() {
        return chat_on_screen(arguments, around, host, &interrupts, commands).await;
    }
    for notice in commands.notices() {
        note(&notice)?;
    }
    let approver = Arc::clone(&around.approver);
    let Opened { mut agent, id, .. } = open(&arguments.session, around, approver, host).await?;
    let directory = around.directory.display().to_string();
    let mut session_event = Some(RunEvent::Session { id, directory });
    let mut has_offered_lenient = false;
    loop {
        let message = tokio::task::spawn_blocking(read_message)
            .await
            .map_err(|error| HostError::Config(error.to_string()))??;
        let Some(message) = message else { break };

        let cancel = interrupts.arm();
        let mut printer = Printer::new(false, !arguments.plain, cancel.clone());
        if let Some(event) = session_event.take() {
            printer.event(event);
        }
        match message.trim() {
            "" => {}
            "/exit" => break,
            "/compact" => agent.compact(&mut printer, &cancel).await,
            "/status" => {
                let text = agent.status().join("\n");
                printer.event(RunEvent::Notice { text });
            }
            typed => match commands.expand(typed) {
                Ok(None) if is_of_screen(typed) => {
                    let list = list_commands(&commands);
                    let text =
                        format!("{typed} works only in the full screen of a chat; here, {list}");
                    printer.event(RunEvent::Notice { text });
                }
                Ok(None) if typed.starts_with('/') && !typed.contains(char::is_whitespace) => {
                    let text = list_commands(&commands);
                    printer.event(RunEvent::Notice { text });
                }
                Ok(expanded) => {
                    let message = expanded.unwrap_or_else(|| typed.to_owned());
                    agent.run(vec![Part::Text(message)], &mut printer, &cancel).await;
                }
                Err(error) => printer.event(RunEvent::Notice { text: error.to_string() }),
            },
        }
        interrupts.disarm();

        if !has_offered_lenient && let Some(model) = agent.suggested_lenient_model() {
            has_offered_lenient = true;
            if offer_lenient(model, around).await? {
                agent.be_lenient();
            }
        }
    }
    remove_old_sessions(around);
    Ok(Exit::Success)
}

/// Checks whether a message is a command of the full screen. Only `/model` can have an argument.
fn is_of_screen(typed: &str) -> bool {
    toolhold_tui::is_command(typed) || typed.starts_with("/model ")
}

fn list_commands(commands: &CustomCommands) -> String {
    let mut text = "the commands are /compact, /status, /exit".to_owned();
    for command in commands.usable() {
        text.push_str(&format!(", /{}", command.name));
    }
    text
}

/// Reads the next message, a line of stdin. Returns `None` at the end of stdin.
fn read_message() -> Result<Option<String>, CommandError> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        let mut err = anstream::stderr();
        write!(err, "{STRONG}>{STRONG:#} ")?;
        err.flush()?;
    }
    let mut line = Vec::new();
    // One byte more than the limit is the line end, or shows that the message is too long.
    let mut limited = stdin.lock().take(MAX_MESSAGE + 1);
    limited
        .read_until(b'\n', &mut line)
        .map_err(|error| CommandError::Usage(format!("stdin can't be read: {error}")))?;
    if line.is_empty() {
        return Ok(None);
    }
    let is_too_long = line.len() as u64 > MAX_MESSAGE && !line.ends_with(b"\n");
    if is_too_long {
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
