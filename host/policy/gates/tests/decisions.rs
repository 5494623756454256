//! Decisions on calls: which gate decides, and its verdict.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use toolhold_contract::{Access, Annotations, SubjectKind};
use toolhold_policy::rules::{Argument, Effect, Rule, RuleSet, Test};
use toolhold_policy::{
    Autonomy, Blocklist, Containment, Definition, GATES, Gate, Network, Pattern, Permission, Phase,
    Policy, TextGlob, ToolGlob, Trust, Verdict, Web, expression,
};

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
fn default_allows_what_the_sandbox_contains_and_undo_restores() {
    let policy = Policy { blocklist: blocklist(), ..Policy::default() };
    check(&policy, &read("/w/a"), Allow, Gate::Autonomy);
    check(&policy, &write("/w/a"), Allow, Gate::Autonomy);
    check(&policy, &moved("/w/a", "/w/b"), Allow, Gate::Autonomy);
    for line in ["ls", "git commit -m x", "rm old.txt", "chmod +x run.sh", "npx tsc --noEmit"] {
        check(&policy, &bash(line), Allow, Gate::Autonomy);
    }
    // What runs later outside of the sandbox, in a third party's plugin, or elsewhere.
    check(&policy, &write("/w/.vscode/tasks.json"), Ask, Gate::Autonomy);
    check(&policy, &call("remember", false, &[]), Ask, Gate::Autonomy);
    let theirs = Call { provider: "third-party", ..write("/w/a") };
    check(&policy, &theirs, Ask, Gate::Autonomy);
    let fetch = call("fetch", false, &[(SubjectKind::Url, Access::Write, "https://a.example/")]);
    check(&policy, &fetch, Ask, Gate::Autonomy);
    for line in ["rm -rf .git", "rm -rf *", "rm -rf ../x", "git stash drop", "chown u a", "shred a"]
    {
        check(&policy, &bash(line), Ask, Gate::Risk);
    }
    check(&policy, &bash("git push"), Ask, Gate::Network);
    check(&policy, &bash("$X y"), Ask, Gate::Blocklist);
    check(&policy, &bash("sudo x"), Deny, Gate::Blocklist);
}

#[test]
fn sandboxed_asks_if_a_wall_is_missing() {
    let open = Containment { commands: Some("sandbox = \"off\""), files: None };
    let policy = Policy { containment: open, ..Policy::default() };
    let decision = decide(&policy, &bash("ls"), false);
    assert_eq!((decision.verdict, decision.gate), (Ask, Gate::Autonomy));
    assert!(
        decision.rule.contains("needs approval because of `sandbox = \"off\"`"),
        "{}",
        decision.rule
    );
    check(&policy, &bash("rm a"), Ask, Gate::Autonomy);
    check(&policy, &write("/w/a"), Allow, Gate::Autonomy);
    let lost = Containment { commands: Some("no undo"), files: Some("no undo") };
    check(&Policy { containment: lost, ..Policy::default() }, &write("/w/a"), Ask, Gate::Autonomy);
}

#[test]
fn autonomy_decides_on_calls_without_a_rule() {
    check(&autonomy(Autonomy::ReadOnly), &read("/w/a"), Allow, Gate::Autonomy);
    check(&autonomy(Autonomy::ReadOnly), &write("/w/a"), Deny, Gate::Autonomy);
    check(&autonomy(Autonomy::Full), &write("/w/a"), Allow, Gate::Autonomy);
    check(&autonomy(Autonomy::Full), &bash("rm x"), Allow, Gate::Autonomy);
    check(&autonomy(Autonomy::Full), &bash("sudo x"), Deny, Gate::Blocklist);
    // Neither level changes the decision of a rule.
    let asks = Policy { autonomy: placed(Autonomy::Full), ..permitting("write", &[&[("*", Ask)]]) };
    check(&asks, &write("/w/a"), Ask, Gate::Permissions);
    let allows =
        Policy { autonomy: placed(Autonomy::ReadOnly), ..permitting("write", &[&[("*", Allow)]]) };
    check(&allows, &write("/w/a"), Deny, Gate::Autonomy);
}

#[test]
fn first_matching_permission_decides() {
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
    // Rules about calls that only read count too.
    let policy = permitting("read", &[&[("**/.env", Deny), ("keys/**", Ask)]]);
    check(&policy, &read("/w/.env"), Deny, Gate::Permissions);
    check(&policy, &read("/w/keys/a"), Ask, Gate::Permissions);
    check(&policy, &read("/w/a"), Allow, Gate::Autonomy);
}

#[test]
fn each_subject_of_a_call_is_matched_by_itself() {
    let policy =
        permitting("move_path", &[&[("trash/**", Deny), ("a/**", Allow), ("b/**", Allow)]]);
    check(&policy, &moved("/w/a/x", "/w/b/x"), Allow, Gate::Permissions);
    check(&policy, &moved("/w/a/x", "/w/trash/x"), Deny, Gate::Permissions);
    check(&policy, &moved("/w/trash/x", "/w/a/x"), Deny, Gate::Permissions);
    // A subject without a rule asks, although the other subject is allowed.
    check(&policy, &moved("/w/a/x", "/w/c/x"), Ask, Gate::Autonomy);
}

#[test]
fn most_severe_of_several_lists_counts() {
    let policy = permitting("write", &[&[("*", Ask)], &[("keys/**", Deny), ("*", Allow)]]);
    check(&policy, &write("/w/keys/a"), Deny, Gate::Permissions);
    check(&policy, &write("/w/a"), Ask, Gate::Permissions);
}

#[test]
fn permission_for_an_alias_applies_to_the_tool() {
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
fn call_without_subject_is_matched_by_tool_and_arguments() {
    let policy = permitting("remember", &[&[("*\"kind\":\"note\"*", Allow)]]);
    let remember = |arguments: Value| Call { arguments, ..call("remember", false, &[]) };
    check(&policy, &remember(json!({ "text": "x", "kind": "note" })), Allow, Gate::Permissions);
    check(&policy, &remember(json!({ "text": "x", "kind": "key" })), Ask, Gate::Autonomy);
    let exact = permitting("remember", &[&[("remember {\"a\":1,\"b\":2}", Allow)]]);
    check(&exact, &remember(json!({ "b": 2, "a": 1 })), Allow, Gate::Permissions);
    // If the tool's subjects aren't trusted, the whole call is matched too.
    let policy = permitting("write", &[&[("notes/**", Allow), ("keys/**", Deny)]]);
    check(&policy, &Call { subjects_trusted: false, ..write("/w/notes/a") }, Ask, Gate::Autonomy);
    check(
        &policy,
        &Call { subjects_trusted: false, ..write("/w/keys/a") },
        Deny,
        Gate::Permissions,
    );
}

#[test]
fn command_is_allowed_if_all_its_parts_are_allowed() {
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
fn options_before_a_subcommand_pass_no_rule() {
    let deny = [
        "git push*",
        "cargo publish*",
        "npm publish*",
        "kubectl delete *",
        "terraform destroy*",
        "gh repo delete*",
        "docker system prune*",
        "docker compose down*",
        "mytool delete*",
    ];
    let mut rules: Vec<(&str, Verdict)> = vec![("git -C vendor push", Allow)];
    rules.extend(deny.map(|pattern| (pattern, Deny)));
    rules.push(("*", Allow));
    let policy = permitting("bash", &[&rules]);
    for (command, verdict) in [
        ("git -C . push", Deny),
        ("git --no-pager push", Deny),
        ("git -P push", Deny),
        ("git -c a.b=c push", Deny),
        ("git --git-dir=.git push", Deny),
        ("git --new-option push", Deny),
        ("git --new-option value push", Deny),
        ("/usr/bin/git push", Deny),
        ("env A=1 git -C . push", Deny),
        ("ls && git -C \"a b\" push", Deny),
        ("cargo -q publish", Deny),
        ("cargo +nightly publish", Deny),
        ("npm --silent publish", Deny),
        ("npm -w p publish", Deny),
        ("kubectl -n prod delete pod x", Deny),
        ("terraform -chdir=i destroy", Deny),
        ("gh -R a/b repo delete", Deny),
        ("docker --host h system prune", Deny),
        ("docker compose -f f.yml down", Deny),
        ("mytool -x delete", Deny),
        ("mytool -x y delete", Deny),
        ("git -C push status", Allow),
        ("git --git-dir push status", Allow),
        ("git commit -m push", Allow),
        // A rule for the command as written comes first, as in every list.
        ("git -C vendor push", Allow),
    ] {
        let decision = decide(&policy, &bash(command), false);
        assert_eq!(decision.verdict, verdict, "{command}: {decision:?}");
    }
    // Other spellings only make stricter: options may change what an allowed command does.
    let narrow = permitting("bash", &[&[("git status*", Allow)]]);
    let call = bash("git -c core.fsmonitor=./x status");
    assert_ne!(decide(&narrow, &call, false).gate, Gate::Permissions);
}

#[test]
fn order_and_place_of_flags_pass_no_rule() {
    let rules = [
        ("rm -fr kept", Allow),
        ("rm -rf*", Deny),
        ("git push -f*", Deny),
        ("git push --force*", Deny),
        ("git commit -n*", Deny),
        ("*", Allow),
    ];
    let policy = permitting("bash", &[&rules]);
    for (command, verdict) in [
        ("rm -rf d", Deny),
        ("rm -fr d", Deny),
        ("rm -r -f d", Deny),
        ("rm -vrf d", Deny),
        ("rm d -rf", Deny),
        ("rm -f d -R", Deny),
        ("rm --recursive --force d", Deny),
        ("rm --force d --recursive", Deny),
        ("rm \"-f\" -r d", Deny),
        ("/bin/rm -fr d", Deny),
        ("sh -c 'rm -fr d'", Deny),
        ("ls | xargs rm -fr", Deny),
        ("git push origin main -f", Deny),
        ("git -C . push -uf origin", Deny),
        ("git push origin --force", Deny),
        ("git push origin main", Allow),
        ("git commit -m \"head -n 5\"", Allow),
        // A rule for the command as written comes first, as in every list.
        ("rm -fr kept", Allow),
    ] {
        let decision = decide(&policy, &bash(command), true);
        assert_eq!(decision.verdict, verdict, "{command}: {decision:?}");
    }
    // The order of flags only makes stricter.
    let narrow = permitting("bash", &[&[("git log -p -n*", Allow)]]);
    assert_ne!(decide(&narrow, &bash("git log -np"), false).gate, Gate::Permissions);
}

#[test]
fn risk_of_a_command_asks_even_if_a_permission_allows() {
    let policy = permitting("bash", &[&[("rm old.txt", Allow), ("*", Allow)]]);
    check(&policy, &bash("rm new.txt"), Ask, Gate::Risk);
    check(&policy, &bash("mv a b"), Allow, Gate::Permissions);
    // A permission for exactly this command includes its risk. In another case, it is another
    // command.
    check(&policy, &bash("rm old.txt"), Allow, Gate::Permissions);
    check(&policy, &bash("rm OLD.txt"), Ask, Gate::Risk);
    check(&policy, &bash("rm old.txt; rm b"), Ask, Gate::Risk);
    let full = Policy { autonomy: placed(Autonomy::Full), ..policy.clone() };
    check(&full, &bash("rm new.txt"), Allow, Gate::Permissions);
    for level in [Autonomy::Ask, Autonomy::Sandboxed, Autonomy::Full] {
        let blocked =
            Policy { block_high_risk: placed(true), autonomy: placed(level), ..policy.clone() };
        check(&blocked, &bash("rm old.txt"), Deny, Gate::Risk);
        assert_eq!(decide(&blocked, &bash("rm old.txt"), false).rule, "the high risk of `rm`");
    }
    // For a tool that only reads, only the risk asks.
    let reading = |command| Call { annotations: read("x").annotations, ..bash(command) };
    check(&Policy::default(), &reading("ls"), Allow, Gate::Autonomy);
    for level in [Autonomy::Ask, Autonomy::Sandboxed, Autonomy::Full] {
        let asking = Policy { ask_for_medium_risk: placed(true), ..autonomy(level) };
        check(&asking, &reading("git push"), Ask, Gate::Risk);
        check(
            &asking,
            &bash("mkdir a"),
            Ask,
            if level == Autonomy::Ask { Gate::Autonomy } else { Gate::Risk },
        );
    }
    let unasked = Policy { ask_for_medium_risk: placed(false), ..Policy::default() };
    check(&unasked, &reading("git commit"), Allow, Gate::Autonomy);
    check(&unasked, &reading("git push"), Ask, Gate::Network);
    check(
        &Policy { network: placed(Network::Allow), ..unasked },
        &reading("git push"),
        Allow,
        Gate::Autonomy,
    );
}

#[test]
fn unresolved_command_asks_unless_exactly_allowed() {
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
    let policy =
        policed(vec![with(Test::Expression(expression("@evil\\.org$").expect("an expression")))]);
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
fn untrusted_subjects_do_not_satisfy_a_rule() {
    // The call acts, but names only one text that it reads.
    let third_party = |subjects_trusted| Call {
        subjects_trusted,
        ..call("sh__act", false, &[(SubjectKind::Text, Access::Read, "x")])
    };
    let writing =
        policed(vec![Rule { access: Some(Access::Write), ..rule(Effect::Deny, &["sh__*"], &[]) }]);
    check(&writing, &third_party(false), Deny, Gate::Policy);
    check(&writing, &third_party(true), Allow, Gate::Autonomy);
    let reading =
        policed(vec![Rule { access: Some(Access::Read), ..rule(Effect::Allow, &[], &[]) }]);
    check(&reading, &third_party(false), Deny, Gate::Policy);
    let below = policed(vec![rule(Effect::Allow, &[], &["notes/**"])]);
    check(&below, &Call { subjects_trusted: false, ..write("/w/notes/a") }, Deny, Gate::Policy);
    check(&below, &write("/w/notes/a"), Allow, Gate::Autonomy);
    let anything = policed(vec![rule(Effect::Allow, &["sh__*"], &[])]);
    check(&anything, &third_party(false), Allow, Gate::Autonomy);
}

#[test]
fn policy_with_allowing_rules_denies_everything_else() {
    let policy = policed(vec![
        rule(Effect::Allow, &["read"], &[]),
        rule(Effect::Allow, &["move_path"], &["a", "b"]),
    ]);
    check(&policy, &read("/w/x"), Allow, Gate::Autonomy);
    check(&policy, &write("/w/a/x"), Deny, Gate::Policy);
    check(&policy, &moved("/w/a/x", "/w/b/x"), Allow, Gate::Autonomy);
    check(&policy, &moved("/w/a/x", "/w/c/x"), Deny, Gate::Policy);
    // A rule that allows only lets the call pass: the other gates can still ask.
    let supervised = Policy { autonomy: placed(Autonomy::Ask), ..policy };
    check(&supervised, &moved("/w/a/x", "/w/b/x"), Ask, Gate::Autonomy);
}

#[test]
fn low_trust_denies_acting_calls_or_all_calls() {
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
            let mut plugin_policy = policy.clone();
            plugin_policy.trusted.plugins.insert("some".to_owned(), placed(trust));
            assert_eq!(
                decide(&plugin_policy, &call, false).verdict,
                verdict,
                "{trust:?} {}",
                call.tool
            );
            // The lower trust counts, and an approval doesn't change that.
            let confirmed = decide(&plugin_policy, &Call { trust: Trust::Verified, ..call }, true);
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
fn first_gate_that_denies_is_reported() {
    assert!(GATES.is_sorted(), "the gates are in the order of their definition");
    let subjects = [
        (SubjectKind::Command, Access::Write, "sudo x"),
        (SubjectKind::Url, Access::Read, "https://example.com/"),
    ];
    let arguments = json!({ "command": "sudo x", "network": true });
    let call = Call { arguments, provider: "web", ..call("bash", false, &subjects) };
    for (at, gate) in GATES.iter().enumerate() {
        check(&denying(&[*gate]), &call, Deny, *gate);
        check(&denying(&GATES[at..]), &call, Deny, *gate);
        let decisions = denying(&GATES[at..]).explain(&call.action());
        assert_eq!(decisions.iter().map(|(gate, _)| *gate).collect::<Vec<_>>(), GATES);
        for (gate, decision) in &decisions[at..] {
            let verdict = decision.as_ref().map(|decision| decision.verdict);
            assert_eq!(verdict, Some(Deny), "{gate:?}");
        }
    }
    check(&denying(&[]), &call, Allow, Gate::Autonomy);
}

#[test]
fn later_denial_wins_over_earlier_ask() {
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
fn tool_is_hidden_if_its_rules_deny_every_call() {
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
    let rest = |name, rules| {
        let tool = Definition { name, aliases: &[], provider: "some", acts: false, harmless: true };
        policed(rules).denies_all(&tool)
    };
    for name in ["read_overflow", "job_output", "job_list", "job_stop"] {
        let allowing = rest(name, vec![rule(Effect::Allow, &["read"], &[])]);
        assert!(!allowing, "`{name}` needs no rule that allows");
    }
    assert!(rest("job", vec![rule(Effect::Allow, &["read"], &[])]));
    assert!(rest("read_overflow", vec![rule(Effect::Deny, &["read_*"], &[])]));
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
fn refusal_names_the_line_that_would_change_it() {
    let remedy = |policy: &Policy, call: &Call| decide(policy, call, false).remedy.into_owned();
    let policy = autonomy(Autonomy::Ask);
    assert_eq!(
        remedy(&policy, &write("/w/a b*.txt")),
        "To allow it without asking, add to toolhold.toml:\n[[tools.permissions.write]]\npattern = \"/w/a b*.txt\"\nexact = true\naction = \"allow\""
    );
    assert!(remedy(&policy, &write(&"x".repeat(1000))).contains("[[tools.permissions.write]]"));
    assert!(!remedy(&policy, &write("/w/\u{1b}[2J")).contains('\u{1b}'));
    assert!(
        remedy(&permitting("write", &[&[("*", Deny)]]), &write("/w/a"))
            .contains("before the deciding rule")
    );
    assert!(remedy(&autonomy(Autonomy::Full), &bash("sudo x")).contains("blocked_commands"));
    // The remedy works.
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

/// A call of a tool of another source, whose arguments say nothing.
fn third_party(provider: &'static str, tool: &'static str) -> Call {
    Call { provider, ..call(tool, false, &[]) }
}

/// A policy with a list of permissions for a glob.
fn permitting_glob(name: &str, rules: &[(&str, Verdict)]) -> Policy {
    let glob = ToolGlob::new(name).expect("it is valid").expect("it has a wildcard");
    let mut policy = autonomy(Autonomy::Ask);
    policy.permissions.add_glob(glob, list(rules));
    policy
}

#[test]
fn glob_decides_on_the_tools_of_its_source() {
    let policy = permitting_glob("git__*", &[("git__push*", Deny), ("*", Allow)]);
    check(&policy, &third_party("git", "git__status"), Allow, Gate::Permissions);
    check(&policy, &third_party("git", "git__push"), Deny, Gate::Permissions);
    check(&policy, &third_party("git-evil", "git-evil__status"), Ask, Gate::Autonomy);
    check(&policy, &third_party("git-evil", "git__status"), Ask, Gate::Autonomy);
    check(&policy, &write("/w/a"), Ask, Gate::Autonomy);
}

#[test]
fn glob_never_allows_a_tool_that_says_that_it_destroys() {
    let destructive = |policy: &Policy, verdict, gate| {
        let reset = Call { says_destructive: true, ..third_party("git", "git__reset") };
        check(policy, &reset, verdict, gate);
    };
    let mut policy = permitting_glob("git__*", &[("*", Allow)]);
    destructive(&policy, Ask, Gate::Autonomy);
    policy.permissions.add("git__reset", list(&[("*", Allow)]));
    destructive(&policy, Allow, Gate::Permissions);
    // A rule that denies behind the one that allows still does.
    destructive(&permitting_glob("git__*", &[("*", Allow), ("*", Deny)]), Deny, Gate::Permissions);
}

#[test]
fn strictest_list_of_a_name_and_its_globs_applies() {
    let mut policy = permitting_glob("git__*", &[("*", Ask)]);
    policy.permissions.add("git__status", list(&[("*", Allow)]));
    check(&policy, &third_party("git", "git__status"), Ask, Gate::Permissions);
    let mut policy = permitting_glob("git__*", &[("*", Allow)]);
    policy.permissions.add("git__push", list(&[("*", Deny)]));
    check(&policy, &third_party("git", "git__push"), Deny, Gate::Permissions);
    check(&policy, &third_party("git", "git__log"), Allow, Gate::Permissions);
}

fn remedy(policy: &Policy, call: &Call) -> String {
    decide(policy, call, false).remedy.into_owned()
}

#[test]
fn remedy_for_a_tool_whose_arguments_say_nothing_is_a_pattern() {
    let policy = autonomy(Autonomy::Ask);
    let status = third_party("git", "git__status");
    let line = "[[tools.permissions.git__status]]\npattern = \"*\"\naction = \"allow\"";
    assert!(remedy(&policy, &status).ends_with(line), "{}", remedy(&policy, &status));
    let reset = Call { says_destructive: true, ..third_party("git", "git__reset") };
    let shown = remedy(&policy, &reset);
    assert!(shown.contains("`toolhold allow --tool git__reset`"), "{shown}");
    assert!(shown.contains("exact = true"), "{shown}");
    let denied = permitting_glob("git__*", &[("*", Deny)]);
    let shown = remedy(&denied, &status);
    assert!(shown.contains("[[tools.permissions.\"git__*\"]]"), "{shown}");
}
