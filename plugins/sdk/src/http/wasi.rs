//! Sends one request over `wasi:http`.

use std::time::Duration;

use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, Method, OutgoingBody, OutgoingRequest,
    RequestOptions, Scheme, http_error_code,
};
use wasip2::io::streams::StreamError;

use super::{Answer, Hop, HttpError, HttpErrorKind};

/// The greatest number of bytes that one read takes.
const CHUNK: usize = 64 * 1024;

/// The greatest number of bytes that the contract allows in one write.
const WRITE: usize = 4096;

pub(super) fn exchange(hop: &Hop) -> Result<Answer, HttpError> {
    let headers: Vec<_> = hop
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), value.clone().into_bytes()))
        .collect();
    let headers = Fields::from_list(&headers).map_err(|_| invalid("a header"))?;
    let request = OutgoingRequest::new(headers);
    request.set_method(&method(&hop.method)).map_err(|()| invalid("the method"))?;
    let scheme = if hop.url.scheme() == "https" { Scheme::Https } else { Scheme::Http };
    request.set_scheme(Some(&scheme)).map_err(|()| invalid("the scheme"))?;
    request.set_authority(Some(hop.url.authority())).map_err(|()| invalid("the host"))?;
    let path = &hop.url[url::Position::BeforePath..url::Position::AfterQuery];
    request.set_path_with_query(Some(path)).map_err(|()| invalid("the path"))?;
    let options = RequestOptions::new();
    if let Some(time) = hop.timeout.map(nanoseconds) {
        // A host that doesn't support one of these has its own limits.
        let _ = options.set_connect_timeout(Some(time));
        let _ = options.set_first_byte_timeout(Some(time));
        let _ = options.set_between_bytes_timeout(Some(time));
    }
    let body = request.body().map_err(|()| invalid("the body"))?;
    let answer = handle(request, Some(options)).map_err(error_of_code)?;
    // If the host stops reading the body, its answer says why.
    if send(&hop.body, &body) {
        let _ = OutgoingBody::finish(body, None);
    }
    answer.subscribe().block();
    let Some(Ok(answer)) = answer.get() else {
        return Err(HttpError::new(HttpErrorKind::Failed, "the answer is missing"));
    };
    read(&answer.map_err(error_of_code)?, hop.max_body)
}

fn invalid(what: &str) -> HttpError {
    HttpError::new(HttpErrorKind::Invalid, format!("{what} isn't valid"))
}

fn send(bytes: &[u8], body: &OutgoingBody) -> bool {
    let Ok(stream) = body.write() else { return false };
    bytes.chunks(WRITE).all(|chunk| stream.blocking_write_and_flush(chunk).is_ok())
}

fn read(answer: &IncomingResponse, most: usize) -> Result<Answer, HttpError> {
    let status = answer.status();
    let headers = answer
        .headers()
        .entries()
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), super::text(value)))
        .collect();
    let body: IncomingBody = answer.consume().map_err(|()| missing_body())?;
    let stream = body.stream().map_err(|()| missing_body())?;
    let mut bytes = Vec::new();
    let mut cut = false;
    loop {
        // One byte more than the limit shows whether there is more.
        let wanted = CHUNK.min(most + 1 - bytes.len());
        match stream.blocking_read(wanted as u64) {
            Ok(more) => bytes.extend_from_slice(&more),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => match http_error_code(&error) {
                // The part before the host's limit is still useful.
                Some(ErrorCode::HttpResponseBodySize(_)) => {
                    cut = true;
                    break;
                }
                Some(code) => return Err(error_of_code(code)),
                None => {
                    return Err(HttpError::new(
                        HttpErrorKind::Connection,
                        "the body ends too early",
                    ));
                }
            },
        }
        if bytes.len() > most {
            bytes.truncate(most);
            cut = true;
            break;
        }
    }
    Ok(Answer { status, headers, body: bytes, cut })
}

fn missing_body() -> HttpError {
    HttpError::new(HttpErrorKind::Failed, "the body is missing")
}

fn method(name: &str) -> Method {
    match name {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        "OPTIONS" => Method::Options,
        "TRACE" => Method::Trace,
        "PATCH" => Method::Patch,
        _ => Method::Other(name.to_owned()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn error_of_code(code: ErrorCode) -> HttpError {
    use HttpErrorKind::{
        Connection, Denied, Dns, Failed, Invalid, Malformed, Timeout, Tls, TooLarge,
    };
    let (kind, words) = match code {
        ErrorCode::DnsTimeout => (Timeout, "finding its address took too long".to_owned()),
        ErrorCode::DnsError(message) => (Dns, with("no address found for it", message.rcode)),
        ErrorCode::DestinationNotFound => (Dns, "no address found for it".to_owned()),
        ErrorCode::DestinationUnavailable | ErrorCode::DestinationIpUnroutable => {
            (Connection, "the server can't be reached".to_owned())
        }
        ErrorCode::DestinationIpProhibited => (Denied, "its address is blocked".to_owned()),
        ErrorCode::HttpRequestDenied => (Denied, "the request is blocked".to_owned()),
        ErrorCode::ConnectionRefused => (Connection, "the server refuses connections".to_owned()),
        ErrorCode::ConnectionTerminated => (Connection, "the connection was lost".to_owned()),
        ErrorCode::ConnectionLimitReached => {
            (Connection, "too many connections at once".to_owned())
        }
        ErrorCode::ConnectionTimeout => (Timeout, "connecting took too long".to_owned()),
        ErrorCode::ConnectionReadTimeout | ErrorCode::HttpResponseTimeout => {
            (Timeout, "its answer took too long".to_owned())
        }
        ErrorCode::ConnectionWriteTimeout => {
            (Timeout, "sending the request took too long".to_owned())
        }
        ErrorCode::TlsProtocolError => {
            (Tls, "the server supports no version of TLS that the host supports".to_owned())
        }
        ErrorCode::TlsCertificateError => (Tls, "its certificate isn't valid".to_owned()),
        ErrorCode::TlsAlertReceived(message) => {
            (Tls, with("the server ended the TLS handshake", message.alert_message))
        }
        ErrorCode::HttpRequestLengthRequired => (Invalid, "the request needs a length".to_owned()),
        ErrorCode::HttpRequestMethodInvalid => (Invalid, "the method isn't valid".to_owned()),
        ErrorCode::HttpRequestUriInvalid => (Invalid, "the URL isn't valid".to_owned()),
        ErrorCode::HttpRequestUriTooLong => (Invalid, "the URL is too long".to_owned()),
        ErrorCode::HttpRequestBodySize(most) => {
            (TooLarge, limit("the body of the request is too large", most))
        }
        ErrorCode::HttpRequestHeaderSectionSize(most) => {
            (TooLarge, limit("the headers are too large", most.map(u64::from)))
        }
        ErrorCode::HttpRequestHeaderSize(_) => (TooLarge, "a header is too large".to_owned()),
        ErrorCode::HttpRequestTrailerSectionSize(_) | ErrorCode::HttpRequestTrailerSize(_) => {
            (TooLarge, "the trailers are too large".to_owned())
        }
        ErrorCode::HttpResponseIncomplete => (Connection, "the answer ends too early".to_owned()),
        ErrorCode::HttpResponseHeaderSectionSize(most) => {
            (TooLarge, limit("the headers of the answer are too large", most.map(u64::from)))
        }
        ErrorCode::HttpResponseHeaderSize(_) => {
            (TooLarge, "a header of the answer is too large".to_owned())
        }
        ErrorCode::HttpResponseTrailerSectionSize(_) | ErrorCode::HttpResponseTrailerSize(_) => {
            (TooLarge, "the trailers of the answer are too large".to_owned())
        }
        ErrorCode::HttpResponseBodySize(most) => (TooLarge, limit("the answer is too large", most)),
        ErrorCode::HttpResponseTransferCoding(name) => {
            (Malformed, with("the answer has an unknown transfer coding", name))
        }
        ErrorCode::HttpResponseContentCoding(name) => {
            (Malformed, with("the answer has a compression that can't be decoded", name))
        }
        ErrorCode::HttpProtocolError => (Malformed, "the answer breaks the protocol".to_owned()),
        ErrorCode::HttpUpgradeFailed => {
            (Malformed, "the server requires another protocol".to_owned())
        }
        ErrorCode::LoopDetected => (Failed, "the requests form a loop".to_owned()),
        ErrorCode::ConfigurationError => {
            (Denied, "the host isn't set up for this request; see its log".to_owned())
        }
        ErrorCode::InternalError(message) => (Failed, with("the host failed", message)),
    };
    HttpError::new(kind, words)
}

fn with(words: &str, more: Option<String>) -> String {
    more.map_or_else(|| words.to_owned(), |more| format!("{words} ({more})"))
}

fn limit(words: &str, most: Option<u64>) -> String {
    most.map_or_else(|| words.to_owned(), |most| format!("{words}; the limit is {most} bytes"))
}
