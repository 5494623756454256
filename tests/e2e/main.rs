//! Berth end to end: real components, hostile ones above all, against a real host and real files.
//!
//! A test of an attack looks at the effect (the file outside, the process, the other callers), not
//! only at what the answer says.

mod support;

mod answers;
mod approvals;
mod approvals_always;
mod approvals_command;
mod asking;
mod audit;
mod authoring;
mod bash;
mod budgets;
mod cache;
mod calls;
mod ceiling;
mod cli;
mod command_line;
mod comparing;
mod compiling;
mod contract;
mod counted;
mod dns;
mod docs;
mod doctor;
mod embedding;
mod escapes;
mod every_attack;
mod filters;
mod floods;
mod governed;
mod grants;
mod init;
mod install;
mod journey;
mod known_files;
mod languages;
mod limits;
mod loading;
mod lowering;
mod mcp;
mod mcp_config;
mod migrating;
mod mounts;
mod plugin_commands;
mod policy_commands;
mod processes;
mod races;
mod reached;
mod ready;
mod reload;
mod remedies;
mod requests;
mod retry;
mod secrets;
mod shell;
mod starting;
mod temporary;
mod tools;
mod transfers;
mod trust;
mod undo;
mod web;
mod words;
