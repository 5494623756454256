//! The built-in plugin of `search_code`, which searches in code.

mod ask;
mod chunks;
mod files;
mod hash;
mod hit;
mod indexed_project;
mod near;
mod outline;
mod parse;
mod paths;
mod project;
mod search_code;
mod servers;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod update;
mod vectors;

toolhold_sdk::plugin! {
    name: "code",
    description: "Searches in code: definitions, uses, words and outlines",
    capabilities: [
        files(read_write) = "to read the code that calls search, and to start language servers",
        search = "to find files, and text in them",
        index = "to keep what the code defines, so that only changed files are read again",
        parts = "to parse code",
        embeddings = "to find code by what it means, if you choose a model for that",
        process = "to start language servers, if the operator wants them",
        service = "to ask the same language server again in a session",
    ],
    tools: [search_code::SearchCode],
}
