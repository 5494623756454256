//! The policy that the files result in.

use std::os::unix::fs::symlink;

use serde_json::json;
use toolhold_contract::{Annotations, SubjectKind};
use toolhold_policy::{Action, Decision, Gate, ResolvedSubject, Trust, Verdict};

use super::*;

/// Decides on a call that acts on one subject.
fn decide(loaded: &Config, tool: &str, kind: SubjectKind, text: &str) -> Decision {
    let policy = loaded.policy().expect("the rules are valid");
    let subjects = [ResolvedSubject { kind, access: Access::Write, text: text.to_owned() }];
    policy.decide(
        &Action {
            tool,
            aliases: &[],
            provider: "known",
            built_in: true,
            annotations: Annotations::default(),
            says_destructive: false,
            subjects: &subjects,
            subjects_trusted: true,
            arguments: &json!({}),
            network: false,
            trust: Trust::Trusted,
            doubtful: false,
            phase: None,
            caller: None,
        },
        false,
    )
}

#[track_caller]
fn check(
    loaded: &Config,
    tool: &str,
    kind: SubjectKind,
    text: &str,
    verdict: Verdict,
    gate: Gate,
) -> Decision {
    let decision = decide(loaded, tool, kind, text);
    assert_eq!((decision.verdict, decision.gate), (verdict, gate), "{tool} {text}: {decision:?}");
    decision
}

fn path(loaded: &Config, path: &str, verdict: Verdict, gate: Gate) -> Decision {
    check(loaded, "write", SubjectKind::Path, path, verdict, gate)
}

fn command(loaded: &Config, text: &str, verdict: Verdict, gate: Gate) -> Decision {
    check(loaded, "bash", SubjectKind::Command, text, verdict, gate)
}

const RULES: &str = "\
[[tools.permissions.write]]
pattern = \"keys/**\"
action = \"deny\"

[[tools.permissions.write]]
pattern = \"*\"
action = \"allow\"
";

#[test]
fn every_decision_names_its_rule_and_line() {
    let scene = Scene::new();
    let loaded = scene.load(&format!("tools.autonomy = \"read-only\"\n{RULES}\n[tools.policy]\nrules = [\n{{ effect = \"deny\", tools = [\"write\"], paths = [\"b\"] }},\n]\n"));
    let file = loaded.file.clone().expect("it was read").display().to_string();
    let denied = path(&loaded, "/w/keys/x", Verdict::Deny, Gate::Permissions);
    assert_eq!(denied.rule, "pattern = \"keys/**\", action = \"deny\"");
    assert_eq!(denied.place, format!("[tools.permissions.write] in {file}, line 2"));
    let denied_by_permission = denied;
    let denied = path(&loaded, "/w/b", Verdict::Deny, Gate::Policy);
    assert_eq!(denied.rule, "effect = \"deny\", tools = [\"write\"], paths = [\"b\"]");
    assert_eq!(denied.place, format!("[tools.policy] in {file}, line 12"));
    let denied = path(&loaded, "/w/a", Verdict::Deny, Gate::Autonomy);
    assert_eq!(
        (&*denied.rule, &*denied.place),
        ("autonomy = \"read-only\"", &*format!("[tools] in {file}, line 1"))
    );
    let asks = "tools.autonomy = \"ask\"\n";
    let asked = path(&scene.load(asks), "/w/a", Verdict::Ask, Gate::Autonomy);
    assert_eq!(asked.place, format!("[tools] in {file}, line 1"));
    // The lines that a remedy proposes have the promised effect.
    let lines = asked
        .remedy
        .strip_prefix(&format!("To allow it without asking, add to {file}:\n"))
        .expect("the remedy has lines");
    path(
        &scene.load(&format!("[tools]\ncall = 20\n{lines}")),
        "/w/a",
        Verdict::Allow,
        Gate::Permissions,
    );
    let lines = denied_by_permission
        .remedy
        .strip_prefix("To allow it, put this rule before the deciding rule:\n")
        .expect("the remedy has lines");
    path(
        &scene.load(&format!("[tools]\ncall = 20\n{lines}\n{RULES}")),
        "/w/keys/x",
        Verdict::Allow,
        Gate::Permissions,
    );
    let narrow = "[tools.authorization]\nenabled = true\n[[tools.authorization.rules]]\neffect = \"allow\"\ntools = [\"read\"]\n";
    let refused = path(&scene.load(narrow), "/w/a", Verdict::Deny, Gate::Policy);
    let lines =
        refused.remedy.strip_prefix("To allow it, add a rule:\n").expect("the remedy has lines");
    let allowed = format!("{asks}{narrow}{lines}\n");
    path(&scene.load(&allowed), "/w/a", Verdict::Ask, Gate::Autonomy);
    let blocked = command(&scene.load(""), "curl x", Verdict::Deny, Gate::Blocklist);
    let lines = blocked
        .remedy
        .strip_prefix(&format!("To allow it, write in {file}:\n"))
        .expect("the remedy has lines");
    let allowed = format!("{asks}tools.call = 20\n{lines}\n");
    command(&scene.load(&allowed), "curl x", Verdict::Ask, Gate::Autonomy);
}

#[test]
fn untrusted_file_adds_denials_and_questions_and_removes_none() {
    let scene = Scene::new();
    let untrusted = "\
tools.permissions.write = [
  { pattern = \"*\", action = \"ask\" },
  { pattern = \"keys/**\", action = \"allow\" },
]
tools.permissions.edit = [{ pattern = \"*\", action = \"deny\" }]
tools.policy.rules = [{ effect = \"deny\", paths = [\"vendor\"] }, { effect = \"allow\", tools = [\"*\"] }]
tools.autonomy = \"full\"
";
    let loaded = scene.load_with(RULES, untrusted);
    let file = scene.work.join("toolhold.toml").display().to_string();
    // Its question comes before the user's rules, but doesn't avoid a denial among them.
    path(&loaded, "/w/keys/x", Verdict::Deny, Gate::Permissions);
    let asked = path(&loaded, "/w/a", Verdict::Ask, Gate::Permissions);
    assert_eq!(asked.place, format!("[tools.permissions.write] in {file}, line 2"));
    check(&loaded, "edit", SubjectKind::Path, "/w/a", Verdict::Deny, Gate::Permissions);
    path(&loaded, "/w/vendor/x", Verdict::Deny, Gate::Policy);
    // Its rules that allow don't count, so they don't refuse other calls.
    check(&loaded, "other", SubjectKind::Path, "/w/a", Verdict::Ask, Gate::Autonomy);
    let ignored: Vec<String> = loaded
        .project
        .as_ref()
        .expect("it was read")
        .ignored()
        .iter()
        .map(|one| one.key.clone())
        .collect();
    assert_eq!(ignored, ["tools.autonomy", "tools.permissions.write", "tools.policy.rules"]);
}

#[test]
fn ignored_rule_of_an_untrusted_file_is_named() {
    let scene = Scene::new();
    let untrusted = "\
tools.permissions.write = [
  { pattern = \"x\", action = \"deny\" },
  { pattern = \"z\", action = \"allow\" },
]
";
    let loaded = scene.load_with("", untrusted);
    path(&loaded, "/w/x", Verdict::Deny, Gate::Permissions);
    let project = loaded.project.expect("it was read");
    let [ignored] = project.ignored() else { panic!("{project:?}") };
    let expected = "toolhold.toml:3: a rule of `tools.permissions.write` is ignored: only your own configuration can allow \"z\"";
    assert!(ignored.to_string().ends_with(expected), "{ignored}");
    assert_eq!(
        ignored.proposed,
        json!([{ "pattern": "z", "action": "allow" }]),
        "the rule that denies isn't listed, since it counts"
    );
}

#[test]
fn trusted_file_may_allow_but_removes_no_denial_of_the_user() {
    let scene = Scene::new();
    let project = "tools.permissions.write = [{ pattern = \"*\", action = \"allow\" }]\n";
    let user = RULES.replace("allow", "ask");
    scene
        .load_with(&user, project)
        .project
        .expect("it was read")
        .trust(&scene.folders)
        .expect("it is trusted");
    let loaded = scene.load_with(&user, project);
    assert_eq!(
        loaded.project.as_ref().map(|project| project.standing),
        Some(ProjectTrust::Trusted)
    );
    path(&loaded, "/w/keys/x", Verdict::Deny, Gate::Permissions);
    path(&loaded, "/w/a", Verdict::Ask, Gate::Permissions);
    path(&scene.load_with("", project), "/w/a", Verdict::Allow, Gate::Permissions);
}

#[test]
fn path_pattern_is_compared_with_the_real_path() {
    let scene = Scene::new();
    let home = scene.folders.home.clone().expect("a home");
    symlink(home.join("notes"), scene.work.join("link")).expect("a link is made");
    let link = scene.work.join("link").display().to_string();
    let rule = |pattern: &str| {
        scene.load(&format!(
            "tools.permissions.write = [{{ pattern = {pattern:?}, action = \"deny\" }}]"
        ))
    };
    let there = home.join("notes/x").display().to_string();
    for pattern in ["~/notes", "~/NOTES/**", link.as_str(), "notes/x"] {
        path(&rule(pattern), &there, Verdict::Deny, Gate::Permissions);
    }
    path(&rule("~/note"), &there, Verdict::Ask, Gate::Autonomy);
    path(&rule("/notes"), &there, Verdict::Ask, Gate::Autonomy);
}

#[test]
fn confirm_patterns_ask_if_bash_has_no_rules() {
    let scene = Scene::new();
    let asks = "tools.autonomy = \"ask\"\n";
    let asked = command(&scene.load(asks), "git push --force", Verdict::Ask, Gate::Permissions);
    assert_eq!(
        (&*asked.rule, &*asked.place),
        ("confirm_patterns = \"git push --force\"", "the default of [tools.shell]")
    );
    command(&scene.load(asks), "ls", Verdict::Ask, Gate::Autonomy);
    command(&scene.load(""), "echo $(date)", Verdict::Allow, Gate::Autonomy);
    // With full autonomy, only patterns that are written in a file ask.
    let full = "tools.autonomy = \"full\"\n";
    command(&scene.load(full), "git push --force", Verdict::Allow, Gate::Autonomy);
    let network = format!("{full}tools.shell.network = \"allow\"\n");
    command(&scene.load(&network), "git push --force", Verdict::Allow, Gate::Autonomy);
    let written = format!("{full}tools.shell.confirm_patterns = [\"deploy\"]\n");
    command(&scene.load(&written), "make deploy", Verdict::Ask, Gate::Permissions);
    command(&scene.load(&written), "make", Verdict::Allow, Gate::Autonomy);
    // The user's rules for `bash` replace the patterns. Those of an untrusted file don't.
    let ruled =
        format!("{written}tools.permissions.bash = [{{ pattern = \"x\", action = \"deny\" }}]\n");
    command(&scene.load(&ruled), "make deploy", Verdict::Allow, Gate::Autonomy);
    let untrusted = "tools.permissions.bash = [{ pattern = \"x\", action = \"deny\" }]\n";
    command(&scene.load_with(&written, untrusted), "make deploy", Verdict::Ask, Gate::Permissions);
    command(&scene.load_with(&written, untrusted), "x", Verdict::Deny, Gate::Permissions);
}

#[test]
fn blocked_commands_are_added_and_allowed_ones_removed() {
    let scene = Scene::new();
    let text = "tools.autonomy = \"full\"\n[tools.shell]\nblocked_commands = [\"git push\"]\nallowed_commands = [\"CURL\"]\n";
    let loaded = scene.load(text);
    let blocked = command(&loaded, "git -C x push", Verdict::Deny, Gate::Blocklist);
    assert!(blocked.place.ends_with("toolhold.toml, line 3"), "{}", blocked.place);
    // The remedy must not repeat a table or a list that the file already has.
    let remedy = command(&loaded, "wget x", Verdict::Deny, Gate::Blocklist).remedy;
    assert!(
        remedy.contains("add \"wget\" to `allowed_commands`")
            && remedy.ends_with("toolhold.toml, line 2."),
        "{remedy}"
    );
    let remedy = command(&scene.load(""), "wget x", Verdict::Deny, Gate::Blocklist).remedy;
    assert!(remedy.contains("[tools.shell]\nallowed_commands = [\"wget\"]"), "{remedy}");
    command(&loaded, "curl x", Verdict::Allow, Gate::Autonomy);
    // The exceptions of an untrusted file don't count. Its blocked commands are added.
    let loaded = scene.load_with(
        text,
        "[tools.shell]\nallowed_commands = [\"curl\", \"sudo\"]\nblocked_commands = [\"make\"]\n",
    );
    command(&loaded, "sudo x", Verdict::Deny, Gate::Blocklist);
    command(&loaded, "make", Verdict::Deny, Gate::Blocklist);
    command(&loaded, "git push", Verdict::Deny, Gate::Blocklist);
}

#[test]
fn untrusted_file_may_lower_the_trust_of_a_plugin() {
    let scene = Scene::new();
    let user = "tools.autonomy = \"full\"\n[plugins.known]\n";
    path(&scene.load(user), "/w/a", Verdict::Allow, Gate::Autonomy);
    let denied = path(
        &scene.load(&format!("{user}trust = \"quarantined\"\n")),
        "/w/a",
        Verdict::Deny,
        Gate::Trust,
    );
    assert!(
        denied.place.contains("[plugins.known]") && denied.place.ends_with("line 3"),
        "{}",
        denied.place
    );
    path(
        &scene.load_with(user, "plugins.known.trust = \"blocked\"\n"),
        "/w/a",
        Verdict::Deny,
        Gate::Trust,
    );
    path(
        &scene.load_with(
            &format!("{user}trust = \"blocked\"\n"),
            "plugins.known.trust = \"trusted\"\n",
        ),
        "/w/a",
        Verdict::Deny,
        Gate::Trust,
    );
}

#[test]
fn authorization_rules_are_appended_to_policy_rules_if_enabled() {
    let scene = Scene::new();
    let rules = "[tools.authorization]\nrules = [{ effect = \"deny\", tools = [\"write\"] }]\n";
    path(&scene.load(rules), "/w/a", Verdict::Ask, Gate::Autonomy);
    let enabled = scene.load(&format!("{rules}enabled = true\n"));
    path(&enabled, "/w/a", Verdict::Deny, Gate::Policy);
    let both = format!("[[tools.policy.rules]]\neffect = \"allow\"\n{rules}enabled = true\n");
    let denied = path(&scene.load(&both), "/w/a", Verdict::Deny, Gate::Policy);
    assert!(denied.place.ends_with("line 4"), "{}", denied.place);
}

#[test]
fn untrusted_file_enables_no_authorization() {
    let scene = Scene::new();
    let user = "[[tools.policy.rules]]\neffect = \"allow\"\ntools = [\"read\"]\n[tools.authorization]\nrules = [{ effect = \"allow\" }]\n";
    for project in ["", "tools.authorization.enabled = true\n"] {
        path(&scene.load_with(user, project), "/w/a", Verdict::Deny, Gate::Policy);
    }
}

#[test]
fn exact_rule_only_allows_and_only_one_text() {
    let scene = Scene::new();
    let rule = |action: &str| {
        format!(
            "tools.permissions.write = [{{ pattern = \"/w/*\", exact = true, action = \"{action}\" }}]\n"
        )
    };
    let loaded = scene.load(&rule("allow"));
    let decision = path(&loaded, "/w/*", Verdict::Allow, Gate::Permissions);
    assert_eq!(decision.rule, "pattern = \"/w/*\", exact = true, action = \"allow\"");
    for other in ["/w/a", "/W/*", "/w/*/a"] {
        path(&loaded, other, Verdict::Ask, Gate::Autonomy);
    }
    for action in ["ask", "deny"] {
        let problem =
            scene.load(&rule(action)).policy().expect_err("the rule protects only one spelling");
        assert!(
            problem.to_string().contains("`exact` is for rules with `action = \"allow\"`"),
            "{problem}"
        );
    }
    // In an untrusted file it allows nothing.
    path(&scene.load_with("", &rule("allow")), "/w/*", Verdict::Ask, Gate::Autonomy);
}

#[test]
fn rules_that_would_protect_nothing_are_problems() {
    let scene = Scene::new();
    let problem = |text: &str, expected: &str| {
        scene.write(text);
        let problems = load(&scene.folders, &Inputs::default())
            .expect_err("the configuration is invalid")
            .to_string();
        assert!(problems.contains(expected), "{text}: {problems}");
    };
    problem(
        "tools.permissions.write = [{ pattern = \"\", action = \"deny\" }]",
        "it has to be 1 to 1024 bytes",
    );
    problem(
        &format!(
            "tools.permissions.write = [{{ pattern = \"{}\", action = \"deny\" }}]",
            "x".repeat(1025)
        ),
        "pattern is 1025 bytes",
    );
    problem(
        "tools.permissions.write = [{ pattern = \"x\", action = \"refuse\" }]",
        "unknown variant `refuse`",
    );
    problem(
        "tools.permissions.write = [{ patern = \"x\", action = \"deny\" }]",
        "did you mean `pattern`?",
    );
    problem("tools.permissions.write = \"deny\"", "invalid type");
    problem("tools.policy.rules = [{ tools = [\"x\"] }]", "missing field `effect`");
    problem(
        "tools.policy.rules = [{ effect = \"deny\", tool = [\"x\"] }]",
        "did you mean `tools`?",
    );
    problem("tools.policy.rules = [{ effect = \"deny\", paths = [\"../x\"] }]", "never matches");
    let argument = |test: &str| {
        format!("tools.policy.rules = [{{ effect = \"deny\", arguments = [{{ {test} }}] }}]")
    };
    problem(&argument("pointer = \"path\", glob = \"x\""), "a pointer starts with `/`");
    problem(&argument("pointer = \"/path\""), "either a `glob` or a `regex`");
    problem(
        &argument("pointer = \"/path\", glob = \"x\", regex = \"x\""),
        "either a `glob` or a `regex`",
    );
    problem(&argument("pointer = \"/path\", regex = \"(\""), "isn't a valid regular expression");
    problem(
        &argument("pointer = \"/path\", regex = \"(a{1000}){1000}\""),
        "isn't a valid regular expression",
    );
    let many = "{ effect = \"deny\" },".repeat(257);
    problem(&format!("tools.policy.rules = [{many}]"), "has 257 rules; the limit is 256");
    problem(
        &format!(
            "tools.permissions.x = [{}]",
            "{ pattern = \"x\", action = \"ask\" },".repeat(257)
        ),
        "has 257 rules",
    );
}
