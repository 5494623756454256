//! The names of OpenTelemetry that Berth uses. Those of `gen_ai` and `mcp` are still in
//! development, so they all stand here. Names of Berth's own begin with `berth`.

/// The name of this service.
pub(crate) const SERVICE: &str = "berth";

pub(crate) const SERVICE_NAME: &str = "service.name";
pub(crate) const SERVICE_VERSION: &str = "service.version";
pub(crate) const SERVICE_INSTANCE: &str = "service.instance.id";
pub(crate) const HOST_NAME: &str = "host.name";

/// The scopes of the three signals.
pub(crate) const AUDIT_SCOPE: &str = "berth.audit";
pub(crate) const CALLS_SCOPE: &str = "berth.calls";

pub(crate) const OPERATION: &str = "gen_ai.operation.name";
/// The operation of a call, and the beginning of its span's name.
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
pub(crate) const TOOL: &str = "gen_ai.tool.name";
pub(crate) const CALL_ID: &str = "gen_ai.tool.call.id";
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
pub(crate) const ERROR_TYPE: &str = "error.type";
/// What the specification has for an error type that isn't listed, and Berth for a tool that
/// doesn't exist or is one too many.
pub(crate) const OTHER: &str = "_OTHER";

/// The key of the caller's trace in what it sends beside the arguments, as MCP has it.
pub(crate) const TRACE_PARENT: &str = "traceparent";

pub(crate) const PROVIDER: &str = "berth.provider";
pub(crate) const ERROR_CODE: &str = "berth.error.code";
pub(crate) const CACHED: &str = "berth.cached";
pub(crate) const TRUNCATED: &str = "berth.truncated";
pub(crate) const ATTEMPTS: &str = "berth.attempts";
pub(crate) const WAITED: &str = "berth.waited_ms";
pub(crate) const VERDICT: &str = "berth.verdict";
pub(crate) const GATE: &str = "berth.gate";
pub(crate) const RULE: &str = "berth.rule";
pub(crate) const DENIALS: &str = "berth.denials";
pub(crate) const APPROVED_BY: &str = "berth.approval.by";
pub(crate) const APPROVAL_SCOPE: &str = "berth.approval.scope";
pub(crate) const STATE: &str = "berth.plugin.state";
pub(crate) const SIGNAL: &str = "berth.signal";
/// Milliseconds of each step, after this prefix.
pub(crate) const STEP: &str = "berth.step_ms.";

/// Events of a span.
pub(crate) const DENIAL_EVENT: &str = "berth.denial";
pub(crate) const APPROVAL_EVENT: &str = "berth.approval";

/// Metrics.
pub(crate) const CALLS: &str = "berth.calls";
pub(crate) const DURATION: &str = "berth.call.duration";
pub(crate) const DENIED: &str = "berth.denied";
pub(crate) const APPROVALS: &str = "berth.approvals";
pub(crate) const PLUGINS: &str = "berth.plugins";
pub(crate) const DROPPED: &str = "berth.telemetry.dropped";

/// Each field of a record, after this prefix.
pub(crate) const RECORD: &str = "berth.";
/// The chain's fields of a record.
pub(crate) const SEQ: &str = "berth.seq";
pub(crate) const HASH: &str = "berth.hash";
pub(crate) const PREVIOUS: &str = "berth.previous_hash";
pub(crate) const CHAIN: &str = "berth.chain";
pub(crate) const MISSING: &str = "berth.missing_before";
