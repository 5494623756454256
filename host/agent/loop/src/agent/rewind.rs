//! Takes the conversation back to an earlier message of the person.

use super::Agent;
use crate::AgentError;
use crate::conversation::Conversation;
use crate::events::{RunEvent, RunEvents};
use crate::record::{EarlierMessage, Recorded, Rewound, SessionEntry};

impl Agent {
    /// Returns the person's messages in the conversation, oldest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the session file can't be read.
    pub async fn earlier_messages(&self) -> Result<Vec<EarlierMessage>, AgentError> {
        self.file.read(EarlierMessage::read_all).await
    }

    /// Takes the conversation back to the entry before `message`. The later entries stay in the
    /// session file, but the model no longer gets them. The person sees `notice`.
    ///
    /// # Errors
    ///
    /// Returns an error if the step back can't be recorded, or if the session file can't be read.
    pub async fn rewind(
        &mut self,
        message: &EarlierMessage,
        notice: String,
        events: &mut dyn RunEvents,
    ) -> Result<(), AgentError> {
        let rewound = Rewound { to: message.entry, notice: notice.clone() };
        self.append(&SessionEntry::Rewound(rewound)).await?;
        // Read the conversation again, because messages that a summary replaced may be back in it.
        let recorded = self.file.read(Recorded::read).await?;
        self.conversation = Conversation::from_recorded(&recorded);
        self.measure();
        events.event(RunEvent::Notice { text: notice });
        Ok(())
    }
}
