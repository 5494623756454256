//! Rules for paths that a call reaches without naming them.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use std::path::Path;
use std::sync::Arc;

use toolhold_contract::{Access, PathRules, SubjectKind};
use toolhold_policy::rules::{Effect, Rule, RuleSet};
use toolhold_policy::{Pattern, Permission, Phase, Policy, ReachedPaths, Verdict};

use support::{Call, bash, call, list, moved, permitting, policed, read, rule, write};

const READ: Access = Access::Read;
const WRITE: Access = Access::Write;

fn reached(policy: Policy, call: &Call) -> Option<Arc<ReachedPaths>> {
    Arc::new(policy).reached(&call.action())
}

/// Checks the verdicts on paths that a call reaches.
#[track_caller]
fn check(policy: Policy, call: &Call, expected: &[(&str, Access, Verdict)]) {
    let reached = reached(policy, call).expect("rules about paths");
    for (path, access, verdict) in expected {
        let decided = match reached.decide(Path::new(path), *access) {
            Ok(()) => Verdict::Allow,
            Err(refusal) if refusal.asks => Verdict::Ask,
            Err(_) => Verdict::Deny,
        };
        assert_eq!(decided, *verdict, "{access:?} {path}");
    }
}

fn bound(rule: Rule, access: Access) -> Rule {
    Rule { access: Some(access), ..rule }
}

#[test]
fn nothing_is_compiled_without_a_rule_about_paths() {
    let (deny, allow) = (Effect::Deny, Effect::Allow);
    assert!(reached(Policy::default(), &read("/w")).is_none());
    assert!(reached(policed(vec![rule(deny, &["write"], &["a"])]), &read("/w")).is_none());
    assert!(
        reached(
            policed(vec![rule(allow, &["read"], &[]), rule(deny, &["write"], &[])]),
            &read("/w")
        )
        .is_none()
    );
    assert!(
        reached(
            policed(vec![Rule { phases: vec![Phase::Planner], ..rule(deny, &[], &["a"]) }]),
            &read("/w")
        )
        .is_none()
    );
    // The call doesn't write.
    assert!(reached(policed(vec![bound(rule(deny, &[], &["a"]), WRITE)]), &read("/w")).is_none());
    assert!(reached(permitting("read", &[&[("a", Verdict::Allow)]]), &read("/w")).is_none());
    // These permissions are about commands.
    assert!(
        reached(permitting("bash", &[&[("*", Verdict::Ask), ("a", Verdict::Deny)]]), &bash("ls"))
            .is_none()
    );
}

#[test]
fn denial_applies_to_everything_below_its_path() {
    let rules = vec![
        rule(Effect::Deny, &["grep", "bash"], &["secret"]),
        bound(rule(Effect::Deny, &[], &["cold"]), WRITE),
    ];
    let grep = call("grep", true, &[(SubjectKind::Path, READ, "/w")]);
    check(
        policed(rules.clone()),
        &grep,
        &[
            ("/w/secret", READ, Verdict::Deny),
            ("/w/a/secret/b", READ, Verdict::Deny),
            ("/w/SECRET", READ, Verdict::Deny),
            ("/w/cold", READ, Verdict::Allow),
            ("/elsewhere", READ, Verdict::Allow),
        ],
    );
    check(
        policed(rules),
        &bash("ls"),
        &[
            ("/w/secret", READ, Verdict::Deny),
            ("/w/cold", READ, Verdict::Allow),
            ("/w/cold/x", WRITE, Verdict::Deny),
        ],
    );
}

#[test]
fn denied_reading_denies_writing_and_allowed_writing_allows_reading() {
    let denying = vec![bound(rule(Effect::Deny, &[], &["a"]), READ)];
    check(
        policed(denying.clone()),
        &moved("/w", "/v"),
        &[("/w/a", READ, Verdict::Deny), ("/w/a", WRITE, Verdict::Deny)],
    );
    // The gates decide the same for the named path.
    assert_eq!(support::decide(&policed(denying), &write("/w/a"), false).verdict, Verdict::Deny);
    let allowing = vec![
        bound(rule(Effect::Allow, &[], &["a"]), WRITE),
        bound(rule(Effect::Allow, &[], &["b"]), READ),
    ];
    check(
        policed(allowing),
        &write("/w/a"),
        &[
            ("/w/a", READ, Verdict::Allow),
            ("/w/a", WRITE, Verdict::Allow),
            ("/w/b", READ, Verdict::Allow),
            ("/w/b", WRITE, Verdict::Deny),
            ("/w/c", READ, Verdict::Deny),
        ],
    );
}

#[test]
fn allowed_path_allows_entering_and_making_its_parents() {
    let policy = policed(vec![rule(Effect::Allow, &[], &["/w/new/file"])]);
    check(
        policy,
        &write("/w/new/file"),
        &[
            ("/w/new", WRITE, Verdict::Allow),
            ("/w", READ, Verdict::Allow),
            ("/w/new/other", WRITE, Verdict::Deny),
            ("/w/new/fil", WRITE, Verdict::Deny),
        ],
    );
    let only: &[(&str, Verdict)] = &[("/w/new/file", Verdict::Allow), ("*", Verdict::Deny)];
    check(
        permitting("write", &[only]),
        &write("/w/new/file"),
        &[("/w/new", WRITE, Verdict::Allow), ("/w/new/other", READ, Verdict::Deny)],
    );
    let policy =
        policed(vec![rule(Effect::Allow, &[], &["/w"]), rule(Effect::Deny, &[], &["new/*"])]);
    check(policy, &write("/w/x"), &[("/w/new/y", WRITE, Verdict::Deny)]);
}

#[test]
fn each_set_of_rules_decides_by_itself() {
    let mut policy = policed(vec![rule(Effect::Allow, &[], &["/w"])]);
    policy.policy.rules.push(rule(Effect::Deny, &[], &["a"]));
    policy.ceiling =
        vec![RuleSet::default(), RuleSet { rules: vec![rule(Effect::Deny, &[], &["b"])] }];
    let denial_of = |path: &str| {
        let reached = reached(policy.clone(), &read("/w")).expect("rules about paths");
        let refusal = reached.decide(Path::new(path), READ).expect_err("a refusal");
        reached.explain(refusal, Path::new(path), READ)
    };
    assert_eq!(denial_of("/w/a").capability, "policy");
    assert_eq!(denial_of("/w/b").capability, "ceiling");
    let denial = denial_of("/v");
    assert_eq!((&*denial.capability, &*denial.action), ("policy", "read /v"));
    assert!(
        denial.remedy.ends_with("effect = \"allow\"\ntools = [\"read\"]\npaths = [\"/v\"]"),
        "{denial}"
    );
}

#[test]
fn approval_covers_paths_of_the_rule_that_asked() {
    let (allow, ask, deny) = (Verdict::Allow, Verdict::Ask, Verdict::Deny);
    let list: &[(&str, Verdict)] = &[
        ("/w/a/open", allow),
        ("/w/a", ask),
        ("/w/b", deny),
        ("/w/*/b", ask),
        ("/w", allow),
        ("b", deny),
    ];
    let read_at = |path| read(path);
    check(
        permitting("read", &[list]),
        &read_at("/w"),
        &[
            ("/w/a/open/x", READ, allow),
            ("/w/a/x", READ, ask),
            ("/w/b", READ, deny),
            ("/w/c/b", READ, ask),
            ("/w/c/d/b", READ, allow),
            ("/v/b", READ, deny),
            ("/v", READ, allow),
        ],
    );
    // A person has approved the call for the folder.
    let named: &[(&str, Access, Verdict)] =
        &[("/w/a/x", READ, allow), ("/w/c/b", READ, ask), ("/w/b", READ, deny)];
    check(permitting("read", &[list]), &read_at("/w/a"), named);
    // The most severe of several lists counts. Each rule that asks needs its own approval.
    let lists: &[&[(&str, Verdict)]] = &[list, &[("/w/a/x", deny), ("/w/a/y", ask)]];
    check(
        permitting("read", lists),
        &read_at("/w/a"),
        &[("/w/a/x", READ, deny), ("/w/a/y", READ, ask), ("/w/a/z", READ, allow)],
    );
    // A permission for exactly this folder approves it permanently.
    let mut policy = permitting("read", &[]);
    let exactly = Permission {
        pattern: Pattern::exactly("/w/a"),
        verdict: allow,
        rule: "exact".to_owned(),
        place: "here".into(),
    };
    policy.permissions.add("read", std::iter::once(exactly).chain(support::list(list)).collect());
    check(
        policy.clone(),
        &read_at("/w/a"),
        &[("/w/a/x", READ, allow), ("/w/b", READ, deny), ("/w/c/b", READ, ask)],
    );
    check(policy, &read_at("/w"), &[("/w/a/x", READ, ask), ("/w/a", READ, allow)]);
    // A rule that asks about every call doesn't ask about a path.
    check(
        permitting("read", &[&[("/v", deny), ("*", ask)]]),
        &read_at("/w/a"),
        &[("/elsewhere", READ, allow), ("/v", READ, deny)],
    );
}

#[test]
fn refusal_of_an_asking_rule_names_the_remedy() {
    let reached = reached(permitting("read", &[&[("[a]", Verdict::Ask)]]), &read("/w"))
        .expect("rules about paths");
    let path = Path::new("/w/[a]");
    let refusal = reached.decide(Path::new("/w/a"), READ).expect_err("a refusal that asks");
    assert!(refusal.asks);
    assert_eq!(
        reached.explain(refusal, path, READ).remedy,
        "A call that names the path needs approval. To allow it, put this rule before the deciding rule:\n[[tools.permissions.read]]\npattern = \"/w/\\\\[a\\\\]\"\naction = \"allow\""
    );
}

#[test]
fn rules_under_an_alias_count() {
    let mut policy = Policy::default();
    policy.permissions.add("file_read", list(&[("a", Verdict::Deny)]));
    let aliased = Call { aliases: vec!["file_read".to_owned()], ..read("/w") };
    check(policy, &aliased, &[("/w/a", READ, Verdict::Deny), ("/w/b", READ, Verdict::Allow)]);
    let denying = Policy {
        policy: RuleSet { rules: vec![rule(Effect::Deny, &["file_read"], &["a"])] },
        ..Policy::default()
    };
    check(denying, &aliased, &[("/w/a", READ, Verdict::Deny)]);
}

#[test]
fn different_rules_have_different_identities() {
    let policy = Arc::new(policed(vec![
        rule(Effect::Deny, &[], &["a"]),
        Rule { phases: vec![Phase::Planner], ..rule(Effect::Deny, &[], &["b"]) },
    ]));
    let identity =
        |call: &Call| policy.reached(&call.action()).expect("rules about paths").identity();
    assert_eq!(identity(&read("/w")), identity(&read("/w")));
    assert_ne!(identity(&read("/w")), identity(&read("/v")));
    assert_ne!(
        identity(&read("/w")),
        identity(&Call { phase: Some(Phase::Planner), ..read("/w") })
    );
}

#[test]
fn anchors_are_folders_before_the_first_wildcard() {
    let rules = vec![rule(Effect::Deny, &[], &["/etc/ssl", "/usr/*/x", "b", "/a/\\[b/c", "/**"])];
    let anchors = reached(policed(rules), &bash("ls")).expect("rules about paths").anchors();
    assert_eq!(anchors, ["/etc/ssl", "/usr", "/a", "/"].map(std::path::PathBuf::from));
}

#[test]
fn written_in_is_the_written_path_in_a_folder() {
    let policy = || policed(vec![rule(Effect::Deny, &[], &["a"])]);
    let moved = reached(policy(), &moved("/w/x", "/v/y")).expect("rules about paths");
    assert_eq!(moved.written_in(Path::new("/v")), Some(Path::new("/v/y")));
    assert_eq!(moved.written_in(Path::new("/")), None);
    assert_eq!(
        reached(policy(), &read("/w/x")).expect("rules about paths").written_in(Path::new("/w")),
        None
    );
}
