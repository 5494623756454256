use std::future::Future;
use std::time::Duration;

use tokio::runtime::Builder;

/// A test that takes longer hangs. Far more than any takes, since a machine may have a lot else to do.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs a test on a reactor of its own, and fails one that hangs.
#[track_caller]
pub(crate) fn run(test: impl Future<Output = ()> + Send + 'static) {
    let reactor = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a reactor starts");
    // On a worker: a test that blocks its thread would not see that its time is up.
    let test = reactor.spawn(test);
    let ended = reactor.block_on(async { tokio::time::timeout(PATIENCE, test).await });
    reactor.shutdown_background();
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
        Err(_) => panic!("the test hangs: it took longer than {PATIENCE:?}"),
    }
}
