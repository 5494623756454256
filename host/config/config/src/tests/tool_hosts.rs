//! Hosts that presets find in the user's own settings of tools.

use rustix::fs::{CWD, FileType, Mode, mknodat};
use toolhold_policy::egress::Target;

use super::*;

const PRESETS: &str = "[tools.shell]\npresets = [\"npm\", \"pip\", \"cargo\", \"go\", \"git\"]\n";

impl Scene {
    fn write_home(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let home = self.folders.home.as_ref().expect("there is a home");
        let path = home.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("folders are made");
        fs::write(&path, text).expect("the file is written");
        path
    }

    /// Loads a configuration in the working directory, below a ceiling if there is one.
    fn load_tools(&self, text: &str, variables: &[(&str, &str)]) -> Config {
        self.write(text);
        let mut inputs = inputs(variables, &[]);
        inputs.working_directory = Some(self.work.clone());
        load(&self.folders, &inputs).unwrap_or_else(|problems| panic!("{text}: {problems}"))
    }

    fn load_below(&self, ceiling: &str) -> Config {
        let path = self.work.parent().expect("it has a parent").join("ceiling.toml");
        fs::write(&path, ceiling).expect("the file is written");
        self.load_tools(PRESETS, &[("TOOLHOLD_CEILING", path.to_str().expect("its name is UTF-8"))])
    }
}

#[test]
fn commands_get_the_registries_of_hidden_files_without_credentials() {
    let scene = Scene::new();
    let npmrc = "registry=https://npm.corp.example/api/\n//npm.corp.example/:_authToken=hunter2\n";
    scene.write_home(".npmrc", npmrc);
    scene.write_home(
        ".pip/pip.conf",
        "[global]\nindex-url = https://pip.corp.example/simple\nextra-index-url = https://me:hunter2@b.example\n",
    );
    let environment = |text: &str, variables: &[(&str, &str)]| {
        let loaded = scene.load_tools(text, variables);
        let grants = loaded.processes_of_shell(&scene.folders, &scene.work).expect("it is valid");
        grants.environment.into_iter().collect::<std::collections::BTreeMap<_, _>>()
    };
    let got = environment(PRESETS, &[]);
    assert_eq!(got["npm_config_registry"], "https://npm.corp.example/api/");
    assert_eq!(got["PIP_INDEX_URL"], "https://pip.corp.example/simple");
    assert!(!format!("{got:?}").contains("hunter2"), "{got:?}");
    let set = environment(PRESETS, &[("npm_config_registry", "https://own.example/")]);
    assert_eq!(set["npm_config_registry"], "https://own.example/");
    let without = environment("[tools.shell]\npresets = [\"cargo\"]\n", &[]);
    assert!(!without.contains_key("npm_config_registry") && !without.contains_key("PIP_INDEX_URL"));
    let writable = format!("{PRESETS}[tools.file]\nallowed_paths = [\"~\"]\n");
    assert!(!environment(&writable, &[]).contains_key("npm_config_registry"));
}

/// The hosts of commands, as they are shown.
fn hosts(loaded: &Config) -> Vec<String> {
    loaded.values.tools.shell.hosts.iter().map(ToString::to_string).collect()
}

fn reaches(scene: &Scene, loaded: &Config, url: &str) -> bool {
    let settings =
        loaded.egress_of_shell(&scene.folders, &scene.work).expect("the settings are valid");
    let target = Target::parse(url).expect("a target");
    settings.is_some_and(|settings| settings.reach.connection(&target).is_ok())
}

#[test]
fn presets_grant_the_hosts_of_the_users_settings_and_show_no_credential() {
    let scene = Scene::new();
    let npmrc = scene.write_home(
        ".npmrc",
        "registry=https://me:hunter2@npm.corp.example/api/hunter2\n//npm.corp.example/:_authToken=hunter2\n",
    );
    scene.write_home(".config/pip/pip.conf", "[global]\nindex-url = http://10.1.2.3:8081/simple\n");
    scene.write_home(
        ".cargo/config.toml",
        "[source.crates-io]\nreplace-with = 'm'\n[source.m]\nregistry = 'sparse+https://crates.corp.example/'\n",
    );
    scene.write_home(".config/go/env", "GOPROXY=https://go.corp.example,direct\nGOSUMDB=off\n");
    scene.write_home(
        ".gitconfig",
        "[url \"git@git.corp.example:\"]\n\tinsteadOf = https://other.example/\n",
    );
    let none = scene.load_tools("[tools.shell]\npresets = [\"node\", \"rustup\"]\n", &[]);
    assert!(hosts(&none).is_empty(), "only the presets of the tools grant hosts");

    let loaded = scene.load_tools(
        &format!("{PRESETS}hosts = [\"own.example\"]\n"),
        &[("PIP_EXTRA_INDEX_URL", "https://me:hunter2@extra.corp.example/x")],
    );
    let expected = [
        "own.example",
        "https://npm.corp.example",
        "https://extra.corp.example",
        "http://10.1.2.3:8081",
        "https://crates.corp.example",
        "https://go.corp.example",
        "git.corp.example:22",
    ];
    assert_eq!(hosts(&loaded), expected);
    assert_eq!(loaded.source("tools.shell.hosts.1"), Source::Path(npmrc));
    let variable = Source::Variable("PIP_EXTRA_INDEX_URL".to_owned());
    assert_eq!(loaded.source("tools.shell.hosts.2"), variable);
    assert!(!format!("{:?}", loaded.entries()).contains("hunter2"));
    for (url, is_reached) in [
        ("https://npm.corp.example/", true),
        ("http://10.1.2.3:8081/", true),
        ("http://npm.corp.example/", false),
        ("https://npm.corp.example:8443/", false),
        ("https://corp.example/", false),
        ("http://10.1.2.3/", false),
        ("https://other.example/", false),
    ] {
        assert_eq!(reaches(&scene, &loaded, url), is_reached, "{url}");
    }
    // The presets open nothing if the network is denied.
    let denied = scene.load_tools(&format!("{PRESETS}network = \"deny\"\n"), &[]);
    assert!(!reaches(&scene, &denied, "https://npm.corp.example/"));
}

#[test]
fn files_of_a_project_and_files_that_tools_may_write_grant_nothing() {
    let scene = Scene::new();
    let evil = "registry=https://evil.example/\n";
    fs::write(scene.work.join(".npmrc"), evil).expect("it is written");
    fs::create_dir_all(scene.work.join(".cargo")).expect("a folder is made");
    let cargo = "[registries.x]\nindex = 'https://evil.example'\n";
    fs::write(scene.work.join(".cargo/config.toml"), cargo).expect("it is written");
    fs::create_dir_all(scene.work.join(".git")).expect("a folder is made");
    let git = "[remote \"origin\"]\nurl = https://evil.example/x\n";
    fs::write(scene.work.join(".git/config"), git).expect("it is written");
    assert!(hosts(&scene.load_tools(PRESETS, &[])).is_empty());
    // A variable that leads into the project changes nothing.
    let cargo_home = scene.work.join(".cargo").display().to_string();
    assert!(hosts(&scene.load_tools(PRESETS, &[("CARGO_HOME", &cargo_home)])).is_empty());

    let npmrc = scene.write_home(".npmrc", "registry=https://npm.corp.example/\n");
    assert_eq!(hosts(&scene.load_tools(PRESETS, &[])).len(), 1);
    for writable in [
        "[tools.file]\nallowed_paths = [\"~\"]\n",
        "[tools.file]\nallowed_paths = [\"/\"]\n",
        "[mcp.servers.x]\ncommand = \"true\"\nallowed_paths = [\"~/.\"]\n",
    ] {
        let loaded = scene.load_tools(&format!("{PRESETS}{writable}"), &[]);
        assert!(hosts(&loaded).is_empty(), "{writable}");
    }
    let read = "[tools.file]\nallowed_paths = [\".\", { path = \"~\", access = \"read\" }]\n";
    assert_eq!(hosts(&scene.load_tools(&format!("{PRESETS}{read}"), &[])).len(), 1);
    // A link in a folder of the user could be exchanged.
    fs::rename(&npmrc, npmrc.with_file_name("real")).expect("it is moved");
    symlink("real", &npmrc).expect("a link is made");
    let loaded = scene.load_tools(PRESETS, &[]);
    assert!(hosts(&loaded).is_empty());
    let problems = loaded.unread_settings(&scene.folders, &scene.work);
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.message.contains("a tool can change the link"), "{}", problem.message);
}

#[test]
fn hostile_settings_grant_nothing_and_are_read_at_once() {
    let scene = Scene::new();
    let npmrc = scene.write_home(".npmrc", "");
    let line = "registry=https://npm.corp.example/\n";
    let huge = format!("{line}{}", "#".repeat(1 << 20));
    let binary = [line.as_bytes(), &[0xff, 0xfe, 0]].concat();
    for bytes in [huge.as_bytes(), &binary] {
        fs::write(&npmrc, bytes).expect("it is written");
        assert!(hosts(&scene.load_tools(PRESETS, &[])).is_empty());
    }
    fs::remove_file(&npmrc).expect("the file is removed");
    for target in ["/dev/zero", "/proc/self/environ", ".npmrc"] {
        symlink(target, &npmrc).expect("a link is made");
        assert!(hosts(&scene.load_tools(PRESETS, &[])).is_empty(), "{target}");
        fs::remove_file(&npmrc).expect("the link is removed");
    }
    mknodat(CWD, &npmrc, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    assert!(hosts(&scene.load_tools(PRESETS, &[])).is_empty());
    fs::remove_file(&npmrc).expect("the FIFO is removed");
    fs::create_dir(&npmrc).expect("a folder is made");
    assert!(hosts(&scene.load_tools(PRESETS, &[])).is_empty());
    fs::remove_dir(&npmrc).expect("the folder is removed");

    // Patterns and the word for jobs aren't hosts of a tool.
    let odd = "registry=*\nregistry=job\nregistry=https://*/\nregistry=https://*.example/\n\
               registry=\nregistry=https://\u{202e}a.example/\u{7}\nregistry=https://a.example\"]\n";
    fs::write(&npmrc, odd).expect("it is written");
    let loaded = scene.load_tools(PRESETS, &[("GOSUMDB", "job"), ("GOPROXY", "*,|,")]);
    assert_eq!(hosts(&loaded), ["https://job"]);
    let many: String =
        (0..5000).map(|index| format!("@s:registry=https://h{index}.example\n")).collect();
    fs::write(&npmrc, many).expect("it is written");
    assert_eq!(hosts(&scene.load_tools(PRESETS, &[])).len(), 64);
}

#[test]
fn ceiling_limits_the_hosts_of_presets() {
    let scene = Scene::new();
    scene.write_home(
        ".npmrc",
        "registry=https://npm.corp.example/\n@a:registry=https://a.example\n",
    );
    assert_eq!(hosts(&scene.load_below("")).len(), 2);
    for ceiling in [
        "[tools.shell]\nhosts = []\n",
        "[tools.shell]\npresets = [\"git\"]\n",
        "[tools.shell]\nhosts = [\"other.example\", \"job\"]\n",
    ] {
        let loaded = scene.load_below(ceiling);
        assert!(hosts(&loaded).is_empty(), "{ceiling}");
        assert!(!reaches(&scene, &loaded, "https://npm.corp.example/"), "{ceiling}");
    }
    let loaded = scene.load_below("[tools.shell]\nhosts = [\"*.corp.example\"]\n");
    assert_eq!(hosts(&loaded), ["https://npm.corp.example"]);
    assert!(!reaches(&scene, &loaded, "https://a.example/"));
    let denied = format!("{PRESETS}[tools.web]\ndenied_domains = [\"npm.corp.example\"]\n");
    let loaded = scene.load_tools(&denied, &[]);
    assert!(!reaches(&scene, &loaded, "https://npm.corp.example/"));
    assert!(reaches(&scene, &loaded, "https://a.example/"));
}

#[test]
fn word_for_jobs_is_covered_by_itself_alone() {
    let scene = Scene::new();
    scene.assert_refused(
        "[tools.web]\nallowed_domains = [{ host = \"job\", methods = [\"GET\"] }]\n",
        &["the entry `job` takes no `methods`"],
    );
    let user = "[tools.web]\nallowed_domains = [\"job\"]\n";
    for (ceiling, is_kept) in [("\"*\"", false), ("\"job\"", true), ("\"job:80\"", false)] {
        scene.write(user);
        let path = scene.work.parent().expect("it has a parent").join("ceiling.toml");
        fs::write(&path, format!("[tools.web]\nallowed_domains = [{ceiling}]\n"))
            .expect("the file is written");
        let variables = [("TOOLHOLD_CEILING", path.to_str().expect("its name is UTF-8"))];
        let loaded = load(&scene.folders, &inputs(&variables, &[])).expect("it is valid");
        let settings = loaded.egress_of_web(&scene.folders, &scene.work).expect("it is valid");
        assert_eq!(settings.reach.job_servers, is_kept, "{ceiling}");
    }
}
