//! Computes the fingerprint of a call from its tool, its arguments, its real paths and its
//! attachments.

use sha2::{Digest, Sha256};
use toolhold_catalogue::CallContext;
use toolhold_contract::{Body, Content};
use toolhold_policy::{Decision, canonical};

use super::AttachmentSummary;
use crate::fingerprint::Fingerprint;

impl Fingerprint {
    /// Computes the fingerprint of a call with resolved subjects.
    ///
    /// Paths are real paths. So another spelling of a path gives the same fingerprint, and a link
    /// with a new target gives another one. `file` is the SHA-256 of the file that the preview
    /// shows, or of the files that a command starts.
    pub(crate) fn for_call(context: &CallContext, file: Option<&[u8; 32]>) -> Self {
        let tool = context.tool.as_deref();
        let tool_name = tool.map_or(&*context.requested_tool, |tool| &tool.definition.name);
        let provider = tool.map_or("", |tool| tool.provider.name());
        let plugin = tool.and_then(|tool| tool.plugin.as_ref());
        let plugin_digest = plugin.map_or("", |plugin| &plugin.info().digest);
        let file_digest = file.map_or(&[][..], |file| &file[..]);

        let mut hash = Sha256::new();
        add(&mut hash, tool_name.as_bytes());
        add(&mut hash, provider.as_bytes());
        add(&mut hash, plugin_digest.as_bytes());
        add(&mut hash, canonical(&context.arguments).as_bytes());
        add(&mut hash, file_digest);
        for subject in &context.subjects {
            add(&mut hash, subject.text.as_bytes());
        }
        for content in &context.attachments {
            let (kind, bytes) = raw(content);
            add(&mut hash, kind.as_bytes());
            add(&mut hash, bytes);
            add(&mut hash, content.media_type.as_deref().unwrap_or_default().as_bytes());
            add(&mut hash, content.meta.as_ref().map(canonical).unwrap_or_default().as_bytes());
        }
        Self(hash.finalize().into())
    }

    /// Computes the fingerprint of the same call after a model has denied it. An earlier approval
    /// of the call doesn't apply, because the person didn't know about the denial.
    pub(crate) fn after_review(self) -> Self {
        Self(Sha256::new_with_prefix("review").chain_update(self.0).finalize().into())
    }

    /// Computes the fingerprint of all calls of a tool that use the same hosts and that all read or
    /// all act. Returns `None` if the call uses no hosts.
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
        let acts = if action.acts() { "acts" } else { "reads" };

        let mut hash = Sha256::new();
        for part in ["hosts", acts, action.tool, action.provider, plugin_digest] {
            add(&mut hash, part.as_bytes());
        }
        for origin in &origins {
            add(&mut hash, origin.as_bytes());
        }
        Some(Self(hash.finalize().into()))
    }
}

/// The calls that one approval for the session covers, if it covers more than identical ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideFingerprints {
    /// All calls of the tool.
    pub(crate) tool: Fingerprint,
    /// All calls of every tool of the plugin or server.
    pub(crate) source: Fingerprint,
}

impl WideFingerprints {
    /// Computes them for a call that needs approval by a decision. They apply to calls that need it
    /// by the same rule, and to the same version of a plugin. Returns `None` if the call isn't
    /// decided on yet.
    pub(crate) fn for_call(context: &CallContext, decision: &Decision) -> Option<Self> {
        let action = context.action()?;
        let plugin = context.tool.as_ref()?.plugin.as_ref();
        let plugin_digest = plugin.map_or("", |plugin| &plugin.info().digest);
        let shared = [
            action.provider,
            plugin_digest,
            decision.gate.as_str(),
            &*decision.rule,
            &*decision.place,
        ];

        let mut source = Sha256::new();
        add(&mut source, b"source");
        let mut tool = Sha256::new();
        add(&mut tool, b"tool");
        add(&mut tool, action.tool.as_bytes());
        for part in shared {
            add(&mut source, part.as_bytes());
            add(&mut tool, part.as_bytes());
        }
        let tool = Fingerprint(tool.finalize().into());
        let source = Fingerprint(source.finalize().into());
        Some(Self { tool, source })
    }
}

/// Describes an attachment for a person.
pub(crate) fn summarize(content: &Content) -> AttachmentSummary {
    let (_, bytes) = raw(content);
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

fn raw(content: &Content) -> (&'static str, &[u8]) {
    match &content.body {
        Body::Text(text) => ("text", text.as_bytes()),
        Body::Link(uri) => ("link", uri.as_bytes()),
        Body::Bytes(bytes) => ("bytes", bytes),
    }
}
