//! A process that a guest started, as a resource of its instance. The host shows the output of the
//! process while it runs.

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
    /// Counts the processes of the call.
    _running: Arc<()>,
}

impl Child {
    /// Makes the resource of a process. `live`: shows the output while the process runs. `running`:
    /// counts the processes of the call.
    pub(super) fn new(
        child: process::Child,
        live: Option<Box<dyn OutputRecorder>>,
        running: Arc<()>,
    ) -> Self {
        Self { child, live: LiveOutput(live), _running: running }
    }
}

/// The recorder that shows the output of a running process. `None` if there is no recorder, or the
/// output has ended.
pub(super) struct LiveOutput(Option<Box<dyn OutputRecorder>>);

impl LiveOutput {
    pub(super) fn add(&self, stream: OutputStream, bytes: &[u8]) {
        if let Some(recorder) = &self.0 {
            recorder.write(stream, bytes);
        }
    }

    /// Ends the output. Dropping the recorder shows the rest.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

/// First and longest time between two looks at a process that the guest waits for together with
/// other things. The looks are needed in any case, for the time limit of the process.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(10);

#[async_trait::async_trait]
impl Pollable for Child {
    async fn ready(&mut self) {
        let mut pause = FIRST_LOOK;
        let Self { child, live, .. } = self;
        while !child.look(&mut |stream, bytes| live.add(stream, bytes)) {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_LOOK);
        }
    }
}
