//! The colours of the screen: only the sixteen colours that the user can change in the terminal.

use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Plain,
    /// Names and headings.
    Strong,
    /// Details, and the model's thinking.
    Faint,
    Emphasis,
    Struck,
    Code,
    Link,
    /// The person's messages.
    Person,
    Tool,
    Added,
    Removed,
    Good,
    Warning,
    Bad,
    /// The choice that Enter takes.
    Selected,
}

/// The styles of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    has_colours: bool,
}

impl Theme {
    /// Makes a theme. Without colours, text is bold, underlined or reversed instead.
    pub fn new(has_colours: bool) -> Self {
        Self { has_colours }
    }

    /// Makes a theme with colours, unless `NO_COLOR` is set.
    pub fn from_environment() -> Self {
        let no_colour = std::env::var_os("NO_COLOR").unwrap_or_default();
        Self::new(no_colour.is_empty())
    }

    pub(crate) fn style(self, role: Role) -> Style {
        let (colour, modifier) = match role {
            Role::Plain => (None, Modifier::empty()),
            Role::Strong => (None, Modifier::BOLD),
            Role::Faint => (None, Modifier::DIM),
            Role::Emphasis => (None, Modifier::ITALIC),
            Role::Struck => (None, Modifier::CROSSED_OUT),
            Role::Code => (Some(Color::Cyan), Modifier::empty()),
            Role::Link => (Some(Color::Blue), Modifier::UNDERLINED),
            Role::Person => (Some(Color::Cyan), Modifier::BOLD),
            Role::Tool => (Some(Color::Magenta), Modifier::BOLD),
            Role::Added => (Some(Color::Green), Modifier::empty()),
            Role::Removed => (Some(Color::Red), Modifier::empty()),
            Role::Good => (Some(Color::Green), Modifier::BOLD),
            Role::Warning => (Some(Color::Yellow), Modifier::BOLD),
            Role::Bad => (Some(Color::Red), Modifier::BOLD),
            Role::Selected => (None, Modifier::REVERSED),
        };
        let style = Style::new().add_modifier(modifier);
        match colour {
            Some(colour) if self.has_colours => style.fg(colour),
            Some(_) | None => style,
        }
    }
}
