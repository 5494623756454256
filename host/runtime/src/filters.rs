//! The instances of a plugin's filters that are kept for their sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::guest::contract::{FilterExports, FilterInstance};
use crate::guest::state::CallState;
use crate::warm_pool::{self, MEMORY};

/// How long an unused instance is kept.
const IDLE: Duration = Duration::from_secs(300);

/// The export for filters, and its instances.
pub(crate) struct Filters {
    pub(crate) exports: FilterExports,
    /// Whether the plugin's stores fit into the spare slots of the pool.
    fits: bool,
    idle: Mutex<Vec<IdleFilter>>,
}

/// An instance that is kept for its session.
struct IdleFilter {
    session: Arc<str>,
    store: Store<CallState>,
    instance: FilterInstance,
    since: Instant,
    _place: OwnedSemaphorePermit,
}

impl Filters {
    /// The filters of a component. `None` if it exports no filters.
    ///
    /// # Errors
    ///
    /// The export isn't what the contract says.
    pub(crate) fn from_exports(pre: &InstancePre<CallState>) -> Result<Option<Self>, String> {
        let Some(exports) = FilterExports::find(pre)? else { return Ok(None) };
        Ok(Some(Self { exports, fits: warm_pool::fits(pre), idle: Mutex::default() }))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<IdleFilter>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the instance of a session.
    pub(crate) fn take(&self, session: &str) -> Option<(Store<CallState>, FilterInstance)> {
        let mut idle = self.idle();
        let index = idle.iter().position(|one| *one.session == *session)?;
        let IdleFilter { store, instance, .. } = idle.remove(index);
        Some((store, instance))
    }

    /// Keeps an instance for its session, in one of `places`. If no place is free, it replaces this
    /// plugin's oldest idle instance.
    pub(crate) fn keep(
        &self,
        places: &Arc<Semaphore>,
        session: &Arc<str>,
        store: Store<CallState>,
        instance: FilterInstance,
    ) {
        let memory = &store.data().memory;
        if !self.fits || memory.refused() || memory.used() > MEMORY {
            return;
        }
        let place = || Arc::clone(places).try_acquire_owned().ok();
        let mut dropped = Vec::new();
        let mut idle = self.idle();
        while idle.first().is_some_and(|oldest| oldest.since.elapsed() > IDLE) {
            dropped.push(idle.remove(0));
        }
        if idle.iter().any(|one| one.session == *session) {
            return;
        }
        let place = place().or_else(|| {
            drop((!idle.is_empty()).then(|| idle.remove(0)));
            place()
        });
        if let Some(place) = place {
            idle.push(IdleFilter {
                session: Arc::clone(session),
                store,
                instance,
                since: Instant::now(),
                _place: place,
            });
        }
    }
}
