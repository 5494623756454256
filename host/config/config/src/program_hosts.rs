//! Decides on the hosts that programs of commands reach.

use toolhold_contract::HostError;
use toolhold_policy::egress::{ProgramTarget, Scheme};
use toolhold_policy::{Decision, Gate, Origin, OriginKind, Verdict};

use super::{Ceiling, Config, NetworkGrant, SandboxMode, Source};

/// The list of hosts of commands.
pub(super) const HOSTS: &str = "tools.shell.hosts";
const NETWORK: &str = "tools.shell.network";
const SANDBOX: &str = "tools.shell.sandbox";

impl Config {
    /// Returns whether a person can approve further hosts while a command runs. Without a sandbox,
    /// nobody is asked, because commands connect to the network directly. Nobody is asked either if
    /// a ceiling has an empty list, because it excludes all hosts.
    pub(super) fn asks_about_hosts(&self) -> bool {
        let shell = &self.values.tools.shell;
        let is_excluded = self
            .ceilings_on_hosts()
            .any(|ceiling| ceiling.contents.values.tools.shell.hosts.is_empty());
        shell.network == NetworkGrant::Ask && shell.sandbox != SandboxMode::Off && !is_excluded
    }

    /// Decides on a connection of a command's program. With *ask*, a person decides.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if an entry can't be used.
    pub fn decide_on_host(&self, target: &ProgramTarget) -> Result<Decision, HostError> {
        let shell = &self.values.tools.shell;
        if shell.sandbox == SandboxMode::Off {
            return Ok(self.decision_by(SANDBOX, Verdict::Allow, "sandbox = \"off\""));
        }
        match shell.network {
            NetworkGrant::Allow => {
                return Ok(self.decision_by(NETWORK, Verdict::Allow, "network = \"allow\""));
            }
            NetworkGrant::Deny => {
                return Ok(self.decision_by(NETWORK, Verdict::Deny, "network = \"deny\""));
            }
            NetworkGrant::Ask => {}
        }
        let reach = self.shell_reach()?;
        let denial = match reach.entry_of_program(target) {
            Ok(entry) => {
                return Ok(Decision {
                    verdict: Verdict::Allow,
                    gate: Gate::Hosts,
                    rule: format!("hosts has \"{}\"", entry.value).into(),
                    place: entry.place.text.clone(),
                    remedy: "".into(),
                });
            }
            Err(denial) => denial,
        };
        if let Some(decision) = self.denial_by_ceiling(target)? {
            return Ok(decision);
        }
        if !self.asks_about_hosts() || !reach.can_be_opened(&target.target.host) {
            return Ok(Decision { gate: Gate::Hosts, ..Decision::from_grants(&denial) });
        }
        let private_note = match target.private_reason() {
            Some(reason) => format!(", which is {reason}"),
            None => String::new(),
        };
        let rule = format!("network = \"ask\": no entry of hosts has {target}{private_note}");
        let decision = self.decision_by(NETWORK, Verdict::Ask, &rule);
        Ok(Decision { remedy: denial.remedy.into(), ..decision })
    }

    /// Returns the decision for people on a connection to a loopback host, which never leaves the
    /// command's own network. Returns `None` if another decision counts: for another host, or if
    /// commands have the network of this machine.
    ///
    /// The relay must not use it: a connection that arrives there left that network, for example
    /// because the program itself looked up `localhost` in the DNS.
    pub fn decision_on_own_loopback(&self, target: &ProgramTarget) -> Option<Decision> {
        let shell = &self.values.tools.shell;
        let has_own_network =
            shell.sandbox != SandboxMode::Off && shell.network != NetworkGrant::Allow;
        if !has_own_network || !target.target.host.is_loopback() {
            return None;
        }
        Some(Decision {
            verdict: Verdict::Allow,
            gate: Gate::Hosts,
            rule: "the loopback of a command isn't the loopback of this machine; `hosts` has no \
                   effect on it"
                .into(),
            place: "built in".into(),
            remedy: "To reach another server of this machine, let it listen at another address, \
                     and add that address to `hosts`."
                .into(),
        })
    }

    /// Returns whether entries allow only some requests to a host.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Config`] if an entry can't be used.
    pub fn limits_requests(&self, target: &ProgramTarget) -> Result<bool, HostError> {
        Ok(self.shell_reach()?.limits_requests(&target.target))
    }

    /// Returns the names of the secrets that commands can send to a host.
    pub fn secrets_of_host(&self, target: &ProgramTarget) -> Vec<String> {
        let mut names = Vec::new();
        let has_tls = !target.is_other_protocol && target.target.scheme == Scheme::Https;
        for (name, secret) in &self.values.tools.shell.secrets {
            let Ok(rule) = secret.rule(name) else { continue };
            if has_tls && rule.hosts.iter().any(|host| host.matches(&target.target)) {
                names.push(name.clone());
            }
        }
        names
    }

    /// Returns a decision by one key of `[tools.shell]` for all hosts.
    fn decision_by(&self, key: &str, verdict: Verdict, rule: &str) -> Decision {
        let place = if key == NETWORK { self.origin_of_network() } else { self.origin(key) };
        let remedy = place.remedy(|| {
            "To decide on each host, set `network = \"ask\"` and `sandbox = \"strict\"` in \
             [tools.shell]."
                .to_owned()
        });
        let rule = rule.to_owned().into();
        Decision { verdict, gate: Gate::Hosts, rule, place: place.text, remedy }
    }

    /// Returns the denial of a host that isn't in the list of a ceiling.
    fn denial_by_ceiling(&self, target: &ProgramTarget) -> Result<Option<Decision>, HostError> {
        for ceiling in self.ceilings_on_hosts() {
            let mut reach = ceiling.contents.shell_reach()?;
            // An approval would allow all methods and paths of the host, so an entry of the ceiling
            // that allows only some of them isn't enough.
            reach
                .grants
                .retain(|grant| grant.value.methods.is_empty() && grant.value.paths.is_empty());
            let Err(denial) = reach.entry_of_program(target) else { continue };
            let place = origin_of_hosts(ceiling);
            return Ok(Some(Decision {
                verdict: Verdict::Deny,
                gate: Gate::Hosts,
                rule: denial.rule.into(),
                remedy: place.remedy(String::new),
                place: place.text,
            }));
        }
        Ok(None)
    }

    /// Returns the place of `network` of commands. If a ceiling limits it to the same value, returns
    /// the place in the ceiling, because no line of the user's own file can allow more.
    pub(super) fn origin_of_network(&self) -> Origin {
        let network = self.values.tools.shell.network;
        if network != NetworkGrant::Allow {
            for Ceiling { contents, .. } in &self.ceilings {
                let source = contents.source(NETWORK);
                if source != Source::Default && contents.values.tools.shell.network == network {
                    return self.origin_of(&source, NETWORK);
                }
            }
        }
        self.origin(NETWORK)
    }

    /// Returns the place in the first ceiling that sets `hosts` of commands.
    pub(super) fn ceiling_on_hosts(&self) -> Option<Origin> {
        self.ceilings_on_hosts().next().map(origin_of_hosts)
    }

    /// Returns the ceilings that set `hosts` of commands.
    fn ceilings_on_hosts(&self) -> impl Iterator<Item = &Ceiling> {
        self.ceilings
            .iter()
            .filter(|ceiling| ceiling.contents.source_below(HOSTS) != Source::Default)
    }
}

fn origin_of_hosts(ceiling: &Ceiling) -> Origin {
    let text = ceiling.contents.source(HOSTS).place(HOSTS);
    Origin { text: text.into(), kind: OriginKind::Ceiling(ceiling.path.display().to_string()) }
}
