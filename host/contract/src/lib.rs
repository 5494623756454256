//! The types of a tool call, and the trait of all sources of tools.
//!
//! This crate does no I/O and doesn't know WebAssembly, because front ends, providers and policy
//! all use these types.

/// The name of the product in commands, folders, protocols and packages.
pub const NAME: &str = "toolhold";

mod bounded_output;
mod built_in;
mod call;
mod caller;
mod changes;
mod command_judge;
mod connections;
mod definition;
mod denial;
mod error;
mod feedback;
mod filter;
mod future;
mod hosts;
mod inquiry;
mod job_servers;
mod jobs;
mod offers;
mod output;
mod output_recorder;
mod path_rules;
mod provider;
mod report;
mod services;
mod session_network;
mod shell_session;
mod tasks;
mod terminal;
pub mod text;
mod untrusted;

pub use bounded_output::BoundedOutput;
pub use built_in::{BUILT_IN_PLUGINS, BuiltInGrant, BuiltInPlugin};
pub use call::{
    Call, CallCommands, CallId, CallRequests, Events, NoEvents, Progress, Rollback, Snapshot,
};
pub use caller::{CallerInfo, CallerSource};
pub use changes::{ChangeRecorder, ChangedPath};
pub use command_judge::{CommandApprover, JudgedCommand};
pub use connections::{ConnectionGate, ProgramConnection};
pub use definition::{
    Access, Annotations, ChangeArguments, Definition, PreviewArguments, Role, Subject, SubjectKind,
    ToolArgument,
};
pub use denial::Denial;
pub use error::{Category, Failure, HOST_CODES, HostError};
pub use filter::{
    Confidence, FilterDefinition, FilterInput, FilterVerdict, Matcher, Pattern, Purpose,
};
pub use future::BoxFuture;
pub use hosts::{HostApprover, OpenWait, WaitClock, WantedHost};
pub use inquiry::{Inquirer, Inquiry, InquiryAnswer, Wanted};
pub use job_servers::{JobServer, JobServers, NoJobServer};
pub use jobs::{JobCommand, JobEnd, JobPlace, JobPlaceError, JobStarter};
pub use offers::{Offers, PromptOffer, PromptOfferArgument, ResourceOffer};
pub use output::{Body, Content, Output};
pub use output_recorder::{OutputRecorder, OutputStream};
pub use path_rules::{PathRefusal, PathRules};
pub use provider::{Outcome, ProgramState, ToolSource, ToolSourceState};
pub use report::{
    CommandOutput, FileState, LeftOut, Lookup, PathState, ReadFile, ReadFiles, Report,
    ReportEntries, RequestRecord,
};
pub use services::{ServiceKeeper, ServiceKey, ServicePlace, ServicePlaceError, ServiceProgram};
pub use session_network::SessionNetwork;
pub use shell_session::ShellSession;
pub use tasks::{TaskAction, TaskBook, TaskError, TaskOrder, TaskRun, TaskState};
pub use tokio_util::sync::CancellationToken;
pub use untrusted::UntrustedText;
