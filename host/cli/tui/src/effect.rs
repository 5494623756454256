//! The effects of input on the rest of the program, such as a message to the agent.

use toolhold_core::{InquiryAnswer, Reply};

/// An effect that the screen asks for.
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
    /// The person wants to undo the changes of the last turn.
    Undo,
    /// The next messages go to this model.
    Model(String),
    /// The running work is interrupted.
    Interrupt,
    /// The question of this ID is answered.
    Reply(String, Reply),
    /// A tool's own question with this text is answered.
    Inform(String, InquiryAnswer),
    /// The paths that begin with this text are wanted.
    Complete(String),
    /// The choice in a dialog. `None`: the person chose nothing.
    Picked(Option<usize>),
    /// The message is saved for later chats.
    Remember(String),
    /// The conversation is shown on the normal screen.
    ShowTranscript,
    /// The process stops until it is continued.
    Suspend,
    /// The terminal tells the person that Toolhold waits.
    Notify,
    /// The chat ends.
    Leave,
}
