//! The rights of callers by the tables of `[principals]`.

use toolhold_policy::OriginKind;

use super::super::insert::{AllowRule, InsertError};
use super::*;

const ISSUER: &str = "https://login.example.org";

impl Scene {
    /// The folder `srv` outside of the working directory, with the folders `names`.
    fn srv(&self, names: &[&str]) -> String {
        let srv = self.work.parent().expect("it has a parent").join("srv");
        for name in names {
            fs::create_dir_all(srv.join(name)).expect("folders are made");
        }
        srv.display().to_string()
    }

    fn there_as(&self, who: Who) -> Inputs {
        Inputs { working_directory: Some(self.work.clone()), who: Some(who), ..Inputs::default() }
    }

    /// The configuration of a caller. `SRV` stands for the folder `srv`.
    pub(super) fn load_as(&self, text: &str, who: Who) -> Result<Config, Problems> {
        self.write(&text.replace("SRV", &self.srv(&["work"])));
        load(&self.folders, &self.there_as(who))
    }

    #[track_caller]
    fn assert_denied(&self, text: &str, who: Who, expected: &str) {
        let problems = self.load_as(text, who).expect_err("the caller has no rights").to_string();
        assert!(problems.contains(expected), "{text}: {problems}");
    }
}

pub(super) fn who(subject: &str, groups: &[&str]) -> Who {
    Who {
        issuer: ISSUER.to_owned(),
        subject: subject.to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        client: None,
        token: None,
    }
}

fn grants(scene: &Scene, loaded: &Config) -> Vec<(PathBuf, Access)> {
    let directory = loaded.directory();
    let files = loaded.built_in_files(&scene.folders, &directory).expect("they exist");
    files.grants.into_iter().map(|grant| (grant.path, grant.access)).collect()
}

const DEVELOPERS: &str = r#"
[tools.file]
allowed_paths = ["SRV"]
[principals.developers]
issuer = ["https://login.example.org"]
group = ["dev"]
[principals.developers.tools.file]
allowed_paths = ["SRV/work/{sub}", { path = "SRV/shared", access = "read" }]
"#;

#[test]
fn first_table_in_the_order_of_the_file_applies() {
    let scene = Scene::new();
    let text = r#"
[principals.z-admins]
subject = ["root", "adm-*"]
[principals.z-admins.tools]
call = 9
[principals.a-group]
group = ["dev-*"]
client = ["ide"]
[principals.a-group.tools]
call = 8
[principals.b-all]
issuer = ["https://login.example.org"]
[principals.b-all.tools]
call = 7
"#;
    let call = |who: Who| {
        let loaded = scene.load_as(text, who.clone()).expect("a table matches");
        let operator = load(&scene.folders, &Inputs::default()).expect("it is valid");
        let name = loaded.principal.as_ref().map(|principal| principal.name.as_str());
        assert!(operator.has_principals() && operator.principal_table(&who) == name);
        loaded.values.tools.call.get()
    };
    assert_eq!(call(who("adm-anna", &["dev-x"])), 9);
    assert_eq!(call(Who { client: Some("ide".into()), ..who("anna", &["x", "dev-x"]) }), 8);
    assert_eq!(call(who("anna", &["dev-x"])), 7);
    assert_eq!(call(who("Root", &[])), 7);
    let other = Who { issuer: format!("{ISSUER}/"), ..who("anna", &["dev"]) };
    scene.assert_denied(
        text,
        other,
        "matches this token (issuer https://login.example.org/, subject anna, groups dev)",
    );
    scene.assert_denied("", who("anna", &[]), "no table [principals.*]");
}

#[test]
fn caller_gets_only_what_the_table_names() {
    let scene = Scene::new();
    scene.srv(&["work", "shared"]);
    let text = format!(
        "{DEVELOPERS}{}",
        r#"
[tools.shell]
network = "allow"
sandbox = "best-effort"
presets = ["cargo"]
env = ["EDITOR"]
hosts = ["a.example.org"]
[tools.web]
other_domains = "allow"
allowed_domains = ["a.example.org", "b.example.org"]
credentials_to = ["a.example.org"]
[tools.web.secrets.GITHUB]
env = "A"
hosts = ["a.example.org"]
[tools.web.secrets.OTHER]
env = "B"
hosts = ["b.example.org"]
[plugins.named]
network = true
allowed_paths = ["SRV"]
env = ["EDITOR"]
store_mib = 4
[plugins.other]
hosts = ["a.example.org"]
[mcp.servers.search]
command = "x"
[agent]
provider = "big"
[providers.big]
model = "b"
[providers.small]
model = "s"
[principals.developers.tools.web]
allowed_domains = ["b.example.org", "c.example.org"]
[principals.developers.plugins.named]
env = ["EDITOR"]
store_mib = 2
"#
    )
    .replace(
        "group = [\"dev\"]",
        "group = [\"dev\"]\nsecrets = [\"GITHUB\"]\nmodels = [\"small\"]",
    );
    let loaded = scene.load_as(&text, who("anna", &["dev"])).expect("it is valid");

    let srv = PathBuf::from(scene.srv(&[]));
    let own = srv.join("work/anna");
    assert_eq!(
        grants(&scene, &loaded),
        [(own.clone(), Access::Write), (srv.join("shared"), Access::Read)]
    );
    assert_eq!(loaded.directory(), own);
    let mode = fs::metadata(&own).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    let config = &loaded.values;
    let shell = &config.tools.shell;
    assert_eq!(
        (shell.network, shell.sandbox, shell.presets.len(), shell.env.len(), shell.hosts.len()),
        (NetworkGrant::Ask, SandboxMode::Strict, 0, 0, 0)
    );
    // Commands reach only hosts of the table, which has none.
    assert_eq!(loaded.network_of_commands().value, toolhold_policy::Network::OnlyHosts);
    let web = &config.tools.web;
    assert_eq!(web.other_domains, OtherDomains::Deny);
    let domains: Vec<String> = web.allowed_domains.iter().map(ToString::to_string).collect();
    assert_eq!((domains, web.credentials_to.len()), (vec!["b.example.org".to_owned()], 0));
    assert_eq!(web.secrets.keys().collect::<Vec<_>>(), ["GITHUB"]);
    let named = &config.plugins["named"];
    assert_eq!(
        (named.enabled, named.network, named.allowed_paths.len(), named.env.len()),
        (true, false, 0, 1)
    );
    assert_eq!(named.store_mib.get(), 2);
    assert!(!config.plugins["other"].enabled && !config.mcp.servers["search"].enabled);
    assert_eq!(config.providers.keys().collect::<Vec<_>>(), ["small"]);
    assert_eq!(config.agent.provider, "");
    assert!(loaded.is_of_principal() && config.principals.is_empty());
    let switches = loaded.switches();
    assert!(switches.providers.contains_key("other") && !switches.providers.contains_key("file"));
    let OriginKind::Ceiling(file) = loaded.origin("plugins.other.enabled").kind else {
        panic!("the table decides: {:?}", loaded.origin("plugins.other.enabled"));
    };
    assert_eq!(file, scene.folders.config_file().display().to_string());
}

#[test]
fn caller_without_directories_has_no_files_and_no_commands() {
    let scene = Scene::new();
    let text = "[principals.all]\nissuer = [\"https://login.example.org\"]\n";
    for more in ["", "[principals.all.tools.file]\nallowed_paths = []\n"] {
        let loaded =
            scene.load_as(&format!("{text}{more}"), who("anna", &[])).expect("it is valid");
        assert!(grants(&scene, &loaded).is_empty(), "{more}");
        assert!(!loaded.values.tools.file.enabled && !loaded.values.tools.shell.enabled);
    }
    // A list for commands alone grants nothing to the file tools.
    let shell = "[principals.all.tools.shell]\nallowed_paths = [\".\"]\n";
    let loaded = scene.load_as(&format!("{text}{shell}"), who("anna", &[])).expect("it is valid");
    assert!(!loaded.values.tools.file.enabled && loaded.values.tools.shell.enabled);
    let shell = loaded.processes_of_shell(&scene.folders, &scene.work).expect("it exists");
    assert_eq!(shell.files.grants.len(), 1);
}

#[test]
fn relative_paths_of_the_operator_start_at_the_operator_directory() {
    let scene = Scene::new();
    // The default grants `.`, which isn't the directory of the caller.
    let text = DEVELOPERS.replace("[tools.file]\nallowed_paths = [\"SRV\"]\n", "");
    scene.srv(&["shared"]);
    scene.assert_denied(&text, who("anna", &["dev"]), "`allowed_paths` doesn't (the default of");
    assert!(!Path::new(&scene.srv(&[])).join("work/anna").exists());

    // A caller can't put a plugin or a secret in place of the operator's.
    let loaded = {
        scene.write(&DEVELOPERS.replace("SRV", &scene.srv(&["work", "shared"])));
        let settings = ["plugins.x.path=x.wasm", "tools.filters.filters_path=f.toml"];
        let settings = settings.map(str::to_owned).to_vec();
        let inputs = Inputs { settings, ..scene.there_as(who("anna", &["dev"])) };
        load(&scene.folders, &inputs).expect("it is valid")
    };
    let directory = loaded.directory();
    let plugin = loaded.plugin_path("x", &scene.folders, &directory);
    assert_eq!(plugin, Some(scene.work.join("x.wasm")));
    let filters = loaded.filter_rules_path(&scene.folders, &directory);
    assert_eq!(filters, scene.work.join("f.toml"));
}

#[test]
fn files_of_removed_secrets_stay_protected() {
    let scene = Scene::new();
    let srv = PathBuf::from(scene.srv(&["work/anna", "shared"]));
    for file in ["work/anna/web", "work/anna/model", "work/anna/mine"] {
        fs::write(srv.join(file), "secret").expect("a file is written");
    }
    let text = format!(
        "{DEVELOPERS}{}",
        r#"
[tools.web.secrets.OTHER]
file = "SRV/work/anna/web"
hosts = ["b.example.org"]
[providers.big.secrets.key]
file = "SRV/work/anna/model"
"#
    );
    let loaded = scene.load_as(&text, who("anna", &["dev"])).expect("it is valid");
    assert!(loaded.values.tools.web.secrets.is_empty() && loaded.values.providers.is_empty());
    let folders = scene.folders.of_principal(&who("anna", &[]).id());
    let directory = loaded.directory();
    let rules = loaded.file_rules("tools.file", &folders, &directory).expect("it is valid");
    let may_read = |file: &str| rules.decide(&srv.join(file), Kind::Other, Access::Read).is_ok();
    assert!(may_read("work/anna/mine"));
    assert!(!may_read("work/anna/web") && !may_read("work/anna/model"));
    // Nor does the caller reach the operator's data and configuration, or those of others.
    for path in [&scene.folders.data, &scene.folders.cache, &scene.folders.principals()] {
        let is_own = loaded
            .own_paths(&folders, &directory)
            .iter()
            .any(|own| own.secret && path.starts_with(&own.path));
        assert!(is_own, "{}", path.display());
    }
}

#[test]
fn hostile_subjects_get_no_directory() {
    let scene = Scene::new();
    let srv = PathBuf::from(scene.srv(&["work", "shared"]));
    for subject in ["..", "../shared", "a/b", "", "-x", "~", "a\nb", "{sub}", &"a".repeat(65)] {
        scene.assert_denied(
            DEVELOPERS,
            who(subject, &["dev"]),
            "the subject can't be part of a path",
        );
    }
    let entries = fs::read_dir(srv.join("work")).expect("it exists").count();
    assert_eq!(entries, 0);

    // A subject with the name of a directory of others doesn't get it.
    let text = DEVELOPERS.replace("SRV/work/{sub}", "SRV/{sub}");
    scene.assert_denied(&text, who("shared", &["dev"]), "would contain");
    // Nor does a link in place of the directory lead to others.
    fs::create_dir(srv.join("work/ben")).expect("a folder is made");
    symlink(srv.join("work/ben"), srv.join("work/anna")).expect("a link is made");
    scene.assert_denied(DEVELOPERS, who("anna", &["dev"]), "leads through the link");
    // Nor is a directory made for the caller behind a link.
    symlink(srv.join("shared"), srv.join("link")).expect("a link is made");
    let text = DEVELOPERS.replace("SRV/work/{sub}", "SRV/link/{sub}");
    scene.assert_denied(&text, who("ben", &["dev"]), "leads through the link");
    assert!(!srv.join("shared/ben").exists());
}

#[test]
fn token_for_a_table_gets_no_directory_of_another_issuer() {
    let scene = Scene::new();
    let srv = PathBuf::from(scene.srv(&["work", "shared"]));
    scene.write(&DEVELOPERS.replace("SRV", &scene.srv(&[])));
    let token = Who { issuer: "toolhold".to_owned(), ..who("anna", &[]) };
    let principal_table = Some("developers".to_owned());
    let inputs = Inputs { principal_table, ..scene.there_as(token) };
    let denied = load(&scene.folders, &inputs).expect_err("it is another anna").to_string();
    assert!(denied.contains("callers of another issuer than toolhold"), "{denied}");
    assert!(!srv.join("work/anna").exists());
}

#[test]
fn ceiling_adds_no_plugin_to_a_caller() {
    let scene = Scene::new();
    scene.srv(&["shared"]);
    let ceiling = scene.work.parent().expect("it has a parent").join("ceiling.toml");
    fs::write(&ceiling, "[plugins.notes]\ntrust = \"quarantined\"\n").expect("it is written");
    for (table, expected) in [("", false), ("[principals.developers.plugins.notes]\n", true)] {
        scene.write(&format!("{DEVELOPERS}{table}").replace("SRV", &scene.srv(&["work"])));
        let variables = vec![("TOOLHOLD_CEILING".into(), ceiling.clone().into())];
        let inputs = Inputs { variables, ..scene.there_as(who("anna", &["dev"])) };
        let loaded = load(&scene.folders, &inputs).expect("it is valid");
        assert_eq!(loaded.values.plugins.contains_key("notes"), expected, "{table}");
    }
}

#[test]
fn file_of_the_callers_directory_only_narrows() {
    let scene = Scene::new();
    let srv = PathBuf::from(scene.srv(&["work/anna", "shared"]));
    let file = srv.join("work/anna/toolhold.toml");
    let wide = "tools.call = 3\ntools.max_call = 3600\n[tools.file]\nallowed_paths = [\"..\"]\n[principals.me]\nsubject = [\"*\"]\n";
    fs::write(&file, wide).expect("the file is written");
    let text = DEVELOPERS.replace("[tools.file]\n", "tools.call = 20\n[tools.file]\n");
    // The operator trusts the file for the operator's own work there.
    scene.write(&text.replace("SRV", &scene.srv(&[])));
    let there = Inputs { working_directory: Some(srv.join("work/anna")), ..Inputs::default() };
    let operator = load(&scene.folders, &there).expect("it is valid");
    operator.project.as_ref().expect("it was read").trust(&scene.folders).expect("it is trusted");
    let operator = load(&scene.folders, &there).expect("it is valid");
    assert_eq!(operator.project.as_ref().expect("it was read").standing, ProjectTrust::Trusted);
    assert!(!operator.values.principals.contains_key("me"));

    let loaded = scene.load_as(&text, who("anna", &["dev"])).expect("it is valid");
    assert_eq!(loaded.project.as_ref().expect("it was read").standing, ProjectTrust::Narrows);
    assert_eq!((loaded.values.tools.call.get(), loaded.values.tools.max_call.get()), (3, 600));
    let granted = grants(&scene, &loaded);
    assert!(granted.iter().all(|(path, _)| path.starts_with(srv.join("work/anna"))), "{granted:?}");
    let principal_folders = scene.folders.of_principal(&who("anna", &[]).id());
    assert!(trusted(&principal_folders).expect("it is read").is_empty());
}

#[test]
fn caller_writes_no_rule_for_everybody() {
    let scene = Scene::new();
    scene.srv(&["shared"]);
    let loaded = scene.load_as(DEVELOPERS, who("anna", &["dev"])).expect("it is valid");
    let rule = AllowRule { tool: "bash".into(), pattern: "*".into(), is_glob: true };
    // A server without tables gives a token with limits of its own only folders of its own.
    let folders = scene.folders.of_principal(&who("anna", &[]).id());
    let without_table = load(&folders, &Inputs::default()).expect("it is valid");
    for config in [&loaded, &without_table] {
        let denied = config
            .with_rule(&NewRule::Permission(rule.clone()))
            .expect_err("it is the operator's file");
        assert!(matches!(denied, InsertError::Principal), "{denied}");
    }
    let mut found = loaded;
    found.add_found_providers("local", [("local".to_owned(), ProviderSettings::default())].into());
    assert!(found.values.providers.is_empty());
}

#[test]
fn rules_of_a_table_deny_and_ask() {
    let scene = Scene::new();
    let table = r#"
[principals.all]
[[principals.all.tools.permissions.bash]]
pattern = "git push*"
action = "ask"
[[principals.all.tools.policy.rules]]
effect = "deny"
tools = ["write"]
"#;
    let loaded = scene.load_as(table, who("anna", &[])).expect("it is valid");
    assert_eq!(loaded.values.tools.permissions["bash"][0].action, PermissionAction::Ask);
    let policy = loaded.policy().expect("it is valid");
    assert_eq!(policy.ceiling.iter().flat_map(|rules| &rules.rules).count(), 1);
    // The operator's own policy has no rule of the table.
    let operator = load(&scene.folders, &Inputs::default()).expect("it is valid");
    assert!(operator.values.tools.permissions.is_empty());
    assert!(operator.policy().expect("it is valid").ceiling.is_empty());
}

#[test]
fn ceiling_and_bounds_limit_a_caller_too() {
    let scene = Scene::new();
    let srv = PathBuf::from(scene.srv(&["work", "shared"]));
    let ceiling = scene.work.parent().expect("it has a parent").join("ceiling.toml");
    let text = format!("tools.call = 4\ntools.file.allowed_paths = [{:?}]\n", srv.join("work"));
    fs::write(&ceiling, text).expect("the file is written");
    scene.write(&DEVELOPERS.replace("SRV", &scene.srv(&[])));
    let variables = vec![("TOOLHOLD_CEILING".into(), ceiling.clone().into())];
    let inputs = Inputs { variables, ..scene.there_as(who("anna", &["dev"])) };
    let loaded = load(&scene.folders, &inputs).expect("it is valid");
    assert_eq!(loaded.values.tools.call.get(), 4);
    assert_eq!(grants(&scene, &loaded), [(srv.join("work/anna"), Access::Write)]);
    assert!(loaded.own_paths(&scene.folders, &srv).iter().any(|own| own.path == ceiling));
    // A task of the caller keeps its limits.
    let bounds = loaded.task_bounds().expect("it isn't too long").texts;
    let wider =
        DEVELOPERS.replace("[principals.developers]", "[principals.developers]\nsecrets = []");
    scene.write(&wider.replace("SRV", &scene.srv(&[])));
    let inputs = Inputs { bounds, ..scene.there_as(who("anna", &["dev"])) };
    let task = load(&scene.folders, &inputs).expect("it is valid");
    assert!(task.is_of_task() && task.is_of_principal());
    assert_eq!(task.values.tools.call.get(), 4);
}

#[test]
fn local_user_has_no_table() {
    let scene = Scene::new();
    let loaded = scene.load(&DEVELOPERS.replace("SRV", &scene.srv(&["work"])));
    let alone = scene.load(&format!("[tools.file]\nallowed_paths = [{:?}]\n", scene.srv(&[])));
    let mut values = loaded.values.clone();
    values.principals.clear();
    assert_eq!(values, alone.values);
    assert!(!loaded.is_of_principal() && !alone.has_principals());
}

#[test]
fn faults_of_tables_name_the_table_and_the_line() {
    let scene = Scene::new();
    let check = |text: &str, expected: &[&str]| scene.assert_refused(text, expected);
    check(
        "[principals.dev.tools]\ncal = 5\n",
        &["toolhold.toml:2: in [principals.dev], unknown key `tools.cal`; did you mean `call`?"],
    );
    check(
        "[principals.dev]\nisuer = [\"x\"]\n",
        &["principals.dev.isuer", "did you mean `issuer`?"],
    );
    check(
        "[principals.dev]\ntools.call = \"x\"\n",
        &["in [principals.dev], `tools.call`: invalid type"],
    );
    check("[principals.Dev]\n", &["`Dev` isn't a valid name of a principal's table"]);
    for key in [
        "serve.url = \"https://x.example\"",
        "serve.max_connections = 1",
        "tools.max_concurrent = 1",
        "audit.enabled = true",
        "plugins.x.path = \"x.wasm\"",
        "plugins.\"*\".hosts = []",
        "tools.authorization.enabled = true",
        "installing.require_signature = true",
        "principals.x.issuer = []",
        "tools.shell.secrets.X.env = \"X\"",
    ] {
        check(
            &format!("plugins.x.path = \"x.wasm\"\n[principals.dev]\n{key}\n"),
            &[
                "toolhold.toml:3: `principals.dev.",
                "a principal can't have this key; remove the key",
            ],
        );
    }
    check(
        "[principals.dev.mcp.servers.search]\n",
        &["`principals.dev.mcp.servers.search`: the configuration has no such table"],
    );
    check(
        "[principals.dev.tools.permissions]\nbash = [{ pattern = \"*\", action = \"allow\" }]\n",
        &["toolhold.toml:2: ", "the rules of a principal can't allow a call"],
    );
    check(
        "[principals.dev]\nsecrets = [\"X\"]\n",
        &["a secret named `X` isn't in the configuration"],
    );
    check("[principals.dev]\nmodels = [\"x\"]\n", &["but there is no [providers.x]"]);
    check(
        "[principals.dev]\n[providers.x]\nmodel = \"m\"\n[tools.adversarial_policy]\nenabled = true\nprovider = \"x\"\n",
        &["toolhold.toml:1: [principals.dev] `models` needs `x`"],
    );
    for issuer in ["", "issuer = [\"a\", \"b\"]\n"] {
        check(
            &format!("[principals.dev]\n{issuer}tools.file.allowed_paths = [\"/srv/{{sub}}\"]\n"),
            &["`{sub}` needs exactly one `issuer` in [principals.dev]"],
        );
    }
    check(
        "[principals.dev]\nissuer = [\"a\"]\ntools.file.allowed_paths = [\"/srv/{user}\"]\n",
        &["braces are only for `{sub}` and `{client}`"],
    );
    let table = |name: &str| {
        format!(
            "[principals.{name}]\nissuer = [\"{name}\"]\ntools.file.allowed_paths = [\"/srv/{{sub}}\"]\n"
        )
    };
    check(
        &(table("a") + &table("b")),
        &[
            "toolhold.toml:6: [principals.b] \"/srv/{sub}\" and [principals.a] \"/srv/{sub}\" may lead",
        ],
    );
}

#[test]
fn ungranted_directory_of_a_table_is_a_problem() {
    let scene = Scene::new();
    let srv = scene.srv(&["work", "shared"]);
    let problems = |text: &str| {
        let loaded = scene.load(&text.replace("SRV", &srv));
        loaded.principal_problems(&scene.folders, &scene.work)
    };
    assert_eq!(problems(DEVELOPERS), []);
    let narrow = DEVELOPERS.replace("allowed_paths = [\"SRV\"]", "allowed_paths = [\"SRV/work\"]");
    let found = problems(&narrow);
    let [problem] = found.as_slice() else { panic!("{found:?}") };
    let expected =
        format!("[principals.developers] grants {srv}/shared, but `allowed_paths` doesn't");
    assert!(problem.message.starts_with(&expected), "{problem}");
    assert!(problem.message.contains("toolhold.toml, line 3"), "{problem}");
    scene.assert_denied(
        &narrow,
        who("anna", &["dev"]),
        "but `allowed_paths` doesn't ([tools.file] in",
    );
    // A table can't write where the operator only reads.
    let read = DEVELOPERS.replace("[\"SRV\"]", "[{ path = \"SRV\", access = \"read\" }]");
    assert_eq!(problems(&read).len(), 1);
}
