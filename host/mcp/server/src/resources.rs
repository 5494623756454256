//! MCP resources: answers that were cut, and the audit entries of the client's session.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::{Audience, Category, Host, Request, Session, Trail, fenced};

pub(crate) const OWN_SCHEME: &str = "toolhold://";

const RECORD_URI: &str = "toolhold://record";

/// Prefix of the addresses of answers that were cut.
const CUT_ANSWER_PREFIX: &str = "toolhold://kept/";

/// Number of audit entries that are searched. Older entries aren't found.
const MAX_RECORDS: usize = 2000;

/// The tool that reads an answer that was cut.
const READ_TOOL: &str = "read_overflow";

pub(crate) fn definitions() -> Vec<Resource> {
    let record =
        Resource::new(RECORD_URI, "record").with_title("The record of this session's calls");
    let description = "One JSON object per line, the newest last: the call, the decision with its rule, and the outcome";
    vec![record.with_description(description).with_mime_type("text/plain")]
}

pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let kept = ResourceTemplate::new(format!("{CUT_ANSWER_PREFIX}{{id}}{{?offset,limit}}"), "kept")
        .with_title("An answer that was cut");
    let description = "The id is in the answer, in the notice about the omitted part; offset and \
                       limit count characters";
    vec![kept.with_description(description).with_mime_type("text/plain")]
}

/// Reads a resource of Toolhold itself: a stored answer or the record of the session.
pub(crate) async fn read(
    host: &Host,
    session: &Session,
    folders: &Folders,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let text = if let Some(address) = uri.strip_prefix(CUT_ANSWER_PREFIX) {
        read_kept(host, session, address).await?
    } else if uri == RECORD_URI {
        let records = read_records(session, folders.clone()).await?;
        // Tools and models wrote parts of these entries, so the entries are marked as untrusted.
        fenced("record", &records)
    } else {
        return Err(not_found(uri));
    };
    let contents = ResourceContents::text(text, uri).with_mime_type("text/plain");
    Ok(ReadResourceResult::new(vec![contents]))
}

pub(crate) fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })))
}

/// Reads a part of a stored answer with a call of a tool, so that the host checks and records the
/// access. `address` is the ID of the answer with the query.
async fn read_kept(host: &Host, session: &Session, address: &str) -> Result<String, ErrorData> {
    let request = Request {
        session: Some(session.clone()),
        audience: Audience::Model,
        ..Request::new(READ_TOOL, parse_kept_address(address)?)
    };
    let failure = match host.call(request).await.outcome {
        Ok(output) => return Ok(output.joined_text()),
        Err(failure) => failure,
    };
    let is_missing = failure.code.as_deref() == Some("not-found");
    if is_missing || failure.category == Category::InvalidParameters {
        return Err(not_kept(address));
    }
    Err(ErrorData::internal_error(failure.message, None))
}

fn not_kept(address: &str) -> ErrorData {
    not_found(&format!("{CUT_ANSWER_PREFIX}{address}"))
}

/// Converts the address of a stored answer to the arguments of [`READ_TOOL`].
fn parse_kept_address(address: &str) -> Result<Value, ErrorData> {
    let (id, query) = address.split_once('?').unwrap_or((address, ""));
    let mut arguments = json!({ "id": id });
    for pair in query.split('&') {
        if pair.is_empty() {
            continue;
        }
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        if !matches!(name, "offset" | "limit") {
            return Err(not_kept(address));
        }
        let number: u64 = text.parse().map_err(|_| not_kept(address))?;
        arguments[name] = json!(number);
    }
    Ok(arguments)
}

/// Removes the reason from a model's decision on a call, because the call's agent reads this record
/// and could argue against the reason.
fn without_reason(mut record: Value) -> Value {
    const DECISION: &str = "adversarial_policy_decision";
    if let Some(Value::String(decision)) = record.get_mut(DECISION)
        && let Some((verdict, _reason)) = decision.split_once(':')
    {
        *decision = verdict.to_owned();
    }
    record
}

fn unreadable_record(why: impl std::error::Error) -> ErrorData {
    ErrorData::internal_error(format!("the record can't be read: {why}"), None)
}

/// Reads the session's entries among the last [`MAX_RECORDS`] entries.
async fn read_records(session: &Session, folders: Folders) -> Result<String, ErrorData> {
    let joined =
        tokio::task::spawn_blocking(move || Trail::open(&folders)?.last(MAX_RECORDS)).await;
    let result = joined.map_err(unreadable_record)?;
    let records = result.map_err(unreadable_record)?;
    let session_name = Value::String(session.name().to_string());
    let mut text = String::new();
    for record in records {
        if record["session"] == session_name {
            text += &format!("{}\n", without_reason(record));
        }
    }
    Ok(text)
}
