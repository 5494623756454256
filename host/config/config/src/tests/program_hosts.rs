//! The decisions on hosts that programs of commands reach.

use toolhold_policy::egress::ProgramTarget;
use toolhold_policy::{Decision, Network, OriginKind, Verdict};

use super::*;

fn decide(loaded: &Config, entry: &str) -> Decision {
    let target = ProgramTarget::from_entry(entry).expect("an entry for one host");
    loaded.decide_on_host(&target).expect("the entries are valid")
}

#[track_caller]
fn check(loaded: &Config, entry: &str, verdict: Verdict, rule: &str) {
    let decision = decide(loaded, entry);
    assert!(decision.verdict == verdict && decision.rule.contains(rule), "{entry}: {decision:?}");
}

#[test]
fn host_without_an_entry_is_asked_about_unless_a_rule_denies_it() {
    let scene = Scene::new();
    let loaded = scene.load("");
    check(
        &loaded,
        "a.example.org",
        Verdict::Ask,
        "network = \"ask\": no entry of hosts has a.example.org",
    );
    check(&loaded, "git.corp", Verdict::Ask, "git.corp, which is a name that only this machine");
    for (entry, rule) in [
        ("10.1.2.3:5432", "private addresses"),
        ("8.8.8.8", "hosts"),
        ("metadata.google.internal", "private addresses"),
    ] {
        check(&loaded, entry, Verdict::Deny, rule);
    }
    let denied = scene.load("tools.web.denied_domains = [\"*.example.org\"]\n");
    check(&denied, "a.example.org", Verdict::Deny, "denied_domains = \"*.example.org\"");
    check(&scene.load("tools.shell.network = \"deny\"\n"), "a.example.org", Verdict::Deny, "deny");
    check(
        &scene.load("tools.shell.network = \"allow\"\n"),
        "a.example.org",
        Verdict::Allow,
        "allow",
    );
    let without_sandbox = scene.load("tools.shell.sandbox = \"off\"\n");
    check(&without_sandbox, "a.example.org", Verdict::Allow, "sandbox = \"off\"");
    assert_eq!(without_sandbox.network_of_commands().value, Network::Ask);
    assert_eq!(loaded.network_of_commands().value, Network::Hosts);
}

#[test]
fn entry_grants_its_protocol_and_port_only() {
    let scene = Scene::new();
    let loaded = scene.load(
        "[tools.shell]\nhosts = [\"a.example.org\", \"http://b.example.org:8080\", \"c.example.org:22\", \"*.d.example.org\"]\n",
    );
    for entry in [
        "a.example.org",
        "http://b.example.org:8080",
        "c.example.org:22",
        "https://c.example.org:22",
        "x.d.example.org",
    ] {
        check(&loaded, entry, Verdict::Allow, "hosts has");
    }
    let decision = decide(&loaded, "x.d.example.org");
    assert!(decision.place.ends_with("toolhold.toml, line 2"), "{decision:?}");
    for entry in [
        "http://a.example.org",
        "a.example.org:8443",
        "b.example.org",
        "b.example.org:8080",
        "http://c.example.org:22",
    ] {
        check(&loaded, entry, Verdict::Ask, "network = \"ask\"");
    }
}

#[test]
fn ceiling_excludes_hosts_that_it_does_not_name() {
    let scene = Scene::new();
    scene.write("");
    let ceiling = scene.work.join("ceiling.toml");
    let with_ceiling = |hosts: &str| {
        fs::write(&ceiling, format!("[tools.shell]\nhosts = {hosts}\n")).expect("it is written");
        let path = ceiling.display().to_string();
        load(&scene.folders, &inputs(&[("TOOLHOLD_CEILING", path.as_str())], &[]))
            .expect("it is valid")
    };
    let loaded = with_ceiling(
        "[\"*.corp.example.org\", { host = \"b.example.org\", methods = [\"GET\"] }, \
         { host = \"c.example.org\", paths = [\"/a/**\"] }]",
    );
    check(&loaded, "a.corp.example.org", Verdict::Ask, "network = \"ask\"");
    for entry in [
        "a.example.org",
        "a.corp.example.org:22",
        "http://a.corp.example.org",
        "b.example.org",
        "c.example.org",
    ] {
        let decision = decide(&loaded, entry);
        assert_eq!(decision.verdict, Verdict::Deny, "{entry}: {decision:?}");
        assert!(decision.place.contains("ceiling.toml, line 2"), "{decision:?}");
        assert!(decision.remedy.contains("whoever manages the ceiling"), "{decision:?}");
    }
    let loaded = with_ceiling("[]");
    check(&loaded, "a.corp.example.org", Verdict::Deny, "hosts");
    // Nobody may approve the whole network, which would include other hosts.
    let network = loaded.network_of_commands();
    assert_eq!(network.value, Network::OnlyHosts);
    assert!(network.place.text.contains("ceiling.toml, line 2"), "{network:?}");
}

#[test]
fn ceiling_on_the_network_is_named_even_if_it_takes_nothing_away() {
    let scene = Scene::new();
    scene.write("");
    let ceiling = scene.work.join("ceiling.toml");
    fs::write(&ceiling, "[tools.shell]\nnetwork = \"ask\"\n").expect("it is written");
    let path = ceiling.display().to_string();
    let ceiling_inputs = inputs(&[("TOOLHOLD_CEILING", path.as_str())], &[]);
    let network = load(&scene.folders, &ceiling_inputs).expect("it is valid").network_of_commands();
    assert_eq!(network.value, Network::Hosts);
    assert!(network.place.text.contains("ceiling.toml, line 2"), "{network:?}");
    assert!(matches!(network.place.kind, OriginKind::Ceiling(_)), "{network:?}");
    // The user's own line is the narrower one.
    scene.write("[tools.shell]\nnetwork = \"deny\"\n");
    let network = load(&scene.folders, &ceiling_inputs).expect("it is valid").network_of_commands();
    assert_eq!(network.value, Network::Deny);
    assert!(network.place.text.contains("toolhold.toml, line 2"), "{network:?}");
}

#[test]
fn permanent_approval_adds_one_entry() {
    let scene = Scene::new();
    let loaded = scene.load("# mine\n[tools.shell]\nhosts = [\"a.example.org\"] # kept\n");
    let rule = NewRule::Host(HostEntry { host: "http://b.example.org".to_owned() });
    let changed = loaded.with_rule(&rule).expect("it can be written");
    check(&changed, "http://b.example.org", Verdict::Allow, "hosts has");
    let file = rule.write(&scene.folders).expect("it is written");
    rule.write(&scene.folders).expect("it is there already");
    assert_eq!(
        fs::read_to_string(file).expect("it exists"),
        "# mine\n[tools.shell]\nhosts = [\"a.example.org\", \"http://b.example.org\"] # kept\n"
    );
    // The old configuration and the new file differ only by the rule.
    loaded.with_rule(&rule).expect("another process wrote the same rule");
    let text = serde_json::to_string(&rule).expect("JSON");
    assert_eq!(serde_json::from_str::<NewRule>(&text).expect("a rule"), rule);
    let wrong = NewRule::Host(HostEntry { host: "a b".to_owned() });
    wrong.write(&scene.folders).expect_err("it isn't a host");
}

#[test]
fn secrets_for_a_host_are_named() {
    let scene = Scene::new();
    let loaded = scene.load(
        "[tools.shell.secrets.github]\nenv = \"GH_TOKEN\"\nhosts = [\"a.example.org\", \"b.example.org:8443\"]\n",
    );
    for (entry, names) in [
        ("a.example.org", &["github"][..]),
        ("https://b.example.org:8443", &["github"]),
        ("http://b.example.org:8443", &[]),
        ("b.example.org:8443", &[]),
        ("c.example.org", &[]),
    ] {
        let target = ProgramTarget::from_entry(entry).expect("an entry for one host");
        assert_eq!(loaded.secrets_of_host(&target), names, "{entry}");
    }
}
