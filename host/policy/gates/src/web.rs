//! The hosts gate: decides before a call runs which hosts the built-in web tools may request.

use std::sync::Arc;

use serde_json::Value;
use toolhold_contract::{BuiltInGrant, BuiltInPlugin, Denial, SubjectKind};

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::egress::{Missing, Reach, ReachStatus, Target, TargetError};
use crate::origin::Placed;

/// The parts of `[tools.web]` that decide on whole calls. Each request of an allowed call is
/// checked again.
#[derive(Clone, Debug)]
pub struct Web {
    /// Hosts that the plugin's requests may reach.
    pub reach: Arc<Reach>,
    /// `other_domains`: the verdict on a call to a host without a rule.
    pub others: Placed<Verdict>,
}

impl Web {
    /// Decides for this gate. `allowed` means that a permission allows the call, including its
    /// hosts.
    pub(crate) fn decide(&self, action: &Action<'_>, allowed: bool) -> Option<Decision> {
        let written_method = action.arguments.get("method").and_then(Value::as_str);
        let method = written_method.unwrap_or("GET").to_ascii_uppercase();
        let decisions = urls(action).filter_map(|url| self.decide_on_url(url, &method, allowed));
        decisions.reduce(|known, next| if next.verdict > known.verdict { next } else { known })
    }

    /// Returns the remedy for a refused call that could request a server of a job.
    pub(crate) fn remedy_by_jobs(&self, action: &Action<'_>) -> Option<String> {
        let mut targets = urls(action).filter_map(|url| Target::parse(url).ok());
        targets.find_map(|target| self.reach.remedy_by_jobs(&target))
    }

    fn decide_on_url(&self, url: &str, method: &str, allowed: bool) -> Option<Decision> {
        let target = match Target::parse(url) {
            Ok(target) => target,
            Err(why) => return Some(invalid_url(&why)),
        };
        match self.reach.status(&target, method, &[]) {
            Err(denial) => Some(denied(&denial)),
            Ok(ReachStatus::Granted) => None,
            Ok(ReachStatus::Unlisted(missing)) => {
                self.decide_on_unlisted(&target, method, missing, allowed)
            }
        }
    }

    fn decide_on_unlisted(
        &self,
        target: &Target,
        method: &str,
        missing: Missing,
        allowed: bool,
    ) -> Option<Decision> {
        let Placed { value, place } = &self.others;
        let others = match value {
            Verdict::Allow => return None,
            Verdict::Ask if allowed => return None,
            Verdict::Ask => "other_domains = \"ask\"",
            Verdict::Deny => "other_domains = \"deny\"",
        };
        let reason = match missing {
            Missing::Host => format!("{} is not in {}", target.host, self.reach.key()),
            Missing::Port => {
                format!("{target} is not in {} with this port or scheme", self.reach.key())
            }
            Missing::Method => {
                format!("{target} is not in {} with this method", self.reach.key())
            }
        };
        // If both keys can be changed, the remedy names the list, because the other key opens every
        // host.
        let elsewhere = if *value == Verdict::Deny { place.elsewhere() } else { None };
        let remedy =
            elsewhere.unwrap_or_else(|| self.reach.unlisted(target, method, missing).remedy);
        Some(Decision {
            verdict: *value,
            gate: Gate::Hosts,
            rule: format!("{others}: {reason}").into(),
            place: place.text.clone(),
            remedy: remedy.into(),
        })
    }
}

/// Returns the origins that a call of the web tools requests, as [`Target::origin`]. After the call
/// is allowed, they are granted for this call. Empty for the tools of other plugins.
pub fn origins(action: &Action<'_>) -> Vec<String> {
    let mut origins: Vec<String> = urls(action)
        .filter_map(|url| Target::parse(url).ok())
        .map(|target| target.origin())
        .collect();
    origins.sort();
    origins.dedup();
    origins
}

/// Returns the URLs in a call of the web tools. Empty for other calls, because other plugins have
/// their own hosts and their calls don't ask.
fn urls<'a>(action: &Action<'a>) -> impl Iterator<Item = &'a str> {
    let is_web_tool =
        action.built_in && BuiltInPlugin::has(action.provider, BuiltInGrant::Requests);
    action
        .subjects
        .iter()
        .filter(move |subject| is_web_tool && subject.kind == SubjectKind::Url)
        .map(|subject| &*subject.text)
}

fn denied(denial: &Denial) -> Decision {
    Decision { gate: Gate::Hosts, ..Decision::from_grants(denial) }
}

/// Denies a call with an invalid URL. This is only a safeguard, because such a call fails earlier.
fn invalid_url(why: &TargetError) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Hosts,
        rule: why.to_string().into(),
        place: "built in".into(),
        remedy: "Write the URL as https://example.com/path.".into(),
    }
}
