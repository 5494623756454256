//! The effects of the person's input.

use toolhold_core::{InquiryAnswer, Reply};

/// An effect of the person's input on the session, the screen or the process.
#[derive(Debug, PartialEq)]
pub enum ScreenEffect {
    /// Send this message to the agent.
    Send(String),
    /// Summarise the older part of the conversation.
    Compact,
    /// Start a new session.
    Clear,
    /// Let the person choose another session.
    Resume,
    /// Undo the changes of the last turn.
    Undo,
    /// Let the person go back to an earlier message.
    Rewind,
    /// Use this model for the next messages.
    Model(String),
    /// Interrupt the running work.
    Interrupt,
    /// Answer the question with this ID.
    Reply(String, Reply),
    /// Answer the tool's question with this text.
    Inform(String, InquiryAnswer),
    /// Find the paths that start with this string.
    Complete(String),
    /// Report the choice in a dialog by its index, or `None` if the person chose nothing.
    Picked(Option<usize>),
    /// Save this message for later chats.
    Remember(String),
    /// Show the conversation on the normal screen.
    ShowTranscript,
    /// Stop the process until it is continued.
    Suspend,
    /// Show a notification of the terminal.
    Notify,
    /// End the chat.
    Leave,
}
