//! The hosts gate: decides which hosts a call of the built-in web tools may request.

use std::sync::Arc;

use serde_json::Value;
use toolhold_contract::{BuiltInGrant, BuiltInPlugin, Denial, SubjectKind};

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::egress::{Missing, Reach, ReachStatus, Target, TargetError};
use crate::origin::{OriginKind, Placed};

/// The part of `[tools.web]` that decides on a call before it runs. Each request of the running
/// call is checked again.
#[derive(Clone, Debug)]
pub struct Web {
    /// Hosts that the web tools may reach.
    pub reach: Arc<Reach>,
    /// `other_domains`: the verdict on a call to any other host.
    pub others: Placed<Verdict>,
}

impl Web {
    /// Returns the decision of this gate. `allowed` means that a permission allows the call and its
    /// hosts.
    pub(crate) fn decide(&self, action: &Action<'_>, allowed: bool) -> Option<Decision> {
        let written_method = action.arguments.get("method").and_then(Value::as_str);
        let method = written_method.unwrap_or("GET").to_ascii_uppercase();
        let mut most_severe: Option<Decision> = None;
        for url in urls(action) {
            if let Some(decision) = self.decide_on_url(url, &method, allowed)
                && most_severe.as_ref().is_none_or(|known| decision.verdict > known.verdict)
            {
                most_severe = Some(decision);
            }
        }
        most_severe
    }

    pub(crate) fn remedy_by_jobs(&self, action: &Action<'_>) -> Option<String> {
        let mut targets = urls(action).filter_map(|url| Target::parse(url).ok());
        targets.find_map(|target| self.reach.remedy_by_jobs(&target))
    }

    /// Decides on a request. `allowed` means that a permission allows the call. Returns `None` if
    /// the request is granted.
    fn decide_on_url(&self, url: &str, method: &str, allowed: bool) -> Option<Decision> {
        let (target, normal) = match Target::with_url(url) {
            Ok(parsed) => parsed,
            Err(why) => return Some(invalid_url(&why)),
        };
        let no_approvals: [String; 0] = [];
        let path = normal.get(target.origin().len()..).unwrap_or_default();
        match self.reach.status(&target, method, path, &no_approvals) {
            Err(denial) => Some(denied(&denial)),
            Ok(ReachStatus::Granted) => None,
            Ok(ReachStatus::Unlisted(missing)) => {
                self.decide_on_unlisted(&target, method, missing, allowed)
            }
        }
    }

    /// Decides on a request that no entry of the list of hosts allows. `allowed` means that a
    /// permission allows the request. Returns `None` if the request is allowed.
    fn decide_on_unlisted(
        &self,
        target: &Target,
        method: &str,
        missing: Missing,
        allowed: bool,
    ) -> Option<Decision> {
        let Placed { value, place } = &self.others;
        let rule = match value {
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
            Missing::Path => {
                format!("{target} is not in {} with this path", self.reach.key())
            }
        };
        // If the user can change both keys, the remedy names the list of hosts, because a change of
        // `other_domains` would open every host. If a ceiling sets `other_domains`, the user can
        // still add a host to the list, unless a ceiling excludes the host.
        let is_in_ceiling = matches!(place.kind, OriginKind::Ceiling(_));
        let remedy_elsewhere =
            if *value == Verdict::Deny && !is_in_ceiling { place.remedy_elsewhere() } else { None };
        let remedy = match remedy_elsewhere {
            Some(remedy) => remedy,
            None => self.reach.unlisted(target, method, missing).remedy,
        };
        Some(Decision {
            verdict: *value,
            gate: Gate::Hosts,
            rule: format!("{rule}: {reason}").into(),
            place: place.text.clone(),
            remedy: remedy.into(),
        })
    }
}

/// Returns the [origins](Target::origin) of the URLs in a call of the web tools. An allowed call
/// may request these origins. Returns no origin for other tools.
pub fn origins(action: &Action<'_>) -> Vec<String> {
    let mut origins = Vec::new();
    for url in urls(action) {
        // The gate has already denied a call with an invalid URL.
        if let Ok(target) = Target::parse(url) {
            origins.push(target.origin());
        }
    }
    origins.sort();
    origins.dedup();
    origins
}

/// Returns the URLs in a call of the web tools. Returns no URL for other plugins, because the
/// grants of a plugin decide on its hosts.
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

/// Denies a call with an invalid URL. Such a call usually fails before this gate.
fn invalid_url(why: &TargetError) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Hosts,
        rule: why.to_string().into(),
        place: "built in".into(),
        remedy: "Write the URL as https://example.com/path.".into(),
    }
}
