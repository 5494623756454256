//! The hosts of the principals: each is built at the principal's first request, built again after a
//! change of the operator's configuration, and ended when it is idle.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;
use toolhold_core::config::{Approvals, Folders, PrincipalId, Serve, Who};
use toolhold_core::{BoxFuture, Host, HostError};

use super::tenant::{Tenant, TenantSettings};
use crate::error::ServeError;
use crate::live::LiveHost;
use crate::server::Server;

/// Maximum number of hosts. At the limit, the host that was idle for the longest time ends.
const MAX_HOSTS: usize = 64;

/// Maximum number of hosts of one principal, which has a host for each set of rights: other groups,
/// another client or another token.
const MAX_HOSTS_OF_PRINCIPAL: usize = 16;

/// Time after which an idle host ends.
const MAX_IDLE: Duration = Duration::from_mins(15);

/// How often a denied principal's data is removed after the end of its host. Threads of the host may
/// still write a last file.
const DENIED_CHECKS: u32 = 30;

/// The time between two removals.
const DENIED_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two searches for idle hosts.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Time for which a failure is the answer to further requests, so that a refused caller can't keep
/// this machine busy.
const FAILURE_LIFETIME: Duration = Duration::from_secs(5);

/// Time after which the use of a server is stored again.
const SEEN_INTERVAL: Duration = Duration::from_hours(1);

/// Time for further changes of plugins, so that several changes cause one reload.
const RELOAD_DELAY: Duration = Duration::from_millis(200);

/// Builds the host of one principal.
pub trait BuildHost: Send + Sync + 'static {
    /// Builds the host with the current configuration. `replaces` is the principal's previous host,
    /// whose jobs continue.
    fn build(
        &self,
        replaces: Option<Arc<Host>>,
    ) -> BoxFuture<'_, Result<BuiltHost, PrincipalError>>;

    /// Stores that the principal uses the server. Called at its first request, and then at most once
    /// an hour. Must not block.
    fn mark_seen(&self);

    /// Ends the scheduled tasks of the principal, who was denied, and removes its data if the
    /// operator wants this. Called after its host has ended. Blocks.
    fn end_denied(&self);
}

/// The host of a principal.
pub struct BuiltHost {
    /// The host.
    pub host: Arc<Host>,
    /// The principal's own folders.
    pub folders: Folders,
    /// The settings in `[approvals]`.
    pub approvals: Approvals,
    /// The principal's limits in `[serve]`.
    pub serve: Serve,
}

/// The reason why a principal isn't served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrincipalError {
    /// The configuration refuses the principal. The text names the rule.
    #[error("{0}")]
    Refused(String),
    /// Too many principals have running work.
    #[error(
        "{MAX_HOSTS} principals are at work; this server serves no more at a time, and \
         {MAX_HOSTS_OF_PRINCIPAL} combinations of groups, client and token of one principal"
    )]
    Full,
    /// The host can't be built.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<ServeError> for PrincipalError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Kept(error) => Self::Host(error),
            error => Self::Host(HostError::Engine(error.to_string())),
        }
    }
}

/// Creates the builder of a principal's host.
pub type OpenPrincipal = Box<dyn Fn(&Who) -> Box<dyn BuildHost> + Send + Sync>;

/// The principals of a server.
pub struct Principals {
    open: OpenPrincipal,
    /// Whether callers with tokens are principals. This stays true, so that the removal of the last
    /// table gives no caller the operator's rights.
    is_active: AtomicBool,
    /// Counts the changes of the operator's configuration.
    generation: AtomicU64,
    /// The reason why no call runs at present.
    refusal: Mutex<Option<String>>,
    entries: Mutex<HashMap<Who, Arc<Entry>>>,
}

struct Entry {
    builder: Box<dyn BuildHost>,
    settings: TenantSettings,
    last_use: Mutex<Instant>,
    last_seen: Mutex<Option<Instant>>,
    tenant: Mutex<Option<Arc<Tenant>>>,
    /// The lock is held while a host is built, so that simultaneous requests build one host.
    last_build: tokio::sync::Mutex<LastBuild>,
}

#[derive(Default)]
struct LastBuild {
    generation: u64,
    failure: Option<(Arc<PrincipalError>, Instant)>,
}

/// How long an entry wasn't used. Entries without a host are the first to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Idleness {
    has_no_host: bool,
    time: Duration,
}

impl Principals {
    /// Creates an empty registry. `has_tables` says whether the configuration has a table
    /// `[principals.NAME]`.
    pub fn new(open: OpenPrincipal, has_tables: bool) -> Arc<Self> {
        Arc::new(Self {
            open,
            is_active: AtomicBool::new(has_tables),
            generation: AtomicU64::new(0),
            refusal: Mutex::default(),
            entries: Mutex::default(),
        })
    }

    /// Applies a changed configuration: each host is built again, and the work of a principal that
    /// the configuration now refuses ends.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn reload(&self, has_tables: bool) {
        self.is_active.fetch_or(has_tables, Ordering::SeqCst);
        let generation = self.generation.fetch_add(1, Ordering::SeqCst) + 1;
        *self.refusal() = None;
        let entries: Vec<Arc<Entry>> = self.entries().values().cloned().collect();
        tokio::spawn(async move {
            for entry in entries {
                entry.refresh(generation).await;
            }
        });
    }

    /// Refuses all calls until the next [`reload`](Self::reload).
    pub fn refuse_calls(&self, reason: &str) {
        *self.refusal() = Some(reason.to_owned());
        for tenant in self.tenants() {
            tenant.live().refuse_calls(reason);
        }
    }

    /// Checks whether callers with tokens have hosts of their own.
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::SeqCst)
    }

    /// Returns the tenant of a principal. Builds its host if necessary.
    pub(super) async fn get(
        &self,
        who: &Who,
        settings: &TenantSettings,
    ) -> Result<Arc<Tenant>, Arc<PrincipalError>> {
        self.check_refusal()?;
        let generation = self.generation.load(Ordering::SeqCst);
        let entry = self.entry(who, settings)?;
        let tenant = entry.current_tenant(generation).await?;
        // The calls may have been refused while the host was built.
        if let Err(error) = self.check_refusal() {
            tenant.live().refuse_calls(&error.to_string());
            return Err(error.into());
        }
        entry.mark_seen();
        Ok(tenant)
    }

    fn check_refusal(&self) -> Result<(), PrincipalError> {
        match &*self.refusal() {
            Some(reason) => Err(PrincipalError::Refused(reason.clone())),
            None => Ok(()),
        }
    }

    /// Returns the tenants of all principals.
    pub(super) fn tenants(&self) -> Vec<Arc<Tenant>> {
        let entries = self.entries();
        entries.values().filter_map(|entry| entry.tenant().clone()).collect()
    }

    pub(super) fn ids(&self) -> Vec<PrincipalId> {
        self.entries().keys().map(Who::id).collect()
    }

    /// Ends the hosts of denied principals.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub(super) fn end_denied(&self, denied: &HashSet<PrincipalId>) {
        self.entries().retain(|who, entry| {
            let is_denied = denied.contains(&who.id());
            if is_denied {
                tokio::spawn(Arc::clone(entry).end_denied());
            }
            !is_denied
        });
    }

    /// Ends all hosts.
    pub(super) async fn end(&self) {
        let entries = std::mem::take(&mut *self.entries());
        let mut ending = JoinSet::new();
        for entry in entries.into_values() {
            ending.spawn(entry.end());
        }
        while ending.join_next().await.is_some() {}
    }

    /// Ends idle hosts, and reloads plugins after the operator's host `live` has reloaded them.
    /// Never returns.
    pub(super) async fn maintain(&self, live: &LiveHost) {
        tokio::join!(self.end_idle_hosts(), self.follow_plugins(live));
    }

    async fn end_idle_hosts(&self) {
        loop {
            sleep(IDLE_CHECK_INTERVAL).await;
            let mut ended = Vec::new();
            self.entries().retain(|_, entry| {
                let is_kept = entry.idleness().is_none_or(|idleness| idleness.time < MAX_IDLE);
                if !is_kept {
                    ended.push(Arc::clone(entry));
                }
                is_kept
            });
            for entry in ended {
                tokio::spawn(entry.end());
            }
        }
    }

    /// Reloads plugins after each change of the plugins in the operator's host, because the hosts
    /// of principals don't watch files.
    async fn follow_plugins(&self, live: &LiveHost) {
        let mut replacements = live.replacements();
        let mut changes = live.current().changes();
        loop {
            tokio::select! {
                // `biased` handles a replacement of the host first, because the old host's channel
                // of changes then closes. `reload` builds all hosts again.
                biased;
                _ = replacements.changed() => changes = live.current().changes(),
                changed = changes.changed() => {
                    if changed.is_err() {
                        // The old host has ended, and its replacement follows.
                        sleep(RELOAD_DELAY).await;
                        changes = live.current().changes();
                        continue;
                    }
                    sleep(RELOAD_DELAY).await;
                    changes.mark_unchanged();
                    for tenant in self.tenants() {
                        let host = tenant.live().current();
                        host.reload_plugins().await;
                    }
                }
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Who, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusal(&self) -> MutexGuard<'_, Option<String>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns or creates the entry of a principal.
    fn entry(&self, who: &Who, settings: &TenantSettings) -> Result<Arc<Entry>, PrincipalError> {
        let mut entries = self.entries();
        if let Some(entry) = entries.get(who) {
            entry.mark_used();
            return Ok(Arc::clone(entry));
        }
        let own_count = entries.keys().filter(|other| are_of_one_principal(other, who)).count();
        if own_count >= MAX_HOSTS_OF_PRINCIPAL {
            end_longest_idle(&mut entries, |other| are_of_one_principal(other, who))?;
        } else if entries.len() >= MAX_HOSTS {
            end_longest_idle(&mut entries, |_other| true)?;
        }
        let entry = Arc::new(Entry {
            builder: (self.open)(who),
            settings: settings.clone(),
            last_use: Mutex::new(Instant::now()),
            last_seen: Mutex::default(),
            tenant: Mutex::default(),
            last_build: tokio::sync::Mutex::default(),
        });
        entries.insert(who.clone(), Arc::clone(&entry));
        Ok(entry)
    }
}

/// Checks whether two combinations of groups, client and token belong to the same principal.
fn are_of_one_principal(one: &Who, other: &Who) -> bool {
    one.issuer == other.issuer && one.subject == other.subject
}

/// Ends the host that was idle for the longest time among those that `is_candidate` selects.
fn end_longest_idle(
    entries: &mut HashMap<Who, Arc<Entry>>,
    is_candidate: impl Fn(&Who) -> bool,
) -> Result<(), PrincipalError> {
    let candidates = entries.iter().filter(|(who, _)| is_candidate(who));
    let idle = candidates.filter_map(|(who, entry)| Some((entry.idleness()?, who)));
    let (_, who) = idle.max_by_key(|(idleness, _)| *idleness).ok_or(PrincipalError::Full)?;
    let who = who.clone();
    if let Some(entry) = entries.remove(&who) {
        tokio::spawn(entry.end());
    }
    Ok(())
}

impl Entry {
    fn mark_used(&self) {
        *self.last_use.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn mark_seen(&self) {
        let mut last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        if last_seen.is_none_or(|time| time.elapsed() > SEEN_INTERVAL) {
            *last_seen = Some(Instant::now());
            self.builder.mark_seen();
        }
    }

    fn tenant(&self) -> MutexGuard<'_, Option<Arc<Tenant>>> {
        self.tenant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tenant with a host of this generation of the configuration, or a later one.
    async fn current_tenant(&self, generation: u64) -> Result<Arc<Tenant>, Arc<PrincipalError>> {
        let mut last_build = self.last_build.lock().await;
        let previous = self.tenant().clone();
        if last_build.generation >= generation {
            if let Some(tenant) = previous {
                return Ok(tenant);
            }
            if let Some((error, at)) = &last_build.failure
                && at.elapsed() < FAILURE_LIFETIME
            {
                return Err(Arc::clone(error));
            }
        }
        match self.build(previous.as_ref()).await {
            Ok(tenant) => {
                *self.tenant() = Some(Arc::clone(&tenant));
                *last_build = LastBuild { generation, failure: None };
                Ok(tenant)
            }
            Err(error) => {
                if let PrincipalError::Host(error) = &error {
                    tracing::error!("the host of a principal can't be built: {error}");
                }
                *self.tenant() = None;
                if let Some(tenant) = previous {
                    tokio::spawn(tenant.end());
                }
                let error = Arc::new(error);
                let failure = Some((Arc::clone(&error), Instant::now()));
                *last_build = LastBuild { generation, failure };
                Err(error)
            }
        }
    }

    /// Builds a host, and puts it into use in the previous tenant or in a new one.
    async fn build(&self, previous: Option<&Arc<Tenant>>) -> Result<Arc<Tenant>, PrincipalError> {
        let replaces = previous.map(|tenant| tenant.live().current());
        let BuiltHost { host, folders, approvals, serve } = self.builder.build(replaces).await?;
        if let Some(tenant) = previous {
            tenant.live().replace(host);
            return Ok(Arc::clone(tenant));
        }
        let server = Server::new(host, folders.clone(), &approvals)?;
        let server = server.with_structured(serve.structured);
        Ok(Arc::new(Tenant::new(&server, &folders, &serve, &self.settings)?))
    }

    /// Builds the host again, if there is one.
    async fn refresh(&self, generation: u64) {
        if self.tenant().is_some() {
            // An error ends the work of the principal, whose next request gets it as the answer.
            let _ = self.current_tenant(generation).await;
        }
    }

    /// Returns `None` if the entry is in use.
    fn idleness(self: &Arc<Self>) -> Option<Idleness> {
        // Each request has a reference to its tenant, and to the entry while the host is built.
        if Arc::strong_count(self) > 1 {
            return None;
        }
        let tenant = self.tenant();
        if let Some(tenant) = &*tenant {
            let has_requests = Arc::strong_count(tenant) > 1;
            if has_requests || !tenant.is_idle() {
                return None;
            }
        }
        let last_use = *self.last_use.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Idleness { has_no_host: tenant.is_none(), time: last_use.elapsed() })
    }

    /// Ends the host of a denied principal, whose entry was removed.
    async fn end_denied(self: Arc<Self>) {
        // A host that is being built belongs to this entry, too.
        let _build = self.last_build.lock().await;
        Arc::clone(&self).end().await;
        for _ in 0..DENIED_CHECKS {
            let entry = Arc::clone(&self);
            // An error means that the process is ending.
            let _ = tokio::task::spawn_blocking(move || entry.builder.end_denied()).await;
            sleep(DENIED_CHECK_INTERVAL).await;
        }
    }

    /// Ends the host of an entry that was removed.
    async fn end(self: Arc<Self>) {
        let tenant = self.tenant().take();
        if let Some(tenant) = tenant {
            tenant.end().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tempfile::TempDir;
    use toolhold_core::CancellationToken;

    use super::*;
    use crate::metrics::Metrics;

    /// Builds hosts without tools. Callers with the group `refused` are refused.
    struct Scene {
        root: TempDir,
        /// The host whose engine all hosts use.
        first: Arc<Host>,
        builds: AtomicUsize,
        is_closed: AtomicBool,
    }

    struct Builder {
        scene: Arc<Scene>,
        who: Who,
    }

    impl BuildHost for Builder {
        fn build(
            &self,
            replaces: Option<Arc<Host>>,
        ) -> BoxFuture<'_, Result<BuiltHost, PrincipalError>> {
            Box::pin(self.build_host(replaces))
        }

        fn mark_seen(&self) {}

        fn end_denied(&self) {}
    }

    impl Builder {
        async fn build_host(
            &self,
            replaces: Option<Arc<Host>>,
        ) -> Result<BuiltHost, PrincipalError> {
            self.scene.builds.fetch_add(1, Ordering::SeqCst);
            if self.scene.is_closed.load(Ordering::SeqCst) {
                return Err(PrincipalError::Refused("no table".to_owned()));
            }
            let folders = Folders::inside(self.scene.root.path());
            let folders = folders.of_principal(&self.who.id());
            let mut builder = Host::builder()
                .folders(folders.clone())
                .working_directory(real_path(&self.scene.root))
                .shares_engine(&self.scene.first);
            if let Some(previous) = replaces {
                builder = builder.replaces(&previous);
            }
            Ok(BuiltHost {
                host: Arc::new(builder.build().await?),
                folders,
                approvals: Approvals::default(),
                serve: Serve::default(),
            })
        }
    }

    fn real_path(root: &TempDir) -> std::path::PathBuf {
        root.path().canonicalize().expect("the folder is there")
    }

    async fn scene() -> (Arc<Scene>, Arc<Principals>, TenantSettings) {
        let root = tempfile::tempdir().expect("a temporary folder");
        let first = Host::builder()
            .folders(Folders::inside(root.path()))
            .working_directory(real_path(&root));
        let first = Arc::new(first.build().await.expect("a host"));
        let scene =
            Arc::new(Scene { root, first, builds: AtomicUsize::new(0), is_closed: false.into() });
        let opened = Arc::clone(&scene);
        let open = move |who: &Who| -> Box<dyn BuildHost> {
            Box::new(Builder { scene: Arc::clone(&opened), who: who.clone() })
        };
        let settings = TenantSettings {
            metrics: Metrics::new(),
            allowed_hosts: Vec::new(),
            max_body: 1024,
            streams: CancellationToken::new(),
        };
        (scene, Principals::new(Box::new(open), true), settings)
    }

    fn who(subject: &str, group: &str) -> Who {
        Who {
            issuer: "https://login.example.org".to_owned(),
            subject: subject.to_owned(),
            groups: vec![group.to_owned()],
            client: None,
            token: None,
        }
    }

    #[tokio::test]
    async fn simultaneous_first_requests_build_one_host() {
        let (scene, principals, settings) = scene().await;
        let mut requests = JoinSet::new();
        for _ in 0..200 {
            let principals = Arc::clone(&principals);
            let settings = settings.clone();
            requests.spawn(async move { principals.get(&who("anna", "dev"), &settings).await });
        }
        let first = principals.get(&who("anna", "dev"), &settings).await.expect("it is served");
        while let Some(tenant) = requests.join_next().await {
            let tenant = tenant.expect("nothing panics").expect("it is served");
            assert!(Arc::ptr_eq(&tenant, &first));
        }
        assert_eq!(scene.builds.load(Ordering::SeqCst), 1);
        let ben = principals.get(&who("ben", "dev"), &settings).await.expect("it is served");
        assert!(!Arc::ptr_eq(&ben, &first));
    }

    #[tokio::test]
    async fn each_set_of_rights_has_a_host_and_their_number_is_bounded() {
        let (scene, principals, settings) = scene().await;
        let mut held = Vec::new();
        for number in 0..MAX_HOSTS_OF_PRINCIPAL {
            let who = who("anna", &number.to_string());
            held.push(principals.get(&who, &settings).await.expect("it is served"));
        }
        assert_eq!(scene.builds.load(Ordering::SeqCst), MAX_HOSTS_OF_PRINCIPAL);
        let refused = principals.get(&who("anna", "more"), &settings).await;
        assert!(matches!(refused.err().as_deref(), Some(PrincipalError::Full)));
        let more = MAX_HOSTS - MAX_HOSTS_OF_PRINCIPAL;
        for number in 0..more {
            let who = who(&number.to_string(), "dev");
            held.push(principals.get(&who, &settings).await.expect("it is served"));
        }
        // All are in use.
        let refused = principals.get(&who("ben", "dev"), &settings).await;
        assert!(matches!(refused.err().as_deref(), Some(PrincipalError::Full)));
        // An idle one makes room.
        held.pop();
        held.push(principals.get(&who("ben", "dev"), &settings).await.expect("it is served"));
        assert_eq!(principals.tenants().len(), MAX_HOSTS);
        assert!(principals.get(&who("anna", "0"), &settings).await.is_ok());
    }

    #[tokio::test]
    async fn reload_builds_again_and_a_refusal_ends_the_host() {
        let (scene, principals, settings) = scene().await;
        let anna = who("anna", "dev");
        let tenant = principals.get(&anna, &settings).await.expect("it is served");
        let host = tenant.live().current();
        principals.reload(true);
        let again = principals.get(&anna, &settings).await.expect("it is served");
        assert!(Arc::ptr_eq(&again, &tenant), "sessions go on");
        assert!(!Arc::ptr_eq(&again.live().current(), &host));
        assert_eq!(scene.builds.load(Ordering::SeqCst), 2);

        scene.is_closed.store(true, Ordering::SeqCst);
        principals.reload(false);
        assert!(principals.is_active(), "no caller gets the operator's rights");
        for _ in 0..3 {
            let refused = principals.get(&anna, &settings).await;
            assert!(matches!(refused.err().as_deref(), Some(PrincipalError::Refused(_))));
        }
        assert_eq!(scene.builds.load(Ordering::SeqCst), 3, "the refusal is kept for a while");
        assert!(principals.tenants().is_empty());

        scene.is_closed.store(false, Ordering::SeqCst);
        principals.reload(true);
        assert!(principals.get(&anna, &settings).await.is_ok());
    }

    #[tokio::test]
    async fn refused_calls_stay_refused_until_the_next_reload() {
        let (_scene, principals, settings) = scene().await;
        let anna = who("anna", "dev");
        let tenant = principals.get(&anna, &settings).await.expect("it is served");
        principals.refuse_calls("the ceiling is broken");
        for subject in ["anna", "ben"] {
            let refused = principals.get(&who(subject, "dev"), &settings).await;
            let refused = refused.err().expect("it is refused");
            assert!(refused.to_string().contains("the ceiling is broken"), "{refused}");
        }
        let request = toolhold_core::Request::new("none", serde_json::json!({}));
        let answer = tenant.live().current().call(request).await;
        let failure = answer.outcome.expect_err("it is denied");
        assert!(failure.message.contains("the ceiling is broken"), "{}", failure.message);
        principals.reload(true);
        assert!(principals.get(&anna, &settings).await.is_ok());
    }
}
