use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::{MissedTickBehavior, interval};

/// Time limit for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks, in which others have the processor: most looks start a process.
const LOOK: Duration = Duration::from_millis(50);

/// Waits until a condition is true that nothing announces. Blocks.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    let reactor = Builder::new_current_thread().enable_time().build().expect("it is made");
    let mut looks = reactor.block_on(async { interval(LOOK) });
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !holds() {
        assert!(Instant::now() < end, "it never came to this: {what}");
        reactor.block_on(looks.tick());
    }
}
