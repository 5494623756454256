//! Sends a request and applies OTLP's rules to the answer.

use std::time::Duration;

use crate::otlp::{Refused, refused};

pub(crate) const PROTOBUF: &str = "application/x-protobuf";

/// The longest pause, even if a receiver requests a longer pause.
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The first and the longest pause before a request is repeated.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// A request with a message in Protocol Buffers.
#[derive(Clone, Copy, Debug)]
pub struct Post<'a> {
    /// The path of the signal below the receiver's address, such as `v1/logs`.
    pub path: &'static str,
    /// The media type.
    pub media_type: &'static str,
    /// The message.
    pub body: &'a [u8],
}

/// The answer of a receiver.
#[derive(Clone, Debug, Default)]
pub struct Posted {
    /// The HTTP status.
    pub status: u16,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    /// The start of the body.
    pub body: Vec<u8>,
}

/// Sends requests to one receiver. Implementations may block up to a time limit.
pub trait Transport: Send + 'static {
    /// Sends a request.
    ///
    /// # Errors
    ///
    /// Returns the reason why there is no answer.
    fn post(&mut self, request: &Post<'_>) -> Result<Posted, Unsent>;
}

/// The reason why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The receiver is slow or unreachable. The request may succeed later.
    Later(String),
    /// The request can't be sent with these settings.
    Never(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The receiver has accepted the request, except possibly for some refused items.
    Done(Option<Refused>),
    /// The receiver may accept a smaller request.
    TooLarge,
    /// The receiver may accept the request after this pause.
    Later(Option<Duration>, String),
    /// The receiver will never accept the request.
    Refused(String),
}

/// Sends one request, and says whether it must be repeated.
pub(crate) fn send(transport: &mut dyn Transport, path: &'static str, body: &[u8]) -> Sent {
    let posted = match transport.post(&Post { path, media_type: PROTOBUF, body }) {
        Ok(posted) => posted,
        Err(Unsent::Later(why)) => return Sent::Later(None, why),
        Err(Unsent::Never(why)) => return Sent::Refused(why),
    };
    let answered = format!("the receiver answered {}", posted.status);
    match posted.status {
        200..=299 => Sent::Done(refused(&posted.body)),
        413 => Sent::TooLarge,
        // With these statuses, the receiver may accept the request later.
        408 | 429 | 502..=504 => {
            let pause =
                posted.retry_after.map(|seconds| Duration::from_secs(seconds).min(MAX_PAUSE));
            Sent::Later(pause, answered)
        }
        _ => Sent::Refused(answered),
    }
}

/// The pauses between attempts. Each pause is twice as long as the pause before. A random part
/// keeps many senders from returning at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pauses {
    /// The next pause, including its longest random part.
    longest: Duration,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { longest: FIRST_PAUSE }
    }

    /// Returns the next pause, which is at least as long as the receiver requested.
    pub(crate) fn next_pause(&mut self, requested: Option<Duration>) -> Duration {
        let longest = self.longest;
        self.longest = (longest * 2).min(LAST_PAUSE);
        let mut random = [0; 1];
        // If `getrandom` fails, the pause is half of `longest`.
        let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        // A fraction below 1.
        let fraction = f64::from(random[0]) / 256.0;
        let pause = longest / 2 + longest.mul_f64(fraction / 2.0);
        match requested {
            Some(requested) => pause.max(requested),
            None => pause,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::encoding::{Message, Value};

    struct Answers(Posted);

    impl Transport for Answers {
        fn post(&mut self, _: &Post<'_>) -> Result<Posted, Unsent> {
            Ok(self.0.clone())
        }
    }

    fn sent(status: u16, body: &[u8]) -> Sent {
        let answer = Posted { status, retry_after: Some(1_000_000), body: body.to_vec() };
        send(&mut Answers(answer), "v1/logs", b"")
    }

    #[test]
    fn answers_are_judged_by_their_status() {
        assert_eq!(sent(200, b""), Sent::Done(None));
        assert_eq!(sent(200, b"<html>garbage"), Sent::Done(None));
        assert_eq!(sent(413, b""), Sent::TooLarge);
        assert!(matches!(sent(503, b""), Sent::Later(Some(MAX_PAUSE), _)));
        assert!(matches!(sent(400, b""), Sent::Refused(_)));
        assert!(matches!(sent(302, b""), Sent::Refused(_)));
        let partial =
            Message::new().with(1, "n", Value::Int(3)).with_text(2, "m", "too\nold\u{1b}[2J");
        let body = Message::new().with_message(1, "p", partial).to_protobuf();
        let Sent::Done(Some(refused)) = sent(200, &body) else { panic!("a part is refused") };
        assert_eq!(refused.count, 3);
        assert!(!refused.why.contains(['\n', '\u{1b}']), "{refused:?}");
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut pauses = Pauses::new();
        let all: Vec<Duration> = (0..12).map(|_| pauses.next_pause(None)).collect();
        assert!(all[0] >= FIRST_PAUSE / 2 && all[0] <= FIRST_PAUSE, "{all:?}");
        assert!(
            all[11] >= LAST_PAUSE / 2 && all.iter().all(|pause| *pause <= LAST_PAUSE),
            "{all:?}"
        );
        assert_eq!(pauses.next_pause(Some(MAX_PAUSE)), MAX_PAUSE);
    }
}
