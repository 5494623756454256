//! Offers MCP resources to clients: answers that were cut, and the audit entries of the client's
//! own calls.

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

/// Returns the resources with a fixed address.
pub(crate) fn definitions() -> Vec<Resource> {
    let record = Resource::new(RECORD, "record").with_title("The record of this session's calls");
    let description = "One JSON object per line, the newest last: the call, the decision with its rule, and the outcome";
    vec![record.with_description(description).with_mime_type("text/plain")]
}

/// Returns the resource templates.
pub(crate) fn templates() -> Vec<ResourceTemplate> {
    let kept = ResourceTemplate::new(format!("{KEPT}{{id}}{{?offset,limit}}"), "kept")
        .with_title("An answer that was cut");
    let description = "The id is in the answer, in the notice about what is left out; offset and limit count characters";
    vec![kept.with_description(description).with_mime_type("text/plain")]
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
        None if uri == RECORD => {
            let records = read_records(session, folders.clone()).await?;
            // Others wrote the arguments and reasons in the records.
            (fenced("record", &records), "text/plain")
        }
        None => return Err(not_found(uri)),
    };
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(media_type)]))
}

pub(crate) fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({ "uri": uri })))
}

/// Reads a part of a stored answer with a call of a tool. The same rules apply as for other calls,
/// and the call is recorded. `address` is the ID with the query.
async fn read_kept(host: &Host, session: &Session, address: &str) -> Result<String, ErrorData> {
    let (id, query) = address.split_once('?').unwrap_or((address, ""));
    let mut arguments = json!({ "id": id });
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
        if !matches!(name, "offset" | "limit") {
            return Err(not_kept(address));
        }
        let number: u64 = text.parse().map_err(|_| not_kept(address))?;
        arguments[name] = json!(number);
    }
    let request = Request {
        session: Some(session.clone()),
        audience: Audience::Model,
        ..Request::new(READ_ON, arguments)
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
    not_found(&format!("{KEPT}{address}"))
}

/// Removes the reason why a model denied the call from a record, because the agent could use the
/// reason to argue.
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

/// Reads this session's records among the last records in the log.
async fn read_records(session: &Session, folders: Folders) -> Result<String, ErrorData> {
    let records = tokio::task::spawn_blocking(move || Trail::open(&folders)?.last(RECORDS))
        .await
        .map_err(unreadable_record)?
        .map_err(unreadable_record)?;
    let name = Value::String(session.name().to_string());
    let own = records.into_iter().filter(|record| record["session"] == name);
    Ok(own.map(|record| format!("{}\n", without_reason(record))).collect())
}
