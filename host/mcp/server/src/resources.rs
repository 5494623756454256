//! Offers cut answers and the audit entries of their own calls to clients, as MCP resources.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::{Audience, Category, Host, Request, Session, Trail, fenced};

/// Beginning of Toolhold's own addresses.
pub(crate) const OWN: &str = "toolhold://";

/// The records of this session's calls.
const RECORD: &str = "toolhold://record";

/// An answer that was cut, by its ID.
const KEPT: &str = "toolhold://kept/";

/// The number of records that are searched for records of this session.
const RECORDS: usize = 2000;

/// The tool that reads the rest of an answer.
const READ_ON: &str = "read_overflow";

/// The resources with a fixed address.
pub(crate) fn definitions() -> Vec<Resource> {
    let record = Resource::new(RECORD, "record").with_title("The record of this session's calls");
    let told = "One JSON object per line, the newest last: the call, the decision with its rule, and the outcome";
    vec![record.with_description(told).with_mime_type("text/plain")]
}

/// The resource templates.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let kept = ResourceTemplate::new(format!("{KEPT}{{id}}{{?offset,limit}}"), "kept")
        .with_title("An answer that was cut");
    let told = "The id is in the answer, in the notice about what is left out; offset and limit count characters";
    vec![kept.with_description(told).with_mime_type("text/plain")]
}

/// Reads a resource.
///
/// # Errors
///
/// The resource doesn't exist or can't be read.
pub(crate) async fn read(
    host: &Host,
    session: &Session,
    folders: &Folders,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let (text, media_type) = match uri.strip_prefix(KEPT) {
        Some(id) => (read_kept(host, session, id).await?, "text/plain"),
        // Arguments and reasons in it are words of others.
        None if uri == RECORD => {
            (fenced("record", &record(session, folders.clone()).await?), "text/plain")
        }
        None => return Err(not_found(uri)),
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(media_type)]))
}

pub(crate) fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })))
}

/// A part of a stored answer: a call of the tool that reads it, under the same rules as any call,
/// and recorded as one.
async fn read_kept(host: &Host, session: &Session, asked: &str) -> Result<String, ErrorData> {
    let (id, query) = asked.split_once('?').unwrap_or((asked, ""));
    let mut arguments = json!({ "id": id });
    for (name, number) in query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
    {
        if !matches!(name, "offset" | "limit") {
            return Err(not_kept(asked));
        }
        arguments[name] = json!(number.parse::<u64>().map_err(|_| not_kept(asked))?);
    }
    let request = Request {
        session: Some(session.clone()),
        audience: Audience::Model,
        ..Request::new(READ_ON, arguments)
    };
    match host.call(request).await.outcome {
        Ok(output) => Ok(output.joined_text()),
        Err(failure)
            if failure.code.as_deref() == Some("not-found")
                || failure.category == Category::InvalidParameters =>
        {
            Err(not_kept(asked))
        }
        Err(failure) => Err(ErrorData::internal_error(failure.message, None)),
    }
}

fn not_kept(asked: &str) -> ErrorData {
    not_found(&format!("{KEPT}{asked}"))
}

/// A record without the reason for which a model denied the call: its agent would learn how to
/// argue.
fn without_reason(mut record: Value) -> Value {
    const DECISION: &str = "adversarial_policy_decision";
    if let Some(Value::String(decision)) = record.get_mut(DECISION)
        && let Some((verdict, _)) = decision.split_once(':')
    {
        *decision = verdict.to_owned();
    }
    record
}

fn unreadable_record(why: impl std::error::Error) -> ErrorData {
    ErrorData::internal_error(format!("the record can't be read: {why}"), None)
}

/// This session's records among the last ones in the log.
async fn record(session: &Session, folders: Folders) -> Result<String, ErrorData> {
    let records = tokio::task::spawn_blocking(move || Trail::open(&folders)?.last(RECORDS))
        .await
        .map_err(unreadable_record)?
        .map_err(unreadable_record)?;
    let name = Value::String(session.name().to_string());
    Ok(records
        .iter()
        .filter(|record| record["session"] == name)
        .map(|record| format!("{}\n", without_reason(record.clone())))
        .collect())
}
