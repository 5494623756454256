//! The full screen of `toolhold chat`.
//!
//! Only events and input change the [`ScreenState`], so tests need no terminal. A [`Screen`] draws
//! the state on the terminal, and turns keys into [`ScreenEffect`]s.

mod call;
mod complete;
mod editor;
mod effect;
mod inbox;
mod keys;
mod layout;
mod markdown;
mod question;
mod screen;
mod state;
mod terminal;
#[cfg(test)]
mod tests;
mod theme;
mod transcript;
mod view;

pub use complete::is_command;
pub use editor::MAX_MESSAGE;
pub use effect::ScreenEffect;
pub use inbox::{FoundPaths, FromSession, ScreenApprover, SessionEvents};
pub use screen::{Screen, ScreenHandle};
pub use state::{About, ScreenState};
pub use terminal::{fits, restore};
pub use theme::Theme;
