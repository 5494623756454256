//! Reads and changes the files in which MCP clients, such as editors, store their servers.

mod cached;
mod change;
mod edit;
mod error;
mod known;
mod read;
mod remove;
mod settings;
mod values;

pub use cached::install_command;
pub use change::{revert, set};
pub use edit::{edit, new_table_prefix, without};
pub use error::ClientFileError;
pub use known::{CLIENTS, Client, ClientError, Format, ServerConfig};
pub use read::{EntryError, NamedServer, ReadServer, ServerEntry, servers, variable};
pub use remove::without_tables;
pub use settings::{ClientState, Setting};
