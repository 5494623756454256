//! The effects that input on the screen has outside of it, such as a message to the agent.

use toolhold_core::{InquiryAnswer, Reply};

/// What has to be done.
#[derive(Debug, PartialEq)]
pub enum ScreenEffect {
    /// This message goes to the agent.
    Send(String),
    /// The older part of the conversation is summarised.
    Compact,
    /// A new session begins.
    Clear,
    /// The person wants to choose another session.
    Resume,
    /// The person wants to undo what a call changed.
    Undo,
    /// What runs is interrupted.
    Interrupt,
    /// The question of this ID is answered.
    Reply(String, Reply),
    /// A tool's own question with this text is answered.
    Inform(String, InquiryAnswer),
    /// The paths are wanted that begin so.
    Complete(String),
    /// The choice in a dialog. `None`: none of them.
    Picked(Option<usize>),
    /// The message is kept for later chats.
    Remember(String),
    /// The conversation is shown on the normal screen.
    ShowTranscript,
    /// The process stops until it is continued.
    Suspend,
    /// The person is told that Toolhold needs them.
    Notify,
    /// The chat ends.
    Leave,
}
