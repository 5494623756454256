//! The built-in file tools.

mod list_directory;
mod notices;
mod paths;
mod read;

berth_sdk::plugin! {
    name: "file",
    description: "Reads, writes, edits, searches and lists files",
    capabilities: [
        files(read_write) = "to read, write and edit the files that calls name",
        search = "to find files, and text in them",
    ],
    tools: [
        read::Read,
        list_directory::ListDirectory,
    ],
}
