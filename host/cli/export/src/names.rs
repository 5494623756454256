//! The OpenTelemetry names of spans, metrics and attributes, together in one file because `gen_ai`
//! and `mcp` may still change. Toolhold's own names start with `toolhold`.

pub(crate) const SERVICE: &str = toolhold_core::NAME;

pub(crate) const SERVICE_NAME: &str = "service.name";
pub(crate) const SERVICE_VERSION: &str = "service.version";
pub(crate) const SERVICE_INSTANCE: &str = "service.instance.id";
pub(crate) const HOST_NAME: &str = "host.name";

/// The scopes of the audit log and of telemetry.
pub(crate) const AUDIT_SCOPE: &str = "toolhold.audit";
pub(crate) const CALLS_SCOPE: &str = "toolhold.calls";

pub(crate) const OPERATION: &str = "gen_ai.operation.name";
/// The operation of a call, and the start of its span's name.
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
pub(crate) const TOOL: &str = "gen_ai.tool.name";
pub(crate) const CALL_ID: &str = "gen_ai.tool.call.id";
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(crate) const USER: &str = "enduser.id";
pub(crate) const ERROR_TYPE: &str = "error.type";
/// The specification's value for other error types. Also used for unknown tools, and for tools that
/// are counted together.
pub(crate) const OTHER: &str = "_OTHER";

/// The key in the metadata of an MCP request with the caller's trace.
pub(crate) const TRACE_PARENT: &str = "traceparent";

pub(crate) const GROUPS: &str = "toolhold.groups";
pub(crate) const PROVIDER: &str = "toolhold.provider";
pub(crate) const ERROR_CODE: &str = "toolhold.error.code";
pub(crate) const CACHED: &str = "toolhold.cached";
pub(crate) const TRUNCATED: &str = "toolhold.truncated";
pub(crate) const ATTEMPTS: &str = "toolhold.attempts";
pub(crate) const WAITED: &str = "toolhold.waited_ms";
pub(crate) const VERDICT: &str = "toolhold.verdict";
pub(crate) const GATE: &str = "toolhold.gate";
pub(crate) const RULE: &str = "toolhold.rule";
pub(crate) const DENIALS: &str = "toolhold.denials";
pub(crate) const APPROVED_BY: &str = "toolhold.approval.by";
pub(crate) const APPROVAL_SCOPE: &str = "toolhold.approval.scope";
pub(crate) const STATE: &str = "toolhold.plugin.state";
pub(crate) const SIGNAL: &str = "toolhold.signal";
/// The prefix of attributes with the milliseconds of a step.
pub(crate) const STEP: &str = "toolhold.step_ms.";

/// Events of a span.
pub(crate) const DENIAL_EVENT: &str = "toolhold.denial";
pub(crate) const APPROVAL_EVENT: &str = "toolhold.approval";

/// Metrics.
pub(crate) const CALLS: &str = "toolhold.calls";
pub(crate) const DURATION: &str = "toolhold.call.duration";
pub(crate) const DENIED: &str = "toolhold.denied";
pub(crate) const APPROVALS: &str = "toolhold.approvals";
pub(crate) const PLUGINS: &str = "toolhold.plugins";
pub(crate) const DROPPED: &str = "toolhold.telemetry.dropped";

/// The prefix of attributes with the fields of a record.
pub(crate) const RECORD: &str = "toolhold.";
/// The position of a record in the log's hash chain.
pub(crate) const SEQ: &str = "toolhold.seq";
pub(crate) const HASH: &str = "toolhold.hash";
pub(crate) const PREVIOUS: &str = "toolhold.previous_hash";
pub(crate) const CHAIN: &str = "toolhold.chain";
pub(crate) const MISSING: &str = "toolhold.missing_before";
