//! Which hosts the built-in web tools reach, asked for before a call runs.

use std::sync::Arc;

use berth_contract::{Denial, SubjectKind};
use serde_json::Value;

use crate::action::Action;
use crate::decision::{Decision, Gate, Verdict};
use crate::egress::{Missing, Reach, ReachStatus, Target};
use crate::origin::Placed;

/// The plugin that this is about. Others have hosts of their own, and nobody is asked for more.
const PLUGIN: &str = "web";

/// `[tools.web]`, as far as it decides on whole calls. What it lets pass is decided on again,
/// request by request.
#[derive(Clone, Debug)]
pub struct Web {
    /// What the requests of the plugin reach.
    pub reach: Arc<Reach>,
    /// `other_domains`: what becomes of a call to a host that nothing is said of.
    pub others: Placed<Verdict>,
}

impl Web {
    /// `allowed`: whether a permission allows the call. That is a yes to where it goes.
    pub(crate) fn say(&self, action: &Action<'_>, allowed: bool) -> Option<Decision> {
        let method = action.arguments.get("method").and_then(Value::as_str).unwrap_or("GET");
        let said =
            urls(action).filter_map(|url| self.say_of(url, &method.to_ascii_uppercase(), allowed));
        said.reduce(|known, next| if next.verdict > known.verdict { next } else { known })
    }

    fn say_of(&self, url: &str, method: &str, allowed: bool) -> Option<Decision> {
        let target = match Target::parse(url) {
            Ok(target) => target,
            Err(why) => return Some(unreadable(why)),
        };
        match self.reach.standing(&target, method, &[]) {
            Err(denial) => Some(denied(&denial)),
            Ok(ReachStatus::Granted) => None,
            Ok(ReachStatus::Unlisted(missing)) => {
                self.say_of_other(&target, method, missing, allowed)
            }
        }
    }

    fn say_of_other(
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
        let what = match missing {
            Missing::Host => format!("{} is not in {}", target.host, self.reach.key()),
            Missing::Port | Missing::Method => {
                format!("{target} is not in {} like this", self.reach.key())
            }
        };
        // Where both can be changed, the list is what is meant: the other opens everything.
        let remedy = place
            .elsewhere()
            .filter(|_| *value == Verdict::Deny)
            .unwrap_or_else(|| self.reach.unlisted(target, method, missing).remedy);
        Some(Decision {
            verdict: *value,
            gate: Gate::Hosts,
            rule: format!("{others}: {what}").into(),
            place: place.text.clone(),
            remedy: remedy.into(),
        })
    }
}

/// The places that a call of the web tools goes to, as [`Target::origin`]: once it was decided that
/// it may run, they count as granted for it. None for the tools of other plugins.
pub fn origins(action: &Action<'_>) -> Vec<String> {
    let mut origins: Vec<String> = urls(action)
        .filter_map(|url| Target::parse(url).ok())
        .map(|target| target.origin())
        .collect();
    origins.sort();
    origins.dedup();
    origins
}

/// The URLs that a call is about, where it is one of the web tools'.
fn urls<'a>(action: &Action<'a>) -> impl Iterator<Item = &'a str> {
    let is_ours = action.built_in && action.provider == PLUGIN;
    action
        .subjects
        .iter()
        .filter(move |subject| is_ours && subject.kind == SubjectKind::Url)
        .map(|subject| &*subject.text)
}

fn denied(denial: &Denial) -> Decision {
    Decision { gate: Gate::Hosts, ..Decision::from_grants(denial) }
}

/// A call whose URL can't be read fails before it comes here. A gate that can't tell denies.
fn unreadable(why: String) -> Decision {
    Decision {
        verdict: Verdict::Deny,
        gate: Gate::Hosts,
        rule: why.into(),
        place: "built in".into(),
        remedy: "Write the URL as https://example.com/path.".into(),
    }
}
