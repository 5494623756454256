//! Computes the fingerprint of a call from its tool, arguments, real paths and attachments.

use sha2::{Digest, Sha256};
use toolhold_catalogue::CallContext;
use toolhold_contract::{Body, Content};
use toolhold_policy::{Decision, canonical};

use super::AttachmentSummary;
use crate::fingerprint::Fingerprint;

impl Fingerprint {
    /// Computes the fingerprint of a call with resolved subjects.
    ///
    /// The subjects contain real paths. Another spelling of a path gives the same fingerprint, and
    /// a changed link gives another fingerprint. `file_digest` is the SHA-256 of the file in the
    /// preview, or of the files that a command starts.
    pub(crate) fn for_call(context: &CallContext, file_digest: Option<&[u8; 32]>) -> Self {
        let tool = context.tool.as_deref();
        let tool_name = tool.map_or(&*context.requested_tool, |tool| &tool.definition.name);
        let provider = tool.map_or("", |tool| tool.provider.name());
        let plugin = tool.and_then(|tool| tool.plugin.as_ref());
        let plugin_digest = plugin.map_or("", |plugin| &plugin.info().digest);
        let file_part: &[u8] = match file_digest {
            Some(digest) => digest,
            None => &[],
        };

        let mut hash = Sha256::new();
        add(&mut hash, tool_name.as_bytes());
        add(&mut hash, provider.as_bytes());
        add(&mut hash, plugin_digest.as_bytes());
        add(&mut hash, canonical(&context.arguments).as_bytes());
        add(&mut hash, file_part);
        for subject in &context.subjects {
            add(&mut hash, subject.text.as_bytes());
        }
        for content in &context.attachments {
            let (kind, bytes) = kind_and_bytes(content);
            let media_type = content.media_type.as_deref().unwrap_or_default();
            let meta = content.meta.as_ref().map(canonical).unwrap_or_default();
            add(&mut hash, kind.as_bytes());
            add(&mut hash, bytes);
            add(&mut hash, media_type.as_bytes());
            add(&mut hash, meta.as_bytes());
        }
        Self(hash.finalize().into())
    }

    /// Computes the fingerprint of the same call after a model has denied it. An approval from
    /// before the denial doesn't apply, because the person didn't know the denial.
    pub(crate) fn after_review(self) -> Self {
        Self(Sha256::new_with_prefix("review").chain_update(self.0).finalize().into())
    }

    /// Computes the common fingerprint of a tool's calls to the same hosts. Calls that only read
    /// and calls that act have different fingerprints. Returns `None` if the call uses no hosts.
    ///
    /// If only the hosts needed approval, an approval for the session applies to this fingerprint.
    pub(crate) fn for_hosts(context: &CallContext) -> Option<Self> {
        let action = context.action()?;
        let origins = toolhold_policy::origins(&action);
        if origins.is_empty() {
            return None;
        }
        let plugin = context.tool.as_ref()?.plugin.as_ref();
        let plugin_digest = plugin.map_or("", |plugin| &plugin.info().digest);
        let effect = if action.acts() { "acts" } else { "reads" };

        let mut hash = Sha256::new();
        for part in ["hosts", effect, action.tool, action.provider, plugin_digest] {
            add(&mut hash, part.as_bytes());
        }
        for origin in &origins {
            add(&mut hash, origin.as_bytes());
        }
        Some(Self(hash.finalize().into()))
    }

    /// Computes the fingerprint of a host that programs of the tool's commands reach. An approval
    /// for the session applies to all commands.
    pub(crate) fn for_program_host(context: &CallContext, entry: &str) -> Self {
        let tool = context.tool.as_deref();
        let tool_name = tool.map_or(&*context.requested_tool, |tool| &tool.definition.name);
        let plugin = tool.and_then(|tool| tool.plugin.as_ref());
        let plugin_digest = plugin.map_or("", |plugin| &plugin.info().digest);

        let mut hash = Sha256::new();
        for part in ["host of programs", tool_name, plugin_digest, entry] {
            add(&mut hash, part.as_bytes());
        }
        Self(hash.finalize().into())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct WideFingerprints {
    /// All calls of the tool that need approval by the same rule.
    pub(crate) tool: Fingerprint,
    /// All calls of the plugin or server that need approval by the same rule.
    pub(crate) source: Fingerprint,
}

impl WideFingerprints {
    /// Computes the fingerprints for an approval of the call's tool and of the tool's source. Both
    /// contain the deciding rule and the plugin's digest. Returns `None` if no tool was found.
    pub(crate) fn for_call(context: &CallContext, decision: &Decision) -> Option<Self> {
        let action = context.action()?;
        let plugin = context.tool.as_ref()?.plugin.as_ref();
        let plugin_digest = plugin.map_or("", |plugin| &plugin.info().digest);
        let shared_parts = [
            action.provider,
            plugin_digest,
            decision.gate.as_str(),
            &*decision.rule,
            &*decision.place,
        ];

        let mut source_hash = Sha256::new();
        add(&mut source_hash, b"source");
        let mut tool_hash = Sha256::new();
        add(&mut tool_hash, b"tool");
        add(&mut tool_hash, action.tool.as_bytes());
        for part in shared_parts {
            add(&mut source_hash, part.as_bytes());
            add(&mut tool_hash, part.as_bytes());
        }
        let tool = Fingerprint(tool_hash.finalize().into());
        let source = Fingerprint(source_hash.finalize().into());
        Some(Self { tool, source })
    }
}

/// Describes an attachment for the person who is asked for approval.
pub(crate) fn summarize(content: &Content) -> AttachmentSummary {
    let (_kind, bytes) = kind_and_bytes(content);
    let text = match &content.body {
        Body::Text(text) | Body::Link(text) => Some(text.clone()),
        Body::Bytes(_) => None,
    };
    AttachmentSummary {
        media_type: content.media_type.clone(),
        bytes: bytes.len(),
        sha256: format!("{:x}", Sha256::digest(bytes)),
        text,
    }
}

fn add(hash: &mut Sha256, part: &[u8]) {
    // The length comes first, so that text can't move from one part to the next.
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn kind_and_bytes(content: &Content) -> (&'static str, &[u8]) {
    match &content.body {
        Body::Text(text) => ("text", text.as_bytes()),
        Body::Link(uri) => ("link", uri.as_bytes()),
        Body::Bytes(bytes) => ("bytes", bytes),
    }
}
