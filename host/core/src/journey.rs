//! The journey of a call, top to bottom, the same for every front end and every provider.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use berth_contract::{Call, CallId, Outcome};
use serde_json::Value;

use crate::host::{Answer, Host, Request, Step};
use crate::{shape, subjects, validate};

impl Host {
    /// Runs one call. It always comes to an answer: what a tool, a rule or a bound made of it is a [`Failure`](crate::Failure).
    ///
    /// In this order, each step only where the one before it held: the name is resolved, the arguments are checked against the tool's
    /// schema, what the call acts on is decided on, and the tool runs, under its bounds. Whatever that comes to, a refusal as well as an
    /// output, is shaped before it leaves.
    ///
    /// Cancelling [`Request::cancel`] ends the call with [`Category::Cancelled`](crate::Category::Cancelled), and so does dropping the
    /// future, which then nobody hears of.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with its time driver, where the tool is a plugin's.
    pub async fn call(&self, request: Request) -> Answer {
        let id = next_id();
        let mut steps = Steps::begin();
        let mut tool = None;
        let outcome = self.journey(id.clone(), request, &mut tool, &mut steps).await;
        let outcome = shape::shaped(outcome, self.settings.result);
        steps.done("shape");
        Answer { id, tool, outcome, steps: steps.taken }
    }

    async fn journey(&self, id: CallId, request: Request, named: &mut Option<String>, steps: &mut Steps) -> Outcome {
        let catalogue = self.plugins.catalogue();
        let tool = catalogue.resolve(&request.tool)?;
        *named = Some(tool.definition.name.clone());
        steps.done("resolve");

        validate::arguments(tool, &request.arguments, self.settings.arguments)?;
        steps.done("validate");

        let arguments = subjects::decided(tool, self.settings.home.as_deref(), request.arguments)?;
        steps.done("govern");

        let call = Call {
            id,
            tool: tool.definition.name.clone(),
            time: asked_time(&tool.definition.input_schema, &arguments).map(|time| time.min(self.settings.max_call)),
            arguments,
            attachments: request.attachments,
            caller: request.caller,
            events: request.events,
            cancel: request.cancel,
        };
        let outcome = tool.provider.call(call).await;
        tool.tally.count(outcome.is_ok(), steps.done("run"));
        outcome
    }
}

/// The time that a call asks for: its `timeout`, in seconds, where the tool has such an argument.
fn asked_time(schema: &Value, arguments: &Value) -> Option<Duration> {
    schema.pointer("/properties/timeout")?;
    let seconds = arguments.get("timeout")?.as_f64()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// An id that no other call has: this process's, and a number.
fn next_id() -> CallId {
    static PROCESS: LazyLock<u64> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without random bytes, ids are still unique in this process.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        u64::from_ne_bytes(bytes)
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CallId(format!("{:016x}-{}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed)).into())
}

/// Takes the time of each step.
struct Steps {
    taken: Vec<Step>,
    since: Instant,
}

impl Steps {
    fn begin() -> Self {
        Self { taken: Vec::with_capacity(8), since: Instant::now() }
    }

    /// Ends a step, and tells how long it took.
    fn done(&mut self, name: &'static str) -> Duration {
        let now = Instant::now();
        let time = now - std::mem::replace(&mut self.since, now);
        self.taken.push(Step { name, time });
        time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_timeout_counts_only_where_the_tool_has_one() {
        let with = json!({ "type": "object", "properties": { "timeout": { "type": "number" } } });
        let without = json!({ "type": "object" });
        let arguments = json!({ "timeout": 2.5 });
        assert_eq!(asked_time(&with, &arguments), Some(Duration::from_millis(2500)));
        assert_eq!(asked_time(&without, &arguments), None);
        assert_eq!(asked_time(&with, &json!({ "timeout": -1 })), None);
        assert_eq!(asked_time(&with, &json!({ "timeout": 1e300 })), None);
    }

    #[test]
    fn ids_are_unique() {
        assert_ne!(next_id(), next_id());
    }
}
