//! Keeps programs of plugins running after a call, by session. This module starts no programs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use toolhold_contract::{
    ServiceKeeper, ServiceKey, ServicePlace, ServicePlaceError, ServiceProgram,
};

/// Maximum number of services of all sessions. Further services are refused.
const MAX_SERVICES: usize = 32;

/// How long a service runs without a connection.
const IDLE: Duration = Duration::from_mins(10);

/// The services of a host, which end with the host.
#[derive(Debug)]
pub struct Services(Arc<Shared>);

/// The services of one session. A drop of the last clone ends them.
#[derive(Clone, Debug)]
pub struct SessionServices(Arc<SessionInner>);

#[derive(Debug)]
struct SessionInner {
    session: Arc<str>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    idle: Duration,
    table: Mutex<Table>,
    /// Wakes the thread that ends idle services.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    services: HashMap<Name, Service>,
    next_number: u64,
    has_housekeeper: bool,
    has_ended: bool,
}

/// The key of a service: session, plugin and name.
type Name = (Arc<str>, String, String);

struct Service {
    rights: String,
    state: State,
}

enum State {
    /// The number of the connection that uses the service.
    Taken(u64),
    Idle {
        program: ServiceProgram,
        since: Instant,
    },
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("is_taken", &matches!(self.state, State::Taken(_)))
            .finish_non_exhaustive()
    }
}

impl Default for Services {
    fn default() -> Self {
        Self::with_idle(IDLE)
    }
}

impl Services {
    fn with_idle(idle: Duration) -> Self {
        Self(Arc::new(Shared { idle, table: Mutex::default(), changed: Condvar::new() }))
    }

    /// Returns the services of the session with this unique name. They end with the returned value.
    pub fn session(&self, session: &Arc<str>) -> SessionServices {
        let session = Arc::clone(session);
        let shared = Arc::clone(&self.0);
        SessionServices(Arc::new(SessionInner { session, shared }))
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.end(|_| true);
        self.0.changed.notify_all();
    }
}

impl Drop for SessionInner {
    fn drop(&mut self) {
        self.shared.end(|(session, ..)| *session == self.session);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the services that `is_selected` selects, and returns their number. Idle programs end
    /// now, and other programs end with their connection.
    fn end(&self, is_selected: impl Fn(&Name) -> bool) -> usize {
        let mut table = self.lock();
        let removed: Vec<(Name, Service)> =
            table.services.extract_if(|name, _| is_selected(name)).collect();
        let count = removed.len();
        // The table is unlocked before the drop, because a program takes a moment to end.
        drop(table);
        drop(removed);
        count
    }

    /// Makes the service that the connection `number` uses idle. If the service was stopped or its
    /// session has ended meanwhile, ends the program instead.
    fn keep(self: &Arc<Self>, name: &Name, number: u64, program: ServiceProgram) {
        let mut table = self.lock();
        let known = table.services.get_mut(name);
        let Some(service) = known.filter(|service| service.is_taken_by(number)) else {
            // The table is unlocked before the drop, because a program takes a moment to end.
            drop(table);
            drop(program);
            return;
        };
        service.state = State::Idle { program, since: Instant::now() };
        if table.has_housekeeper {
            return;
        }
        table.has_housekeeper = true;
        drop(table);

        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("toolhold-services".to_owned());
        if thread.spawn(move || shared.end_idle()).is_err() {
            // Without the thread, nothing would end this service later, so end it now.
            self.lock().has_housekeeper = false;
            self.end(|other| other == name);
        }
    }

    /// Ends services that were idle for too long. Returns when there are no services.
    fn end_idle(&self) {
        let mut table = self.lock();
        loop {
            let now = Instant::now();
            let expired: Vec<(Name, Service)> = table
                .services
                .extract_if(|_, service| service.end(self.idle).is_some_and(|end| now >= end))
                .collect();
            if !expired.is_empty() {
                // The table is unlocked before the drop, because a program takes a moment to end.
                drop(table);
                drop(expired);
                table = self.lock();
                continue;
            }
            if table.has_ended || table.services.is_empty() {
                table.has_housekeeper = false;
                return;
            }

            // If every service is in use, none can expire before the whole idle time has passed.
            let ends = table.services.values().filter_map(|service| service.end(self.idle));
            let next_end = ends.min().unwrap_or(now + self.idle);
            let wait = next_end.saturating_duration_since(now);
            let result = self.changed.wait_timeout(table, wait);
            (table, _) = result.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Service {
    fn is_taken_by(&self, number: u64) -> bool {
        matches!(self.state, State::Taken(taken) if taken == number)
    }

    /// Returns when the service ends. `None` means that a connection uses it.
    fn end(&self, idle: Duration) -> Option<Instant> {
        match self.state {
            State::Idle { since, .. } => Some(since + idle),
            State::Taken(_) => None,
        }
    }
}

impl ServiceKeeper for SessionServices {
    fn take(&self, service: &ServiceKey) -> Result<Box<dyn ServicePlace>, ServicePlaceError> {
        let ServiceKey { plugin, name, rights, most } = service;
        let SessionInner { session, shared } = &*self.0;
        let key: Name = (Arc::clone(session), plugin.clone(), name.clone());
        let mut table = shared.lock();
        if table.has_ended {
            return Err(ServicePlaceError::Ended);
        }
        // Reuse an idle program only if it was started with the same grants. Otherwise, end it.
        let mut program = None;
        let mut replaced_program = None;
        match table.services.remove(&key) {
            Some(Service { rights: known_rights, state: State::Idle { program: known, .. } }) => {
                if known_rights == *rights {
                    program = Some(known);
                } else {
                    replaced_program = Some(known);
                }
            }
            Some(taken) => {
                table.services.insert(key, taken);
                return Err(ServicePlaceError::Taken(name.clone()));
            }
            None => {
                let mut own = 0;
                for (key_session, key_plugin, _) in table.services.keys() {
                    if key_session == session && key_plugin == plugin {
                        own += 1;
                    }
                }
                if own >= *most {
                    return Err(ServicePlaceError::Plugin { own, limit: *most });
                }
                if table.services.len() >= MAX_SERVICES {
                    return Err(ServicePlaceError::Host(MAX_SERVICES));
                }
            }
        }

        let number = table.next_number;
        table.next_number += 1;
        let service = Service { rights: rights.clone(), state: State::Taken(number) };
        table.services.insert(key.clone(), service);
        drop(table);
        drop(replaced_program);
        let shared = Arc::clone(shared);
        Ok(Box::new(ServiceSlot { shared, name: key, number, program }))
    }

    fn stop(&self, plugin: &str, name: &str) -> bool {
        let SessionInner { session, shared } = &*self.0;
        let ended_count = shared.end(|(key_session, key_plugin, key_name)| {
            key_session == session && key_plugin == plugin && key_name == name
        });
        ended_count > 0
    }
}

struct ServiceSlot {
    shared: Arc<Shared>,
    name: Name,
    number: u64,
    program: Option<ServiceProgram>,
}

impl fmt::Debug for ServiceSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceSlot").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ServicePlace for ServiceSlot {
    fn program(&mut self) -> Option<ServiceProgram> {
        self.program.take()
    }

    fn keep(self: Box<Self>, program: ServiceProgram) {
        self.shared.keep(&self.name, self.number, program);
    }
}

impl Drop for ServiceSlot {
    fn drop(&mut self) {
        let mut table = self.shared.lock();
        let service = table.services.get(&self.name);
        if service.is_some_and(|service| service.is_taken_by(self.number)) {
            table.services.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Time limit for something that must happen.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Counts those that run.
    struct Program(Arc<AtomicUsize>);

    impl Drop for Program {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    struct Scene {
        services: Services,
        running: Arc<AtomicUsize>,
    }

    impl Scene {
        fn new(idle: Duration) -> Self {
            Self { services: Services::with_idle(idle), running: Arc::default() }
        }

        fn session(&self, name: &str) -> SessionServices {
            self.services.session(&Arc::from(name))
        }

        fn start(&self) -> ServiceProgram {
            self.running.fetch_add(1, Ordering::SeqCst);
            Box::new(Program(Arc::clone(&self.running)))
        }

        fn running(&self) -> usize {
            self.running.load(Ordering::SeqCst)
        }

        /// Connects, and keeps the service. Returns whether it ran before.
        fn connect(&self, session: &SessionServices, name: &str, rights: &str) -> bool {
            let mut place = session.take(&key(name, rights)).unwrap();
            let program = place.program();
            let ran = program.is_some();
            place.keep(program.unwrap_or_else(|| self.start()));
            ran
        }
    }

    fn key(name: &str, rights: &str) -> ServiceKey {
        let (plugin, name, rights) = ("p".to_owned(), name.to_owned(), rights.to_owned());
        ServiceKey { plugin, name, rights, most: 2 }
    }

    #[test]
    fn same_rights_get_the_same_program_and_others_another_one() {
        let scene = Scene::new(PATIENCE);
        let session = scene.session("s");
        assert!(!scene.connect(&session, "a", "r") && scene.connect(&session, "a", "r"));
        assert!(!scene.connect(&session, "a", "other"));
        assert_eq!(scene.running(), 1, "the first one has ended");
        let other = ServiceKey { plugin: "q".to_owned(), ..key("a", "other") };
        assert!(session.take(&other).unwrap().program().is_none(), "another plugin's is another");
    }

    #[test]
    fn session_has_its_own_and_ends_them() {
        let scene = Scene::new(PATIENCE);
        let (one, two) = (scene.session("one"), scene.session("two"));
        scene.connect(&one, "a", "r");
        assert!(!scene.connect(&two, "a", "r"), "it isn't that of the other session");
        assert!(!two.stop("p", "b") && scene.running() == 2);
        let clone = one.clone();
        drop(one);
        assert_eq!(scene.running(), 2);
        drop(clone);
        assert_eq!(scene.running(), 1);
        drop(scene.services);
        assert_eq!(scene.running.load(Ordering::SeqCst), 0, "the host ends all");
        assert!(two.take(&key("a", "r")).is_err());
    }

    #[test]
    fn one_connection_at_a_time_and_one_that_is_not_kept_ends_it() {
        let scene = Scene::new(PATIENCE);
        let session = scene.session("s");
        scene.connect(&session, "a", "r");
        let mut place = session.take(&key("a", "r")).unwrap();
        let error = session.take(&key("a", "r")).unwrap_err().to_string();
        assert!(error.contains("another call"), "{error}");
        drop(place.program());
        drop(place);
        assert_eq!(scene.running(), 0);
        assert!(!scene.connect(&session, "a", "r"), "the name is free");
        // One that was stopped meanwhile isn't kept, and doesn't hold its name.
        let mut place = session.take(&key("a", "r")).unwrap();
        let program = place.program().unwrap();
        assert!(session.stop("p", "a"));
        scene.connect(&session, "a", "r");
        place.keep(program);
        assert_eq!(scene.running(), 1);
        assert!(scene.connect(&session, "a", "r"), "the later one is still there");
    }

    #[test]
    fn number_is_bounded_by_plugin_and_in_all() {
        let scene = Scene::new(PATIENCE);
        let session = scene.session("s");
        scene.connect(&session, "a", "r");
        scene.connect(&session, "b", "r");
        let error = session.take(&key("c", "r")).unwrap_err().to_string();
        assert!(error.contains("limit is 2"), "{error}");
        assert!(scene.connect(&session, "a", "r"), "those that run are still reached");
        let sessions: Vec<SessionServices> =
            (2..MAX_SERVICES).map(|number| scene.session(&number.to_string())).collect();
        for session in &sessions {
            scene.connect(session, "a", "r");
        }
        let error = scene.session("one more").take(&key("a", "r")).unwrap_err().to_string();
        assert!(error.contains("all sessions"), "{error}");
    }

    #[test]
    fn idle_service_ends() {
        let scene = Scene::new(Duration::from_millis(1));
        let session = scene.session("s");
        let until = Instant::now() + PATIENCE;
        for _ in 0..2 {
            scene.connect(&session, "a", "r");
            while scene.running() > 0 {
                assert!(Instant::now() < until, "it still runs");
                std::thread::yield_now();
            }
        }
        // One that is used isn't idle.
        let place = session.take(&key("a", "r")).unwrap();
        scene.connect(&session, "b", "r");
        while scene.running() > 0 {
            assert!(Instant::now() < until, "it still runs");
            std::thread::yield_now();
        }
        drop(place);
    }
}
