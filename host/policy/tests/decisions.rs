//! The decisions, table by table: which gate decides, and how.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use std::sync::Arc;

use berth_contract::{Access, Annotations, SubjectKind};
use berth_policy::rules::{Argument, Effect, Rule, RuleSet, Test};
use berth_policy::{
    Autonomy, Blocklist, Definition, GATES, Gate, Network, Pattern, Permission, Phase, Policy,
    TextGlob, Trust, Verdict, Web, expression,
};
use serde_json::{Value, json};

use Verdict::{Allow, Ask, Deny};
use support::{
    Call, autonomy, bash, blocklist, call, decide, list, moved, permitting, placed, policed, reach,
    read, rule, write,
};

#[track_caller]
fn check(policy: &Policy, call: &Call, verdict: Verdict, gate: Gate) {
    let decision = decide(policy, call, false);
    assert_eq!(
        (decision.verdict, decision.gate),
        (verdict, gate),
        "{} {:?}: {decision:?}",
        call.tool,
        call.subjects
    );
    assert!(
        !decision.rule.is_empty() && !decision.place.is_empty() && !decision.remedy.is_empty(),
        "{decision:?}"
    );
}

#[test]
fn without_a_rule_what_reads_is_allowed_and_what_acts_asks() {
    let policy = Policy::default();
    check(&policy, &read("/w/a"), Allow, Gate::Autonomy);
    check(&policy, &write("/w/a"), Ask, Gate::Autonomy);
    check(&policy, &bash("ls"), Ask, Gate::Autonomy);
    check(&policy, &call("remember", false, &[]), Ask, Gate::Autonomy);
}

#[test]
fn autonomy_denies_asks_or_allows_what_no_rule_is_about() {
    check(&autonomy(Autonomy::ReadOnly), &read("/w/a"), Allow, Gate::Autonomy);
    check(&autonomy(Autonomy::ReadOnly), &write("/w/a"), Deny, Gate::Autonomy);
    check(&autonomy(Autonomy::Full), &write("/w/a"), Allow, Gate::Autonomy);
    check(&autonomy(Autonomy::Full), &bash("rm x"), Allow, Gate::Autonomy);
    check(&autonomy(Autonomy::Full), &bash("sudo x"), Deny, Gate::Blocklist);
    // Neither level undoes what a rule says.
    let asks = Policy { autonomy: placed(Autonomy::Full), ..permitting("write", &[&[("*", Ask)]]) };
    check(&asks, &write("/w/a"), Ask, Gate::Permissions);
    let allows =
        Policy { autonomy: placed(Autonomy::ReadOnly), ..permitting("write", &[&[("*", Allow)]]) };
    check(&allows, &write("/w/a"), Deny, Gate::Autonomy);
}

#[test]
fn the_first_permission_that_matches_decides() {
    let policy =
        permitting("write", &[&[("notes/secret*", Deny), ("notes/**", Allow), ("src", Ask)]]);
    check(&policy, &write("/w/notes/secret.txt"), Deny, Gate::Permissions);
    check(&policy, &write("/w/notes/a.txt"), Allow, Gate::Permissions);
    check(&policy, &write("/w/NOTES/A.TXT"), Allow, Gate::Permissions);
    check(&policy, &write("/w/Notes/Secret.txt"), Deny, Gate::Permissions);
    check(&policy, &write("/w/src/deep/x.rs"), Ask, Gate::Permissions);
    check(&policy, &write("/w/other"), Ask, Gate::Autonomy);
    check(
        &policy,
        &call("edit", false, &[(SubjectKind::Path, Access::Write, "/w/notes/a.txt")]),
        Ask,
        Gate::Autonomy,
    );
    // Rules about what only reads count too.
    let policy = permitting("read", &[&[("**/.env", Deny), ("keys/**", Ask)]]);
    check(&policy, &read("/w/.env"), Deny, Gate::Permissions);
    check(&policy, &read("/w/keys/a"), Ask, Gate::Permissions);
    check(&policy, &read("/w/a"), Allow, Gate::Autonomy);
}

#[test]
fn everything_that_a_call_acts_on_is_matched_by_itself() {
    let policy =
        permitting("move_path", &[&[("trash/**", Deny), ("a/**", Allow), ("b/**", Allow)]]);
    check(&policy, &moved("/w/a/x", "/w/b/x"), Allow, Gate::Permissions);
    check(&policy, &moved("/w/a/x", "/w/trash/x"), Deny, Gate::Permissions);
    check(&policy, &moved("/w/trash/x", "/w/a/x"), Deny, Gate::Permissions);
    // What no rule is about asks, though the other half is allowed.
    check(&policy, &moved("/w/a/x", "/w/c/x"), Ask, Gate::Autonomy);
}

#[test]
fn the_most_severe_of_several_lists_counts() {
    let policy = permitting("write", &[&[("*", Ask)], &[("keys/**", Deny), ("*", Allow)]]);
    check(&policy, &write("/w/keys/a"), Deny, Gate::Permissions);
    check(&policy, &write("/w/a"), Ask, Gate::Permissions);
}

#[test]
fn an_alias_names_the_tool() {
    let policy = permitting("file_write", &[&[("*", Allow)]]);
    check(&policy, &write("/w/a"), Ask, Gate::Autonomy);
    check(
        &policy,
        &Call { aliases: vec!["file_write".to_owned()], ..write("/w/a") },
        Allow,
        Gate::Permissions,
    );
}

#[test]
fn without_a_subject_the_tool_and_its_arguments_are_matched() {
    let policy = permitting("remember", &[&[("*\"kind\":\"note\"*", Allow)]]);
    let of = |arguments: Value| Call { arguments, ..call("remember", false, &[]) };
    check(&policy, &of(json!({ "text": "x", "kind": "note" })), Allow, Gate::Permissions);
    check(&policy, &of(json!({ "text": "x", "kind": "key" })), Ask, Gate::Autonomy);
    let exact = permitting("remember", &[&[("remember {\"a\":1,\"b\":2}", Allow)]]);
    check(&exact, &of(json!({ "b": 2, "a": 1 })), Allow, Gate::Permissions);
    // A tool that isn't believed in what it acts on is matched as a whole as well.
    let policy = permitting("write", &[&[("notes/**", Allow), ("keys/**", Deny)]]);
    check(&policy, &Call { believed: false, ..write("/w/notes/a") }, Ask, Gate::Autonomy);
    check(&policy, &Call { believed: false, ..write("/w/keys/a") }, Deny, Gate::Permissions);
}

#[test]
fn a_command_is_allowed_where_all_that_it_consists_of_is() {
    let policy = permitting(
        "bash",
        &[&[
            ("git push*", Deny),
            ("git *", Allow),
            ("ls*", Allow),
            ("> /tmp/*", Allow),
            ("make", Ask),
        ]],
    );
    for (command, verdict) in [
        ("git status", Allow),
        ("git status && ls", Allow),
        ("git status; make", Ask),
        ("git status; other", Ask),
        ("git push", Deny),
        ("GIT PUSH", Deny),
        ("ls && git push", Deny),
        ("git \"push\" x", Deny),
        ("timeout 5 git push", Deny),
        ("A=1 git push", Deny),
        ("echo $(git push)", Deny),
        ("A=1 git status", Ask),
        ("git log > /tmp/x", Allow),
        ("ls > /etc/passwd", Ask),
        ("ls $(other)", Ask),
    ] {
        let decision = decide(&policy, &bash(command), false);
        assert_eq!(decision.verdict, verdict, "{command}: {decision:?}");
    }
    let all = permitting("bash", &[&[("*", Allow)]]);
    check(&all, &bash("ls > x; other"), Allow, Gate::Permissions);
}

#[test]
fn the_risk_of_a_command_asks_even_where_a_permission_allows() {
    let policy = permitting("bash", &[&[("rm old.txt", Allow), ("*", Allow)]]);
    check(&policy, &bash("rm new.txt"), Ask, Gate::Risk);
    check(&policy, &bash("mv a b"), Allow, Gate::Permissions);
    // A yes to exactly this is one to its risk; in another case it is another command.
    check(&policy, &bash("rm old.txt"), Allow, Gate::Permissions);
    check(&policy, &bash("rm OLD.txt"), Ask, Gate::Risk);
    check(&policy, &bash("rm old.txt; rm b"), Ask, Gate::Risk);
    let full = Policy { autonomy: placed(Autonomy::Full), ..policy.clone() };
    check(&full, &bash("rm new.txt"), Allow, Gate::Permissions);
    for level in [Autonomy::Supervised, Autonomy::Full] {
        let blocked =
            Policy { block_high_risk: placed(true), autonomy: placed(level), ..policy.clone() };
        check(&blocked, &bash("rm old.txt"), Deny, Gate::Risk);
    }
    // Of a tool that only reads, nothing but the risk asks.
    let looking = |command| Call { annotations: read("x").annotations, ..bash(command) };
    check(&Policy::default(), &looking("ls"), Allow, Gate::Autonomy);
    check(&Policy::default(), &looking("git push"), Ask, Gate::Risk);
    let unasked = Policy { ask_for_medium_risk: placed(false), ..Policy::default() };
    check(&unasked, &looking("git commit"), Allow, Gate::Autonomy);
    check(&unasked, &looking("git push"), Ask, Gate::Network);
    check(
        &Policy { network: placed(Network::Allow), ..unasked },
        &looking("git push"),
        Allow,
        Gate::Autonomy,
    );
}

#[test]
fn what_the_blocklist_can_not_see_through_asks_whoever_allows_it() {
    for policy in [permitting("bash", &[&[("*", Allow)]]), autonomy(Autonomy::Full)] {
        check(&policy, &bash("$X y"), Ask, Gate::Blocklist);
        check(&policy, &bash("dd $X"), Ask, Gate::Blocklist);
        check(&policy, &bash("sudo x"), Deny, Gate::Blocklist);
        assert_eq!(decide(&policy, &bash("$X y"), true).verdict, Allow);
        assert_eq!(decide(&policy, &bash("sudo x"), true).verdict, Deny);
    }
    check(&permitting("bash", &[&[("$X y", Allow)]]), &bash("$X y"), Allow, Gate::Permissions);
    check(&permitting("bash", &[&[("sudo x", Allow)]]), &bash("sudo x"), Deny, Gate::Blocklist);
}

#[test]
fn policies_deny_by_tool_path_access_argument_trust_and_phase() {
    let policy = policed(vec![
        rule(Effect::Deny, &["write", "edit*"], &[]),
        rule(Effect::Deny, &[], &["migrations/**"]),
    ]);
    check(&policy, &write("/w/a"), Deny, Gate::Policy);
    check(&policy, &call("edit_all", false, &[]), Deny, Gate::Policy);
    check(&policy, &read("/w/a"), Allow, Gate::Autonomy);
    check(&policy, &read("/w/Migrations/1.sql"), Deny, Gate::Policy);
    check(&policy, &moved("/w/a", "/w/migrations/2.sql"), Deny, Gate::Policy);

    let policy =
        policed(vec![Rule { access: Some(Access::Write), ..rule(Effect::Deny, &[], &["src"]) }]);
    check(&policy, &read("/w/src/a"), Allow, Gate::Autonomy);
    check(&policy, &moved("/w/src/a", "/w/b"), Deny, Gate::Policy);
    let acting =
        policed(vec![Rule { access: Some(Access::Write), ..rule(Effect::Deny, &[], &[]) }]);
    check(&acting, &call("remember", false, &[]), Deny, Gate::Policy);

    let with = |test: Test| Rule {
        arguments: vec![Argument { pointer: "/to".into(), test }],
        ..rule(Effect::Deny, &[], &[])
    };
    let policy = policed(vec![with(Test::Expression(expression("@evil\\.org$").expect("one")))]);
    let to = |to: Value| Call { arguments: json!({ "to": to }), ..call("mail", false, &[]) };
    check(&policy, &to(json!("a@evil.org")), Deny, Gate::Policy);
    check(&policy, &to(json!(["a@good.org", "a@evil.org"])), Deny, Gate::Policy);
    check(&policy, &to(json!("a@good.org")), Allow, Gate::Autonomy);
    check(&policy, &call("mail", false, &[]), Allow, Gate::Autonomy);
    let numbers = policed(vec![with(Test::Glob(TextGlob::new("1?").expect("a glob")))]);
    check(&numbers, &to(json!(12)), Deny, Gate::Policy);
    check(&numbers, &to(json!(2)), Allow, Gate::Autonomy);

    let policy =
        policed(vec![Rule { trust: Some(Trust::Verified), ..rule(Effect::Deny, &["write"], &[]) }]);
    for (trust, verdict) in
        [(Trust::Trusted, Allow), (Trust::Verified, Deny), (Trust::Quarantined, Deny)]
    {
        assert_eq!(
            decide(&policy, &Call { trust, ..write("/w/a") }, false).verdict,
            verdict,
            "{trust:?}"
        );
    }
    let policy =
        policed(vec![Rule { phases: vec![Phase::Planner], ..rule(Effect::Deny, &["write"], &[]) }]);
    for (phase, verdict) in
        [(None, Allow), (Some(Phase::Executor), Allow), (Some(Phase::Planner), Deny)]
    {
        assert_eq!(
            decide(&policy, &Call { phase, ..write("/w/a") }, false).verdict,
            verdict,
            "{phase:?}"
        );
    }
}

#[test]
fn what_a_tool_that_is_not_believed_says_it_acts_on_passes_no_rule() {
    // It acts, and names one text that it reads.
    let stranger = |believed| Call {
        believed,
        ..call("sh__act", false, &[(SubjectKind::Text, Access::Read, "x")])
    };
    let writing =
        policed(vec![Rule { access: Some(Access::Write), ..rule(Effect::Deny, &["sh__*"], &[]) }]);
    check(&writing, &stranger(false), Deny, Gate::Policy);
    check(&writing, &stranger(true), Allow, Gate::Autonomy);
    let reading =
        policed(vec![Rule { access: Some(Access::Read), ..rule(Effect::Allow, &[], &[]) }]);
    check(&reading, &stranger(false), Deny, Gate::Policy);
    let below = policed(vec![rule(Effect::Allow, &[], &["notes/**"])]);
    check(&below, &Call { believed: false, ..write("/w/notes/a") }, Deny, Gate::Policy);
    check(&below, &write("/w/notes/a"), Allow, Gate::Autonomy);
    let anything = policed(vec![rule(Effect::Allow, &["sh__*"], &[])]);
    check(&anything, &stranger(false), Allow, Gate::Autonomy);
}

#[test]
fn where_a_policy_allows_something_nothing_else_passes_it() {
    let policy = policed(vec![
        rule(Effect::Allow, &["read"], &[]),
        rule(Effect::Allow, &["move_path"], &["a", "b"]),
    ]);
    check(&policy, &read("/w/x"), Allow, Gate::Autonomy);
    check(&policy, &write("/w/a/x"), Deny, Gate::Policy);
    check(&policy, &moved("/w/a/x", "/w/b/x"), Allow, Gate::Autonomy);
    check(&policy, &moved("/w/a/x", "/w/c/x"), Deny, Gate::Policy);
    // It lets pass, and no more: what would ask still asks.
    let supervised = Policy { autonomy: placed(Autonomy::Supervised), ..policy };
    check(&supervised, &moved("/w/a/x", "/w/b/x"), Ask, Gate::Autonomy);
}

#[test]
fn trust_takes_away_what_acts_or_everything() {
    let policy = autonomy(Autonomy::Full);
    let fetch = Call {
        annotations: Annotations { read_only: true, open_world: true, ..Annotations::default() },
        ..call("fetch", true, &[])
    };
    for (trust, verdicts) in [
        (Trust::Trusted, [Allow; 3]),
        (Trust::Verified, [Allow; 3]),
        (Trust::Quarantined, [Allow, Deny, Deny]),
        (Trust::Blocked, [Deny; 3]),
    ] {
        let calls = [read("/w/a"), write("/w/a"), fetch.clone()];
        for (call, verdict) in calls.into_iter().zip(verdicts) {
            assert_eq!(
                decide(&policy, &Call { trust, ..call.clone() }, false).verdict,
                verdict,
                "{trust:?} {}",
                call.tool
            );
            let mut of_plugin = policy.clone();
            of_plugin.trusted.plugins.insert("some".to_owned(), placed(trust));
            assert_eq!(
                decide(&of_plugin, &call, false).verdict,
                verdict,
                "{trust:?} {}",
                call.tool
            );
            // The least of both counts, and no yes changes that.
            let confirmed = decide(&of_plugin, &Call { trust: Trust::Verified, ..call }, true);
            assert_eq!(confirmed.verdict, verdict);
        }
    }
}

/// A policy in which each of `gates`, and no other, denies every command.
fn denying(gates: &[Gate]) -> Policy {
    let has = |gate: Gate| gates.contains(&gate);
    let set = |gate: Gate| RuleSet {
        rules: if has(gate) { vec![rule(Effect::Deny, &[], &[])] } else { Vec::new() },
    };
    let mut policy =
        permitting("bash", if has(Gate::Permissions) { &[&[("*", Deny)]] } else { &[] });
    policy.blocklist = if has(Gate::Blocklist) { blocklist() } else { Blocklist::default() };
    policy.ceiling = vec![RuleSet::default(), set(Gate::Ceiling)];
    policy.policy = set(Gate::Policy);
    policy.authorization = set(Gate::Authorization);
    policy.autonomy = placed(if has(Gate::Autonomy) { Autonomy::ReadOnly } else { Autonomy::Full });
    policy.block_high_risk = placed(has(Gate::Risk));
    policy.network = placed(if has(Gate::Network) { Network::Deny } else { Network::Allow });
    let others = if has(Gate::Hosts) { Deny } else { Allow };
    policy.web = Some(Web { reach: Arc::new(reach("tools.web")), others: placed(others) });
    if has(Gate::Trust) {
        policy.trusted.plugins.insert("web".to_owned(), placed(Trust::Blocked));
    }
    policy
}

#[test]
fn the_gates_stand_in_one_order_and_the_first_that_denies_is_told() {
    assert!(GATES.is_sorted(), "the order is that of the definition");
    let subjects = [
        (SubjectKind::Command, Access::Write, "sudo x"),
        (SubjectKind::Url, Access::Read, "https://example.com/"),
    ];
    let arguments = json!({ "command": "sudo x", "network": true });
    let call = Call { arguments, provider: "web", ..call("bash", false, &subjects) };
    for (at, gate) in GATES.iter().enumerate() {
        check(&denying(&[*gate]), &call, Deny, *gate);
        check(&denying(&GATES[at..]), &call, Deny, *gate);
        let said = denying(&GATES[at..]).explain(&call.action());
        assert_eq!(said.iter().map(|(gate, _)| *gate).collect::<Vec<_>>(), GATES);
        for (gate, said) in &said[at..] {
            assert_eq!(said.as_ref().map(|said| said.verdict), Some(Deny), "{gate:?}");
        }
    }
    check(&denying(&[]), &call, Allow, Gate::Autonomy);
}

#[test]
fn a_denial_further_on_wins_over_an_earlier_question() {
    let asking = Policy { block_high_risk: placed(true), ..permitting("bash", &[&[("*", Ask)]]) };
    check(&asking, &bash("rm x"), Deny, Gate::Risk);
    check(&asking, &bash("ls"), Ask, Gate::Permissions);
}

#[test]
fn approval_skips_the_question_and_no_other_gate() {
    let mut policy = permitting("write", &[&[("keys/**", Deny), ("*", Ask)]]);
    let asked = decide(&policy, &write("/w/a"), false);
    let confirmed = decide(&policy, &write("/w/a"), true);
    assert_eq!((asked.verdict, confirmed.verdict, asked.rule), (Ask, Allow, confirmed.rule));
    assert_eq!(decide(&policy, &write("/w/keys/a"), true).verdict, Deny);
    policy.autonomy = placed(Autonomy::ReadOnly);
    assert_eq!(decide(&policy, &write("/w/a"), true).verdict, Deny);
}

#[test]
fn a_tool_is_hidden_where_its_rules_deny_every_call() {
    let hidden = |policy: &Policy, acts: bool| {
        policy.denies_all(&Definition {
            name: "write",
            aliases: &["file_write".to_owned()],
            provider: "some",
            acts,
            harmless: !acts,
        })
    };
    for (list, expected) in [
        (&[("*", Deny)][..], true),
        (&[("a", Deny), ("**", Deny)], true),
        (&[("a", Allow), ("*", Deny)], false),
        (&[("a", Ask), ("*", Deny)], false),
        (&[("/**", Deny)], false),
        (&[("*", Ask)], false),
    ] {
        assert_eq!(hidden(&permitting("write", &[list]), true), expected, "{list:?}");
        assert_eq!(hidden(&permitting("file_write", &[list]), true), expected, "{list:?}");
        assert!(!hidden(&permitting("read", &[list]), true));
    }
    assert!(
        hidden(&permitting("write", &[&[("a", Allow)], &[("*", Deny)]]), true),
        "one list is enough"
    );
    assert!(hidden(&policed(vec![rule(Effect::Deny, &["wr*"], &[])]), true));
    assert!(!hidden(&policed(vec![rule(Effect::Deny, &["wr*"], &["a"])]), true));
    assert!(hidden(&policed(vec![rule(Effect::Allow, &["read"], &[])]), true));
    assert!(!hidden(
        &policed(vec![rule(Effect::Allow, &["read"], &[]), rule(Effect::Allow, &[], &["a"])]),
        true
    ));
    let rest = |rules| {
        policed(rules).denies_all(&Definition {
            name: "read_overflow",
            aliases: &[],
            provider: "some",
            acts: false,
            harmless: true,
        })
    };
    assert!(
        !rest(vec![rule(Effect::Allow, &["read"], &[])]),
        "what a model is told to call needs no rule that allows"
    );
    assert!(rest(vec![rule(Effect::Deny, &["read_*"], &[])]));
    assert!(
        hidden(&autonomy(Autonomy::ReadOnly), true)
            && !hidden(&autonomy(Autonomy::ReadOnly), false)
    );
    let mut blocked = Policy::default();
    assert!(!hidden(&blocked, true));
    blocked.trusted.plugins.insert("some".to_owned(), placed(Trust::Blocked));
    assert!(hidden(&blocked, false));
}

#[test]
fn a_refusal_tells_the_line_that_would_change_it() {
    let remedy = |policy: &Policy, call: &Call| decide(policy, call, false).remedy.into_owned();
    let policy = Policy::default();
    assert_eq!(
        remedy(&policy, &write("/w/a b*.txt")),
        "To allow it without asking, add to berth.toml:\n[[tools.permissions.write]]\npattern = \"/w/a b*.txt\"\nexact = true\naction = \"allow\""
    );
    assert!(remedy(&policy, &write(&"x".repeat(1000))).contains("[[tools.permissions.write]]"));
    assert!(!remedy(&policy, &write("/w/\u{1b}[2J")).contains('\u{1b}'));
    assert!(remedy(&permitting("write", &[&[("*", Deny)]]), &write("/w/a")).contains("before it"));
    assert!(remedy(&autonomy(Autonomy::Full), &bash("sudo x")).contains("blocked_commands"));
    // What it says does what it says.
    let text = remedy(&policy, &write("/w/it's [a]"));
    assert!(text.contains("pattern = \"/w/it's [a]\"\nexact = true\n"), "{text}");
    let exactly =
        Permission { pattern: Pattern::exactly("/w/it's [a]"), ..list(&[("x", Allow)]).remove(0) };
    let mut policy = policy;
    policy.permissions.add("write", vec![exactly]);
    check(&policy, &write("/w/it's [a]"), Allow, Gate::Permissions);
    for other in ["/w/it's a", "/w/it's [a]/b", "/w/it's [A]", "/w/it's", "/x/w/it's [a]"] {
        check(&policy, &write(other), Ask, Gate::Autonomy);
    }
}
