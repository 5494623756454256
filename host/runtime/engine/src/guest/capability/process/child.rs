//! A process of a guest, as a resource of its instance.

use std::sync::Arc;
use std::time::Duration;

use toolhold_contract::{OutputRecorder, OutputStream};
use toolhold_system::process;
use wasmtime_wasi::p2::Pollable;

/// A process of a guest.
#[expect(unreachable_pub, reason = "the bindings name it in a public place")]
pub struct Child {
    pub(super) child: process::Child,
    pub(super) live: LiveOutput,
    /// One of the references that count the call's running processes.
    _running: Arc<()>,
}

impl Child {
    /// Makes the handle of a process. `live` shows the output while the process runs. The clones of
    /// `running` count the running processes of the call.
    pub(super) fn new(
        child: process::Child,
        live: Option<Box<dyn OutputRecorder>>,
        running: Arc<()>,
    ) -> Self {
        Self { child, live: LiveOutput(live), _running: running }
    }
}

/// Shows the output of a running process. `None` without a recorder, or after the end.
pub(super) struct LiveOutput(Option<Box<dyn OutputRecorder>>);

impl LiveOutput {
    pub(super) fn add(&self, stream: OutputStream, bytes: &[u8]) {
        if let Some(recorder) = &self.0 {
            recorder.write(stream, bytes);
        }
    }

    /// Ends the output. Dropping the recorder shows the remaining output.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

/// First and longest pause between two checks of a process. A process without output is checked
/// too, because of its time limit.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(10);

#[async_trait::async_trait]
impl Pollable for Child {
    async fn ready(&mut self) {
        let mut pause = FIRST_PAUSE;
        let Self { child, live, .. } = self;
        while !child.look(&mut |stream, bytes| live.add(stream, bytes)) {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }
}
