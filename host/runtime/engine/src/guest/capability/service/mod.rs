//! `toolhold:host/service`: programs that outlive a call.
//!
//! A program is checked at each connection. Its standard input isn't checked.

pub(crate) mod connection;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use toolhold_component::Capability;
use toolhold_contract::text::neutral_line;
use toolhold_contract::{
    BoundedOutput, CancellationToken, Denial, ServiceKeeper, ServiceKey, ServiceProgram,
};
use toolhold_system::process::{self, Command, Places};
use wasmtime::component::{Linker, Resource};

use crate::guest::bindings::toolhold::host::types::Error;
use crate::guest::capability::bindings::toolhold::host::process::{Command as Requested, Options};
use crate::guest::capability::bindings::toolhold::host::service as wit;
use crate::guest::capability::process::{CheckedCommand, ending_name, not_started, time_after};
use crate::guest::capability::{CallCapability, CallFacts};
use crate::guest::convert::host_error;
use crate::guest::{CallState, HasState};

use connection::{Connection, MAX_OUTPUT};

const MAX_NAME: usize = 64;

/// Longest time of a `write`. The limit stops a program that doesn't read from blocking its client.
const WRITE_TIME: Duration = Duration::from_secs(4);

const MAX_TIME: Duration = Duration::from_hours(24);

/// The services of a plugin.
#[derive(Debug)]
pub struct PluginServices {
    /// Most services in a session.
    pub most: usize,
    /// Whether a program without a grant may be a service if the rules allow its command line. The
    /// rules don't see its standard input, so this is true only for plugins whose commands the user
    /// wrote.
    pub judged: bool,
    /// The sandbox, in which services can only read.
    pub places: Places,
    /// The number of this policy. A service from another policy isn't reused.
    pub id: u64,
}

impl PluginServices {
    /// Makes the policy of a plugin.
    pub fn new(most: usize, judged: bool, places: Places) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { most, judged, places, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

/// The state of this capability in a call.
pub(crate) struct Services {
    grant: Arc<PluginServices>,
    /// The owner of the services between calls. `None` if services can't outlive the call.
    keeper: Option<Arc<dyn ServiceKeeper>>,
}

impl CallCapability for Option<Services> {
    type Grant = Arc<PluginServices>;

    fn begin(grant: &Arc<PluginServices>, facts: &CallFacts<'_>) -> Self {
        Some(Services { grant: Arc::clone(grant), keeper: facts.call.commands.services.clone() })
    }

    fn link(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
        wit::add_to_linker::<CallState, HasState>(linker, |state| state)
    }
}

impl CallState {
    fn connect_service(
        &mut self,
        name: String,
        words: Vec<String>,
        options: &Options,
    ) -> Result<Connection, Error> {
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            let message = format!("a service's name has to be 1 to {MAX_NAME} bytes");
            return Err(host_error("invalid", message));
        }
        let services = self.capabilities.service.as_ref();
        let may_judge = services.is_some_and(|services| services.grant.judged);
        let CheckedCommand { command, policy, .. } =
            self.check_process(Requested::Program(words), options, may_judge)?;
        let Some(Services { grant, keeper }) = &self.capabilities.service else {
            let denial = Box::new(Denial {
                capability: "service".to_owned(),
                action: format!("connect to the service `{}`", neutral_line(&name)),
                rule: "services = 0".to_owned(),
                place: "the default of a plugin".to_owned(),
                remedy: format!(
                    "To allow it, {}",
                    policy.table.lines(Capability::Service.facts().line)
                ),
            });
            let text = denial.to_string();
            self.files.denials().remember(denial);
            return Err(host_error("denied", text));
        };
        let Some(keeper) = keeper else {
            let message = "this host doesn't support services";
            return Err(host_error("unavailable", message));
        };

        // The service outlives the call, so it gets neither the network nor the recorders nor the
        // shell of the call. Its later changes can't be undone.
        let command = Command {
            network: false,
            shared_network: None,
            connections: None,
            authority: None,
            changes: None,
            output: None,
            shell: None,
            ..command
        };
        let plugin = self.call.plugin.to_string();
        let rights = service_rights(grant, &command);
        let key = ServiceKey { plugin, name, rights, most: grant.most };
        let mut place =
            keeper.take(&key).map_err(|error| host_error("unavailable", error.to_string()))?;

        let end = self.call.watch.deadline();
        let cancel = &self.call.watch.cancel;
        let running = place.program().and_then(|program| resume(program, end, cancel));
        let is_new = running.is_none();
        let child = match running {
            Some(child) => child,
            None => process::Child::start(&grant.places, &command, MAX_OUTPUT, end, cancel)
                .map_err(|error| not_started(&error, &policy))?,
        };
        if let Some(processes) = &self.capabilities.process {
            processes.report.mark_incomplete();
        }
        Ok(Connection {
            child: Some(child),
            place: Some(place),
            is_new,
            errors: BoundedOutput::default(),
        })
    }
}

/// Returns a string that is equal for services with equal rights. It is part of [`ServiceKey`], so
/// a call can't use a running service whose rights differ from the rights that the call would give
/// to a new service.
fn service_rights(grant: &PluginServices, command: &Command) -> String {
    let rules = command.path_rules.as_ref().map(|rules| rules.rights());
    format!(
        "{} {:?} {:?} {:?} {rules:?}",
        grant.id, command.arguments, command.directory, command.environment
    )
}

/// Applies this call's limits to a running service. Returns `None` if the service has ended.
fn resume(
    program: ServiceProgram,
    end: Instant,
    cancel: &CancellationToken,
) -> Option<process::Child> {
    // Each service is a process that `connect_service` has started.
    let mut child = *program.downcast::<process::Child>().ok()?;
    child.set_bounds(end, cancel);
    // `look` finds out whether the process has ended. The closure ignores new output, because
    // `child` stores it.
    child.look(&mut |_, _| {});
    if child.finished().is_some() {
        return None;
    }
    Some(child)
}

impl wit::Host for &mut CallState {
    fn connect(
        &mut self,
        name: String,
        command: Vec<String>,
        options: Options,
    ) -> wasmtime::Result<Result<Resource<Connection>, Error>> {
        match self.connect_service(name, command, &options) {
            Ok(connection) => Ok(Ok(self.table().push(connection)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn stop(&mut self, name: String) -> wasmtime::Result<Result<bool, Error>> {
        let Some(services) = &self.capabilities.service else { return Ok(Ok(false)) };
        let Some(keeper) = &services.keeper else { return Ok(Ok(false)) };
        Ok(Ok(keeper.stop(&self.call.plugin, &name)))
    }
}

impl wit::HostConnection for &mut CallState {
    fn is_new(&mut self, handle: Resource<Connection>) -> wasmtime::Result<bool> {
        Ok(self.table().get(&handle)?.is_new)
    }

    fn read(
        &mut self,
        handle: Resource<Connection>,
        timeout_ms: Option<u64>,
    ) -> wasmtime::Result<Vec<u8>> {
        let until = timeout_ms.and_then(time_after);
        let connection = self.table().get_mut(&handle)?;
        loop {
            let Some(child) = &mut connection.child else { return Ok(Vec::new()) };
            // The closure ignores the output, because `child` stores it. The wait also ends after
            // output on standard error only, so the loop may have to wait again.
            child.wait_for_output(until, &mut |_, _| {});
            let has_ended = child.finished().is_some();
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            let bytes = child.output().stdout.take();
            connection.take_errors();
            if !bytes.is_empty() || has_ended || is_late {
                return Ok(bytes);
            }
        }
    }

    fn errors(&mut self, handle: Resource<Connection>) -> wasmtime::Result<Vec<u8>> {
        let connection = self.table().get_mut(&handle)?;
        connection.take_errors();
        Ok(connection.errors.take())
    }

    fn write(&mut self, handle: Resource<Connection>, bytes: Vec<u8>) -> wasmtime::Result<u64> {
        let Some(child) = &mut self.table().get_mut(&handle)?.child else { return Ok(0) };
        let until = Some(Instant::now() + WRITE_TIME);
        let written = child.write(&bytes, until, &mut |_, _| {});
        Ok(u64::try_from(written).unwrap_or_default())
    }

    fn ended(&mut self, handle: Resource<Connection>) -> wasmtime::Result<Option<wit::Ended>> {
        let Some(child) = &mut self.table().get_mut(&handle)?.child else { return Ok(None) };
        // `look` finds out whether the process has ended. The closure ignores new output, because
        // `child` stores it.
        child.look(&mut |_, _| {});
        Ok(child.finished().map(|finished| wit::Ended {
            exit_code: finished.code,
            ending: ending_name(finished.ending).to_owned(),
        }))
    }

    fn keep(&mut self, handle: Resource<Connection>) -> wasmtime::Result<()> {
        let connection = self.table().get_mut(&handle)?;
        let child = connection.child.take();
        let place = connection.place.take();
        let (Some(mut child), Some(place)) = (child, place) else { return Ok(()) };
        if child.finished().is_none() {
            // The deadline and the cancellation of a call must not apply between calls.
            child.set_bounds(Instant::now() + MAX_TIME, &CancellationToken::new());
            place.keep(Box::new(child));
        }
        Ok(())
    }

    fn drop(&mut self, handle: Resource<Connection>) -> wasmtime::Result<()> {
        self.table().delete(handle)?;
        Ok(())
    }
}
