//! The filters of a plugin, and the instances of them that wait for the next output of their
//! session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_contract::FilterDefinition;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::guest::bindings::filter::{Filters as Exports, FiltersIndices};
use crate::guest::state::CallState;
use crate::warm_pool::{self, MEMORY};

/// How long one is kept without being asked.
const IDLE: Duration = Duration::from_secs(300);

/// What a plugin filters.
pub(crate) struct Filters {
    pub(crate) exports: FiltersIndices,
    pub(crate) definitions: Vec<Arc<FilterDefinition>>,
    pub(crate) problems: Vec<String>,
    /// Whether the pool has spare room for stores of its size.
    fits: bool,
    idle: Mutex<Vec<IdleFilter>>,
}

/// An instance that waits for the next output of its session.
struct IdleFilter {
    session: Arc<str>,
    store: Store<CallState>,
    instance: Exports,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

/// Whether a component exports an interface, in whatever version.
pub(crate) fn exports(pre: &InstancePre<CallState>, interface: &str) -> bool {
    let of_interface =
        |name: &str| name.split_once('@').map_or(name, |(name, _)| name) == interface;
    pre.component().component_type().exports(pre.engine()).any(|(name, _)| of_interface(name))
}

impl Filters {
    /// The filters of a component that exports some. Which they are, it has to be asked.
    pub(crate) fn exported(pre: &InstancePre<CallState>) -> wasmtime::Result<Option<Self>> {
        if !exports(pre, "berth:tool/filter") {
            return Ok(None);
        }
        let (exports, fits) = (FiltersIndices::new(pre)?, warm_pool::fits(pre));
        Ok(Some(Self {
            exports,
            definitions: Vec::new(),
            problems: Vec::new(),
            fits,
            idle: Mutex::default(),
        }))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleFilter>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance that a session has.
    pub(crate) fn take(&self, session: &str) -> Option<(Store<CallState>, Exports)> {
        let mut kept = self.idle();
        let place = kept.iter().position(|kept| *kept.session == *session)?;
        let IdleFilter { store, instance, .. } = kept.remove(place);
        Some((store, instance))
    }

    /// Keeps an instance for its session, in one of `places`, and in the place of whichever of this
    /// plugin has waited longest if need be.
    pub(crate) fn keep(
        &self,
        places: &Arc<Semaphore>,
        session: &Arc<str>,
        store: Store<CallState>,
        instance: Exports,
    ) {
        let memory = &store.data().memory;
        if !self.fits || memory.refused() || memory.used() > MEMORY {
            return;
        }
        let place = || Arc::clone(places).try_acquire_owned().ok();
        let mut dropped = Vec::new();
        let mut kept = self.idle();
        while kept.first().is_some_and(|oldest| oldest.since.elapsed() > IDLE) {
            dropped.push(kept.remove(0));
        }
        if kept.iter().any(|kept| kept.session == *session) {
            return;
        }
        let room = place().or_else(|| {
            drop((!kept.is_empty()).then(|| kept.remove(0)));
            place()
        });
        if let Some(place) = room {
            kept.push(IdleFilter {
                session: Arc::clone(session),
                store,
                instance,
                since: Instant::now(),
                _place: place,
            });
        }
    }
}
