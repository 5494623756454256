//! What processes may see and use.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use toolhold_system::confine::TreeAccess;

use super::super::presets::{CREDENTIALS, PRESETS, ROOTS, with_all};
use super::*;

impl Scene {
    /// The grants of the shell with this file and these variables.
    fn shell(&self, text: &str, variables: &[(&str, &str)]) -> ProcessGrants {
        self.write(text);
        let loaded = load(&self.folders, &inputs(variables, &[]))
            .unwrap_or_else(|problems| panic!("{problems}"));
        loaded.processes_of_shell(&self.folders, &self.work).expect("all directories exist")
    }

    fn home(&self) -> PathBuf {
        self.folders.home.as_ref().expect("there is a home").canonicalize().expect("it exists")
    }
}

fn value<'g>(grants: &'g ProcessGrants, name: &str) -> Option<&'g str> {
    grants.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

#[test]
fn shell_has_the_working_directory_and_git_writes_there() {
    let scene = Scene::new();
    let decide = |grants: &ProcessGrants, name: &str| {
        let files = grants.files.clone();
        let rules = FileRules::new(files.grants, Vec::new()).with_globs(
            files.deny_read,
            files.allow_read,
            files.deny_write,
        );
        rules.decide(&scene.work.join(name), Kind::Other, Access::Write).is_ok()
    };
    let grants = scene.shell("[tools.file]\ndeny_read = [\"**/.env\"]\n", &[]);
    assert!(grants.shell && grants.network == NetworkGrant::Ask);
    assert_eq!(
        (decide(&grants, "x"), decide(&grants, ".git/index"), decide(&grants, ".env")),
        (true, true, false)
    );
    let written = scene.shell("[tools.file]\ndeny_write = [\".git/**\"]\n", &[]);
    assert!(!decide(&written, ".git/index"), "the operator's own glob counts");
    // The shell's directories don't depend on those of the file tools.
    let other = scene.shell("[tools.file]\nenabled = false\n[tools.shell]\nallowed_paths = [{ path = \"src\", access = \"read\" }]\n", &[]);
    assert_eq!(other.files.grants.len(), 1);
    assert!(!decide(&other, "src/x") && other.files.grants[0].path.ends_with("src"));
    let off = scene.shell("[tools.shell]\nenabled = false\n", &[]);
    assert!(off.files.grants.is_empty() && !off.shell);
}

#[test]
fn plugin_starts_only_granted_programs() {
    let scene = Scene::new();
    let text = "tools.shell.limits.processes = 9\ntools.shell.sandbox = \"best-effort\"\n[plugins.x]\nprograms = [\"git status **\"]\n\
                [plugins.y]\nallowed_paths = [\".\"]\nnetwork = true\nenv = [\"A\"]\n[plugins.z]\nshell = true\nnetwork = true\nenv = [\"A\"]\n";
    scene.write(text);
    let loaded = load(&scene.folders, &inputs(&[("A", "1")], &[])).expect("it is valid");
    let grants_of = |name: &str| {
        loaded
            .processes_of_plugin(name, &scene.folders, &scene.work)
            .expect("all directories exist")
    };
    let x = grants_of("x").expect("it starts git");
    assert!(
        x.programs.allow("git", &["status".to_owned()])
            && !x.programs.allow("git", &["push".to_owned()])
    );
    assert!(
        !x.shell
            && x.network == NetworkGrant::Deny
            && x.files.grants.is_empty()
            && value(&x, "A").is_none()
    );
    assert_eq!((x.limits.processes, x.sandbox), (9, toolhold_system::confine::Sandbox::BestEffort));
    let place = x.programs.place("git").expect("it has a place").text.clone();
    assert_eq!(place, format!("[plugins.x] in {}, line 4", scene.folders.config_file().display()));
    assert!(grants_of("y").is_none() && grants_of("unknown").is_none());
    let z = grants_of("z").expect("it has a shell");
    assert!(z.shell && z.programs.is_empty() && z.network == NetworkGrant::Allow);
    assert_eq!(value(&z, "A"), Some("1"));
}

#[test]
fn environment_starts_empty() {
    let scene = Scene::new();
    let mut inputs = inputs(
        &[
            ("PATH", "/p"),
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "C"),
            ("TERM", "xterm"),
            ("SHELL", "/bin/fish"),
            ("HOME", "/elsewhere"),
            ("LD_PRELOAD", "/evil.so"),
            ("SSH_AUTH_SOCK", "/agent"),
            ("MY_NAME", "named"),
            ("DATABASE_PASSWORD", "correct horse battery"),
            ("API_TOKEN", "tok-3f9a8c7e6d5b4a39"),
            ("PIP_INDEX_URL", "https://user:hunter2hunter2@pypi.example/simple"),
            ("LC_SECRET_KEY", "q8Zk3mV5xT1wB7nR"),
        ],
        &[],
    );
    inputs.variables.push((OsString::from("TZ"), OsString::from_vec(vec![0xff])));
    let grants = |text: &str| {
        scene.write(text);
        let loaded = load(&scene.folders, &inputs).unwrap_or_else(|problems| panic!("{problems}"));
        loaded.processes_of_shell(&scene.folders, &scene.work).expect("all directories exist")
    };
    let names = |grants: &ProcessGrants| {
        grants.environment.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    let plain = grants("[tools.shell]\npresets = [\"pip\"]\n");
    assert_eq!(
        names(&plain),
        ["HOME", "LANG", "LC_ALL", "PATH", "SHELL", "TERM", "ASAN_OPTIONS"],
        "{:?}",
        plain.environment
    );
    assert_eq!(
        (value(&plain, "PATH"), value(&plain, "TERM"), value(&plain, "SHELL")),
        (Some("/p"), Some("dumb"), Some("/bin/bash"))
    );
    assert_eq!(value(&plain, "HOME"), scene.home().to_str());
    let named =
        grants("[tools.shell]\nenv = [\"MY_NAME\", \"API_TOKEN\", \"NOT_SET\", \"TERM\"]\n");
    assert_eq!(
        names(&named),
        ["API_TOKEN", "HOME", "LANG", "LC_ALL", "MY_NAME", "PATH", "SHELL", "TERM", "ASAN_OPTIONS"]
    );
    assert_eq!(value(&named, "TERM"), Some("xterm"));
    // A program that embeds Toolhold may have no environment.
    let loaded = Config::default()
        .processes_of_shell(&scene.folders, &scene.work)
        .expect("all directories exist");
    assert!(
        value(&loaded, "PATH").is_some_and(|path| path.contains("/usr/bin")),
        "{:?}",
        loaded.environment
    );
}

#[test]
fn invalid_name_is_refused_with_its_line_and_without_its_value() {
    let scene = Scene::new();
    scene.assert_refused(
        "[tools.shell]\nenv = [\"TOKEN=hunter2\"]",
        &["toolhold.toml:2: `tools.shell.env`: `TOKEN` isn't a valid variable name: `env` takes names"],
    );
    scene.assert_refused(
        "[plugins.x]\nenv = [\"1A\"]",
        &["toolhold.toml:2: `plugins.x.env`: `1A` isn't a valid variable name"],
    );
    scene.assert_refused(
        "[tools.shell]\npresets = [\n\"cargo\",\n\"carg\"]",
        &["toolhold.toml:4: `tools.shell.presets`: the preset `carg` doesn't exist; the presets are: git"],
    );
    scene.assert_refused(
        "[plugins.x]\nprograms = [\"git *\", \"g* x\"]",
        &["toolhold.toml:2: `plugins.x.programs`: `g* x`: wildcards and quotes aren't allowed in the program"],
    );
    scene.assert_refused(
        "[tools.shell]\nnetwork = \"maybe\"",
        &["toolhold.toml:2: `tools.shell.network`: unknown variant `maybe`"],
    );
    scene.assert_refused(
        "[tools.shell.limits]\nprocesses = 1",
        &["toolhold.toml:2: ", "a whole number from 4 to 65536"],
    );
}

#[test]
fn preset_grants_existing_files_makes_caches_and_hides_credentials() {
    let scene = Scene::new();
    let home = scene.home();
    let cargo = home.join("elsewhere/cargo");
    for folder in ["elsewhere/cargo/bin", ".rustup", ".config/git"] {
        fs::create_dir_all(home.join(folder)).expect("folders are made");
    }
    for file in [
        "elsewhere/cargo/credentials.toml",
        ".config/git/credentials",
        ".config/git/config",
        ".gitconfig",
        ".npmrc",
        ".rustup/x",
    ] {
        fs::write(home.join(file), "x").expect("a file is written");
    }
    let text = "[tools.shell]\npresets = [\"cargo\", \"git\", \"npm\"]\n";
    let grants =
        scene.shell(text, &[("CARGO_HOME", cargo.to_str().expect("UTF-8")), ("GOFLAGS", "-x")]);
    let access_of = |path: PathBuf| {
        grants.extra_trees.iter().find(|tree| Path::new(&tree.path) == path).map(|tree| tree.access)
    };
    // A missing cache was made.
    assert_eq!(access_of(cargo.join("registry")), Some(TreeAccess::Write));
    assert!(cargo.join("registry").is_dir() && home.join(".npm/_cacache").is_dir());
    assert_eq!(access_of(home.join(".npm/_cacache")), Some(TreeAccess::Write));
    assert_eq!(
        (access_of(cargo.join("bin")), access_of(home.join(".rustup"))),
        (Some(TreeAccess::Read), Some(TreeAccess::Read))
    );
    assert_eq!(
        (access_of(home.join(".gitconfig")), access_of(home.join(".config/git"))),
        (Some(TreeAccess::Read), Some(TreeAccess::Read))
    );
    // Only caches are made.
    assert!(
        access_of(home.join(".nvm")).is_none()
            && !home.join(".nvm").exists()
            && access_of(home.clone()).is_none()
    );
    assert!(!home.join("go").exists(), "its preset isn't used");
    let hidden = |path: PathBuf| grants.hidden.contains(&path);
    assert!(
        hidden(cargo.join("credentials.toml"))
            && hidden(home.join(".config/git/credentials"))
            && hidden(home.join(".npmrc"))
    );
    assert_eq!((value(&grants, "CARGO_HOME"), value(&grants, "GOFLAGS")), (cargo.to_str(), None));
    // Credentials in a directory that the operator grants explicitly are granted.
    let granted = scene.shell(
        "[tools.shell]\npresets = [\"git\"]\nallowed_paths = [\".\", \"~/.config/git\"]\n",
        &[],
    );
    assert!(
        !granted.hidden.contains(&home.join(".config/git/credentials"))
            && granted.hidden.contains(&home.join(".npmrc"))
    );
}

#[test]
fn odd_variable_does_not_grant_the_home() {
    let scene = Scene::new();
    let home = scene.home();
    for odd in [home.to_str().expect("UTF-8"), "/", "relative", ""] {
        let grants =
            scene.shell("[tools.shell]\npresets = [\"go\", \"ccache\"]\n", &[("CCACHE_DIR", odd)]);
        assert!(
            grants.extra_trees.iter().all(|tree| !home.starts_with(&tree.path)),
            "{odd}: {:?}",
            grants.extra_trees
        );
    }
}

/// A tool exchanges a link right after it was decided where that leads.
#[test]
fn granted_place_of_preset_is_the_one_that_was_checked() {
    let scene = Scene::new();
    let home = scene.home();
    for folder in ["inside/registry", "inside/git", "outside/registry", "outside/git"] {
        fs::create_dir_all(home.join(folder)).expect("folders are made");
    }
    let exchange = |target: &str| {
        symlink(home.join(target), home.join("next"))
            .and_then(|()| fs::rename(home.join("next"), home.join("cargo")))
            .expect("the link is exchanged");
    };
    let cargo = home.join("cargo").display().to_string();
    let variables = std::collections::BTreeMap::from([("CARGO_HOME".to_owned(), cargo)]);
    let roots = super::super::presets::Roots { home: &home, variables: &variables };
    let preset = PRESETS.iter().find(|preset| preset.name == "cargo").expect("there is one");
    exchange("inside");
    let trees = roots.trees(preset, |path| {
        exchange("inside");
        let real = path.canonicalize().ok();
        exchange("outside");
        real
    });
    let paths: Vec<&Path> = trees.iter().map(|tree| Path::new(&tree.path)).collect();
    assert_eq!(paths, [home.join("inside/registry"), home.join("inside/git")]);
}

/// What is left out for its link is named, with the line of the preset.
#[test]
fn linked_places_are_those_of_commands_and_servers() {
    let scene = Scene::new();
    let home = scene.home();
    fs::create_dir_all(home.join("elsewhere/registry")).expect("folders are made");
    symlink("elsewhere", home.join(".cargo")).expect("a link is made");
    let loaded = scene.load(
        "[tools.shell]\npresets = [\"go\", \"cargo\"]\n[mcp.servers.x]\ncommand = \"true\"\npresets = [\"cargo\"]\n",
    );
    let lines: Vec<String> =
        loaded.linked_places(&scene.folders).iter().map(ToString::to_string).collect();
    let of = |line: &str| lines.iter().filter(|problem| problem.contains(line)).count();
    assert!(lines.iter().all(|line| line.contains("through the link")), "{lines:?}");
    assert_eq!((of(":2:"), of(":5:")), (1, 1), "{lines:?}");
}

#[test]
fn every_preset_is_valid() {
    let scene = Scene::new();
    let (home, variables) = (scene.home(), std::collections::BTreeMap::new());
    let roots = super::super::presets::Roots { home: &home, variables: &variables };
    let all: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    let places = PRESETS.iter().flat_map(|preset| preset.places()).map(|(place, _)| place);
    for place in places.chain(CREDENTIALS).chain(ROOTS.iter().map(|(_, place)| *place)) {
        let found = roots.find(place).unwrap_or_else(|| panic!("{place} has no path"));
        assert!(
            found.starts_with(&home)
                && found != home
                && !place.ends_with('/')
                && !place.contains(".."),
            "{place}: {found:?}"
        );
    }
    for preset in &PRESETS {
        assert!(preset.with.iter().all(|name| all.contains(name)), "{}", preset.name);
        assert!(with_all(preset).len() <= all.len());
        // No place is inside a folder of credentials: everything that a program puts there would be
        // granted.
        for (place, _) in preset.places() {
            let tree = roots.find(place).expect("it has a path");
            let folder = |credential: &&'static str| {
                roots.find(credential).is_some_and(|credential| tree.starts_with(&credential))
            };
            assert!(!CREDENTIALS.iter().any(folder), "{place}");
        }
        // No preset passes on a variable that can name a program to run.
        assert!(!preset.variables().any(|name| {
            ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONSTARTUP", "BASH_ENV"].contains(&name)
        }));
    }
}
