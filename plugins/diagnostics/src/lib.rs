//! The built-in plugin of `diagnostics`, which runs the compilers and linters of a project.

mod checker;
mod diagnostics;
mod finding;
mod parse;
mod pieces;
mod project;
mod references;
mod report;
mod run;
mod seen;

toolhold_sdk::plugin! {
    name: "diagnostics",
    description: "Runs the compilers and linters of a project",
    capabilities: [
        files(read_write) = "to find out what kind of project a folder has, and for what its compilers write",
        process = "to run its compilers and linters",
        store = "to know which diagnostics are new",
    ],
    tools: [diagnostics::Diagnostics],
}
