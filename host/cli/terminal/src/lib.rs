//! Questions, colours, progress, exit codes and descriptions for the person at the terminal.

pub mod approval;
pub mod ask;
pub mod changed_file;
pub mod error;
pub mod exit;
pub mod inquiry;
pub mod interrupt;
pub mod live;
pub mod nearest;
pub mod new_file;
pub mod plugin_description;
pub mod progress;
pub mod shown;
pub mod style;
pub mod table;
