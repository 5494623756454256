//! Builds the hosts of principals: each has the operator's configuration, limited by the table of
//! the principal and by its token, and data of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use toolhold_core::config::{
    self, Config, DeniedPrincipal, Folders, Inputs, KnownPrincipal, Problems, Who,
};
use toolhold_core::{BoxFuture, Host, HostError};
use toolhold_mcp_client::Servers;
use toolhold_mcp_server::{
    BuildHost, BuiltHost, ListenAddress, LiveHost, LocalTokens, OpenPrincipal, PrincipalError,
    Principals,
};
use toolhold_skills::OfferedSkills;

use super::{FRONT_END, own_network, prepare_in};
use crate::options::Options;
use crate::tasks::command::ServedTasks;

/// The principals of a running server.
pub(super) struct ServedPrincipals {
    operator: Arc<Operator>,
    registry: Arc<Principals>,
}

/// The operator's part of all hosts.
struct Operator {
    options: Options,
    folders: Folders,
    address: ListenAddress,
    /// The operator's host, whose engine all hosts use.
    live: Arc<LiveHost>,
    tasks: Arc<ServedTasks>,
    loaded: Mutex<Arc<Config>>,
}

struct PrincipalHost {
    operator: Arc<Operator>,
    who: Who,
    folders: Folders,
    /// The principal's upstream servers, which a new host takes over.
    servers: Servers,
}

impl ServedPrincipals {
    pub(super) fn new(
        options: &Options,
        loaded: &Config,
        address: &ListenAddress,
        live: Arc<LiveHost>,
        tasks: &Arc<ServedTasks>,
    ) -> Arc<Self> {
        let operator = Arc::new(Operator {
            // A plugin of the command line has no table, so no principal may use it.
            options: Options { plugin: Vec::new(), ..options.clone() },
            folders: tasks.folders().clone(),
            address: address.clone(),
            live,
            tasks: Arc::clone(tasks),
            loaded: Mutex::new(Arc::new(loaded.clone())),
        });
        let opener = Arc::clone(&operator);
        let open: OpenPrincipal = Box::new(move |who: &Who| opener.open(who));
        let registry = Principals::new(open, loaded.has_principals());
        Arc::new(Self { operator, registry })
    }

    pub(super) fn registry(&self) -> Arc<Principals> {
        Arc::clone(&self.registry)
    }

    /// Applies a changed configuration to all principals.
    pub(super) fn reload(&self, loaded: &Config) {
        *self.operator.loaded.lock().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(loaded.clone());
        self.registry.reload(loaded.has_principals());
    }

    /// Refuses all calls of principals until the next [`reload`](Self::reload).
    pub(super) fn refuse_calls(&self, reason: &str) {
        self.registry.refuse_calls(reason);
    }
}

impl BuildHost for PrincipalHost {
    fn build(
        &self,
        replaces: Option<Arc<Host>>,
    ) -> BoxFuture<'_, Result<BuiltHost, PrincipalError>> {
        Box::pin(self.load_and_build(replaces))
    }

    fn mark_seen(&self) {
        let folders = self.folders.clone();
        let who = self.who.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = KnownPrincipal::store(&folders, &who) {
                tracing::warn!("the name of a principal can't be stored: {error}");
            }
        });
    }

    fn end_denied(&self) {
        self.operator.tasks.end_principal(&self.folders);
        let id = self.who.id();
        let denial = DeniedPrincipal::find(&self.folders, &id);
        let is_purged = matches!(denial, Ok(Some(denial)) if denial.purge);
        // `toolhold token revoke` has removed the data while this server could still write.
        if is_purged && let Err(error) = DeniedPrincipal::remove_data(&self.folders, &id) {
            tracing::error!("the data of a denied principal can't be removed: {error}");
        }
    }
}

impl PrincipalHost {
    async fn load_and_build(
        &self,
        replaces: Option<Arc<Host>>,
    ) -> Result<BuiltHost, PrincipalError> {
        let loaded = self.load().await?;
        let directory = match &loaded.principal {
            Some(principal) => principal.directory.clone(),
            None => config::working_directory()?,
        };
        let host = self.build_in(directory, loaded.clone(), replaces).await?;
        self.operator.tasks.add_principal(&self.folders, &loaded)?;
        let values = loaded.values;
        Ok(BuiltHost {
            host,
            folders: self.folders.clone(),
            approvals: values.approvals,
            serve: values.serve,
        })
    }

    /// Loads the configuration of the principal.
    async fn load(&self) -> Result<Config, PrincipalError> {
        let operator = Arc::clone(&self.operator);
        let folders = self.folders.clone();
        let who = self.who.clone();
        let loading = tokio::task::spawn_blocking(move || operator.load(&folders, who));
        match loading.await {
            Ok(result) => result,
            Err(error) => Err(HostError::io("loading the configuration")(error.into()).into()),
        }
    }

    async fn build_in(
        &self,
        directory: PathBuf,
        loaded: Config,
        replaces: Option<Arc<Host>>,
    ) -> Result<Arc<Host>, HostError> {
        let Operator { options, address, live, .. } = &*self.operator;
        // The folders of skills are the operator's.
        let skills = OfferedSkills { skills: Arc::default(), are_listed: true };
        let folders = self.folders.clone();
        let address = Some(address);
        let servers = &self.servers;
        let mut prepared =
            prepare_in(directory, options, folders, loaded, address, servers, &skills)?;
        prepared.builder =
            prepared.builder.shares_engine(&live.current()).principal(self.who.clone());
        if let Some(previous) = replaces {
            prepared.builder = prepared.builder.replaces(&previous);
        }
        prepared.build().await
    }
}

impl Operator {
    /// Creates the builder of a principal's host.
    fn open(self: &Arc<Self>, who: &Who) -> Box<dyn BuildHost> {
        Box::new(PrincipalHost {
            operator: Arc::clone(self),
            who: who.clone(),
            folders: self.folders.of_principal(&who.id()),
            servers: Servers::new(FRONT_END).with_network(own_network(&self.address)),
        })
    }

    /// Loads the operator's configuration, limited by the principal's table and token. `folders`
    /// are the principal's. Blocks.
    fn load(&self, folders: &Folders, who: Who) -> Result<Config, PrincipalError> {
        let mut inputs: Inputs = self.options.inputs()?;
        if let Some(id) = &who.token {
            let Some(record) = LocalTokens::new(&self.folders).valid(id)? else {
                return Err(PrincipalError::Refused("the token was revoked".to_owned()));
            };
            inputs.bounds = record.bounds;
            inputs.principal_table = record.table;
        }
        let operator = Arc::clone(&self.loaded.lock().unwrap_or_else(PoisonError::into_inner));
        // Without tables, a token with limits of its own has the operator's rights within them.
        // Other principals need a table: if the last one was removed, no table matches them.
        let has_own_limits = !inputs.bounds.is_empty() && inputs.principal_table.is_none();
        if operator.has_principals() || !has_own_limits {
            inputs.who = Some(who);
        }
        let loaded = config::load(folders, &inputs);
        loaded.map_err(|Problems(mut problems)| {
            // The caller is told where the rule is, but not what else is in the operator's file.
            for problem in &mut problems {
                problem.excerpt = None;
            }
            PrincipalError::Refused(Problems(problems).to_string())
        })
    }
}
