//! The hosts gate: the hosts that a call of the web tools may request.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde_json::json;
use toolhold_contract::{Access, Annotations, SubjectKind};
use toolhold_policy::Verdict::{Allow, Ask, Deny};
use toolhold_policy::egress::{Reach, ReachStatus, Target};
use toolhold_policy::{Gate, Policy, Verdict, Web, origins};

use support::{Call, autonomy, call, decide, list, placed, reaching};

fn fetch(url: &'static str) -> Call {
    let annotations = Annotations { read_only: true, open_world: true, ..Annotations::default() };
    Call {
        provider: "web",
        annotations,
        ..call("fetch", true, &[(SubjectKind::Url, Access::Read, url)])
    }
}

fn policy(reach: Reach, others: Verdict) -> Policy {
    let web = Web { reach: Arc::new(reach), others: placed(others) };
    Policy { web: Some(web), ..autonomy(toolhold_policy::Autonomy::Ask) }
}

/// Checks the verdicts on a call for a URL, with `other_domains` set to deny, ask and allow.
#[track_caller]
fn check(url: &'static str, expected: [Verdict; 3]) {
    let reach = reaching(
        &["docs.rs", "*.example.com"],
        &["evil.example.com", "*.zip"],
        &["127.0.0.1:3000", "10.0.0.0/8"],
    );
    for (others, expected) in [Deny, Ask, Allow].into_iter().zip(expected) {
        let decision = decide(&policy(reach.clone(), others), &fetch(url), false);
        assert_eq!(decision.verdict, expected, "{url} with {others:?}: {decision:?}");
        assert_eq!(
            decision.gate,
            if expected == Allow { Gate::Autonomy } else { Gate::Hosts },
            "{url}"
        );
    }
}

#[test]
fn listed_hosts_pass_denied_ones_fail_and_others_follow_their_key() {
    check("https://docs.rs/serde", [Allow; 3]);
    check("https://DOCS.RS./serde", [Allow; 3]);
    check("https://a.b.example.com/", [Allow; 3]);
    check("https://example.com/", [Deny, Ask, Allow]);
    check("https://docs.rs:8443/", [Deny, Ask, Allow]);
    check("https://evil.example.com/", [Deny; 3]);
    check("https://some.zip/", [Deny; 3]);
    check("http://docs.rs/", [Deny; 3]);
    check("http://127.0.0.1:3000/", [Allow; 3]);
    check("http://10.1.2.3/", [Allow; 3]);
    check("http://127.0.0.1:3001/", [Deny; 3]);
    check("https://169.254.169.254/", [Deny; 3]);
    check("https://localhost/", [Deny; 3]);
    check("https://me@docs.rs/", [Deny; 3]);
    check("not a URL", [Deny; 3]);
}

#[test]
fn permission_includes_the_host_but_does_not_change_a_denial() {
    let verdict = |others, url| {
        let mut policy = policy(reaching(&[], &["evil.com"], &[]), others);
        policy.permissions.add("fetch", list(&[("https://*.com/*", Allow)]));
        decide(&policy, &fetch(url), false).verdict
    };
    assert_eq!(verdict(Ask, "https://good.com/x"), Allow);
    assert_eq!(verdict(Ask, "https://good.org/x"), Ask);
    assert_eq!(verdict(Ask, "https://evil.com/x"), Deny);
    assert_eq!(verdict(Deny, "https://good.com/x"), Deny);
}

#[test]
fn hosts_gate_ignores_tools_of_other_plugins() {
    let policy = policy(reaching(&[], &[], &[]), Deny);
    let other_plugin = Call { provider: "some", ..fetch("https://example.com/") };
    assert_eq!(decide(&policy, &other_plugin, false).verdict, Allow);
    assert!(origins(&other_plugin.action()).is_empty());
}

#[test]
fn denied_host_is_denied_for_every_method_and_url() {
    let policy = policy(reaching(&["a.com"], &["b.com"], &[]), Ask);
    let mut two = fetch("https://a.com/");
    two.subjects.push(toolhold_policy::ResolvedSubject {
        text: "https://b.com:443/x".to_owned(),
        ..two.subjects[0].clone()
    });
    assert_eq!(decide(&policy, &two, true).verdict, Deny);
    let post = Call { arguments: json!({ "method": "post" }), ..fetch("https://b.com/") };
    assert_eq!(decide(&policy, &post, true).verdict, Deny);
    assert_eq!(origins(&two.action()), ["https://a.com", "https://b.com"]);
}

#[test]
fn decision_that_asks_names_host_and_remedy() {
    let decision = decide(
        &policy(reaching(&["docs.rs"], &[], &[]), Ask),
        &fetch("https://еxample.com/"),
        false,
    );
    assert_eq!(
        decision.rule,
        "other_domains = \"ask\": xn--xample-2of.com is not in allowed_domains"
    );
    assert_eq!(
        decision.remedy,
        "To allow it, add \"xn--xample-2of.com\" to `allowed_domains` in [tools.web] of toolhold.toml."
    );
}

#[test]
fn servers_of_jobs_are_plain_http_at_the_loopback_and_nothing_else() {
    let target = |url: &str| Target::parse(url).expect("a target");
    let off = reaching(&[], &["*.evil.com"], &["localhost:3000", "127.0.0.0/8"]);
    let on = Reach { job_servers: true, ..off.clone() };
    let four = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
    for (url, expected) in [
        ("http://localhost:5173/", Some(vec![four, six])),
        ("http://LOCALHOST./", Some(vec![four, six])),
        ("http://[::1]:5173/", Some(vec![six])),
        // Opened: it is this machine's.
        ("http://localhost:3000/", None),
        ("http://127.0.0.1:5173/", None),
        ("https://localhost:5173/", None),
        ("http://a.localhost:5173/", None),
        ("http://localhost.example.com/", None),
        ("http://[::]:5173/", None),
        ("http://0.0.0.0:5173/", None),
        ("http://10.0.0.1/", None),
        ("http://169.254.169.254/", None),
    ] {
        let found = on.job_addresses(&target(url));
        assert_eq!(found.map(<[IpAddr]>::to_vec), expected, "{url}");
        assert_eq!(off.job_addresses(&target(url)), None, "{url}");
        // For all others, the key changes nothing.
        match expected {
            Some(_) => {
                assert_eq!(on.status(&target(url), "POST", "/", &[]), Ok(ReachStatus::Granted));
            }
            None => assert_eq!(
                on.status(&target(url), "POST", "/", &[]),
                off.status(&target(url), "POST", "/", &[]),
                "{url}"
            ),
        }
    }
    let unopened = Reach { job_servers: true, ..reaching(&[], &[], &[]) };
    for url in ["http://127.0.0.1/", "http://[::ffff:127.0.0.1]/", "http://2130706433/"] {
        assert_eq!(unopened.job_addresses(&target(url)), Some(&[four][..]), "{url}");
    }
    assert_eq!(unopened.job_addresses(&target("http://127.0.0.2/")), None);
    for denied in ["localhost", "127.0.0.1", "[::1]"] {
        let denied = Reach { job_servers: true, ..reaching(&[], &[denied], &[]) };
        assert!(denied.status(&target("http://localhost:5173/"), "GET", "/", &[]).is_err());
    }
}
