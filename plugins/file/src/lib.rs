//! The built-in file tools.

mod edit;
mod find_path;
mod grep;
mod list_directory;
mod notices;
mod paths;
mod read;
mod replace;
mod write;

berth_sdk::plugin! {
    name: "file",
    description: "Reads, writes, edits, searches and lists files",
    capabilities: [
        files(read_write) = "to read, write and edit the files that calls name",
        search = "to find files, and text in them",
    ],
    tools: [
        read::Read,
        write::Write,
        edit::Edit,
        grep::Grep,
        find_path::FindPath,
        list_directory::ListDirectory,
    ],
}
