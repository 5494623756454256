//! Tests of the whole configuration: defaults, sources in their order, and problems with their
//! lines.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use toolhold_contract::Access;
use toolhold_policy::files::{FileRules, Kind};

use super::*;

mod attempts;
mod bounds;
mod ceiling;
mod company;
mod governing;
mod migrating;
mod narrowing;
mod principals;
mod principals_property;
mod processes;
mod program_hosts;
mod project_file;
mod renamed;
mod tool_hosts;
mod trusting;
mod web;

/// The folders of one test: the user's folders, a home and a working directory.
struct Scene {
    _root: tempfile::TempDir,
    folders: Folders,
    work: PathBuf,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().canonicalize().expect("it exists");
        let folders =
            Folders { home: Some(path.join("own-home")), ..Folders::inside(&path.join("own")) };
        for folder in ["own/config", "own-home/notes", "work/src"] {
            fs::create_dir_all(path.join(folder)).expect("folders are made");
        }
        Self { _root: root, folders, work: path.join("work") }
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.folders.config_file();
        fs::write(&path, text).expect("the file is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode is set");
        path
    }

    fn load(&self, text: &str) -> Config {
        self.write(text);
        load(&self.folders, &Inputs::default()).expect("the configuration is valid")
    }

    /// The configuration with a file in the working directory beside the user's.
    fn load_with(&self, user: &str, project: &str) -> Config {
        self.write(user);
        fs::write(self.work.join("toolhold.toml"), project).expect("the file is written");
        self.load_there(&[]).unwrap_or_else(|problems| panic!("{project}: {problems}"))
    }

    fn load_there(&self, settings: &[&str]) -> Result<Config, Problems> {
        load(
            &self.folders,
            &Inputs { working_directory: Some(self.work.clone()), ..inputs(&[], settings) },
        )
    }

    #[track_caller]
    fn assert_problems(&self, text: &str, expected: &[&str]) {
        self.write(text);
        let problems =
            load(&self.folders, &Inputs::default()).expect_err("the configuration is invalid");
        let shown = problems.to_string().replace(&self.folders.config.display().to_string(), "");
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{text}");
    }
}

impl Scene {
    /// As [`Self::assert_problems`], but compares only parts of the problems.
    #[track_caller]
    fn assert_refused(&self, text: &str, expected: &[&str]) {
        self.write(text);
        let problems = load(&self.folders, &Inputs::default())
            .expect_err("the configuration is invalid")
            .to_string();
        assert!(expected.iter().all(|part| problems.contains(part)), "{text}: {problems}");
    }
}

fn inputs(variables: &[(&str, &str)], settings: &[&str]) -> Inputs {
    Inputs {
        variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
        ..Inputs::default()
    }
}

fn allowed(path: &str, access: PathAccess) -> AllowedPath {
    AllowedPath { path: path.to_owned(), access }
}

#[test]
fn defaults_hold_without_any_source() {
    let scene = Scene::new();
    let loaded = load(&scene.folders, &Inputs::default()).expect("a missing file isn't a mistake");
    assert_eq!(loaded.values, ConfigValues::default());
    assert_eq!(loaded.file, None);
    assert_eq!(loaded.values.tools.call_time().as_secs(), 30);
    let policy =
        loaded.built_in_files(&scene.folders, &scene.work).expect("the working directory exists");
    assert_eq!(policy.grants.len(), 1);
    assert_eq!(
        (policy.grants[0].path.as_path(), policy.grants[0].access),
        (scene.work.as_path(), Access::Write)
    );
}

#[test]
fn default_globs_are_valid() {
    let FileTools { deny_read, allow_read, deny_write, .. } = FileTools::default();
    for glob in deny_read.iter().chain(&allow_read).chain(&deny_write) {
        assert_eq!(PathGlob::new(glob.as_str()).as_ref(), Ok(glob));
    }
    assert!(!deny_write.is_empty());
}

#[test]
fn later_sources_win_key_by_key() {
    let scene = Scene::new();
    let file = scene.write("[tools]\ncall = 5\nmax_call = 50\nmax_concurrent = 2\n[tools.file]\ndeny_read = [\"a\", \"b\"]\n");
    let variables = [
        ("TOOLHOLD_TOOLS_MAX_CALL", "60"),
        ("TOOLHOLD_TOOLS_MAX_CONCURRENT", "3"),
        ("TOOLHOLD_LOG", "debug"),
        ("PATH", "/bin"),
    ];
    let inputs = inputs(&variables, &["tools.max_concurrent=4", "tools.file.deny_read=c"]);
    let loaded = load(&scene.folders, &inputs).expect("the configuration is valid");
    let tools = &loaded.values.tools;
    assert_eq!((tools.call.get(), tools.max_call.get(), tools.max_concurrent.get()), (5, 60, 4));
    assert_eq!(tools.file.deny_read, [PathGlob::new("c").expect("the glob is valid")]);
    assert_eq!(loaded.source("tools.call"), Source::File { path: file, line: 2 });
    assert_eq!(loaded.source("tools.max_call"), Source::Variable("TOOLHOLD_TOOLS_MAX_CALL".into()));
    assert_eq!(
        loaded.source("tools.max_concurrent"),
        Source::Flag("--set tools.max_concurrent=4".into())
    );
    assert_eq!(
        loaded.source("tools.file.deny_read.1"),
        Source::Flag("--set tools.file.deny_read=c".into())
    );
    assert_eq!(loaded.source("tools.file.deny_write"), Source::Default);
}

#[test]
fn every_problem_of_a_file_has_its_line() {
    let scene = Scene::new();
    scene.assert_problems(
        "[tools]\ncall = \"soon\"\n\n[tools.file]\nallowed_path = [\".\"]\ndeny_read = [\n  \"ok\",\n  \"a[\",\n]\n[tolls]\nx = 1\ny = 2\n",
        &[
            "/toolhold.toml:2: `tools.call`: invalid type: string \"soon\", expected a whole number from 1 to 86400",
            "  2 | call = \"soon\"",
            "/toolhold.toml:5: unknown key `tools.file.allowed_path`; did you mean `allowed_paths`?",
            "  5 | allowed_path = [\".\"]",
            "/toolhold.toml:8: `tools.file.deny_read`: `a[` isn't a valid glob: unclosed character class; missing ']'",
            "  8 |   \"a[\",",
            "/toolhold.toml:10: unknown key `tolls`; did you mean `tools`?",
            "  10 | [tolls]",
        ],
    );
    // Where the database is chosen has a line; what is missing has none.
    scene.assert_problems(
        "[tools]\ncall = 7\n\n[index]\nembeddings = \"\"\nvector_backend = \"qdrant\"\n",
        &[
            "/toolhold.toml:6: [index.qdrant] has no `url`, and `vector_backend` of [index] is \"qdrant\"",
        ],
    );
    scene.assert_problems(
        "[tools]\ncall =\n",
        &[
            "/toolhold.toml:2: is not TOML: string values must be quoted, expected literal string",
            "  2 | call =",
        ],
    );
}

#[test]
fn problems_of_a_broken_file_are_limited() {
    let scene = Scene::new();
    scene.write(&"= = ".repeat(200_000));
    let problems = load(&scene.folders, &Inputs::default()).expect_err("it isn't TOML").to_string();
    assert!(problems.len() < 100_000, "{} bytes", problems.len());
    scene.write(&(0..4000).map(|index| format!("k{index} = 1\n")).collect::<String>());
    let problems = load(&scene.folders, &Inputs::default()).expect_err("the keys are unknown");
    assert_eq!(problems.0.len(), 100);
}

#[test]
fn values_that_would_protect_nothing_are_problems() {
    let scene = Scene::new();
    let problem = |text: &str, expected: &str| {
        scene.write(text);
        let problems = load(&scene.folders, &Inputs::default())
            .expect_err("the configuration is invalid")
            .to_string();
        assert!(problems.contains(expected), "{text}: {problems}");
    };
    problem("tools.call = 0", "expected a whole number from 1 to 86400");
    problem("tools.call = -1", "invalid value: integer `-1`");
    problem("tools.call = 1e3", "invalid type: floating point");
    problem("tools = 3", "`tools`: invalid type: integer `3`");
    problem("tools.limits.memory_mib = 99999999999999999999", "`tools.limits.memory_mib`");
    problem("tools.file.deny_read = [\"\"]", "must not be empty");
    problem("tools.file.deny_read = [\"!x\"]", "a denial always wins");
    problem("tools.file.deny_read = [\"../x\"]", "never matches");
    problem("tools.file.deny_read = \"x\"", "expected a sequence");
    problem("tools.file.allowed_paths = [\"~root/x\"]", "another user");
    problem("tools.file.allowed_paths = [3]", "expected a path, or { path");
    problem("tools.file.allowed_paths = [{ access = \"read\" }]", "missing field `path`");
    problem(
        "tools.file.allowed_paths = [{ path = \".\", access = \"all\" }]",
        "unknown variant `all`, expected `read` or `read-write`",
    );
    problem(
        "tools.file.allowed_paths = [{ path = \".\", acess = \"read\" }]",
        "did you mean `access`?",
    );
    problem(
        "plugin_folder.reload = \"always\"",
        "unknown variant `always`, expected `approve` or `trust`",
    );
    problem("[plugins.X]\npath = \"a.wasm\"", "isn't a valid plugin name");
    problem("plugins.a__b.path = \"a.wasm\"", "isn't a valid plugin name");
    problem(
        "[plugins.\"*\"]\nshell = false",
        "FILE toolhold config ceiling show` checks a ceiling",
    );
    problem("plugins.x = \"a.wasm\"", "`plugins.x`: invalid type");
    problem("\u{1b}[31m = 1", "is not TOML");
}

#[test]
fn untrusted_text_is_neutralised_in_problems() {
    let scene = Scene::new();
    scene.write("\"\\u001b[31mx\" = 1 # \u{202e}");
    let problems =
        load(&scene.folders, &Inputs::default()).expect_err("the key is unknown").to_string();
    assert!(!problems.contains(['\u{1b}', '\u{202e}']), "{problems:?}");
}

#[test]
fn file_that_others_can_write_is_refused() {
    let scene = Scene::new();
    let path = scene.write("[tools]\n");
    let odd = path.with_file_name("it's mine.toml");
    fs::copy(&path, &odd).expect("it is copied");
    for mode in [0o620, 0o602, 0o666] {
        for path in [&path, &odd] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode is set");
            let inputs = Inputs { file: Some(path.clone()), ..Inputs::default() };
            let problems = load(&scene.folders, &inputs).expect_err("others can write").to_string();
            let word = path.display().to_string().replace('\'', r"'\''");
            let word = if path == &odd { format!("'{word}'") } else { word };
            assert!(problems.contains(&format!("chmod go-w {word}")), "{problems}");
        }
    }
}

#[test]
fn file_in_a_folder_that_everybody_may_write_is_refused() {
    let scene = Scene::new();
    scene.write("tools.call = 5\n");
    let folder = &scene.folders.config;
    for (mode, is_trusted) in [(0o700, true), (0o1777, true), (0o777, false), (0o702, false)] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("its mode is set");
        match load(&scene.folders, &Inputs::default()) {
            Ok(_) => assert!(is_trusted, "{mode:o}"),
            Err(problems) => {
                let line = format!("chmod o-w {}", folder.display());
                assert!(!is_trusted && problems.to_string().contains(&line), "{problems}");
            }
        }
    }
}

#[test]
fn broken_link_does_not_count_as_missing_file() {
    let scene = Scene::new();
    let folder = scene.folders.config.clone();
    let refused = |expected: &str| {
        let problems =
            load(&scene.folders, &Inputs::default()).expect_err("the link is broken").to_string();
        assert!(problems.contains(expected), "{problems}");
        let rule = super::insert::AllowRule {
            tool: "write".to_owned(),
            pattern: "/w/a".to_owned(),
            is_glob: false,
        };
        super::insert::permission(&scene.folders, &rule).expect_err("the link is broken");
    };
    let path = scene.folders.config_file();
    symlink(scene.work.join("gone.toml"), &path).expect("a link is made");
    refused("toolhold.toml: can't be opened: it is a link that leads nowhere");
    assert!(path.is_symlink());
    fs::remove_file(&path).expect("the link is removed");
    fs::remove_dir(&folder).expect("the folder is removed");
    symlink(scene.work.join("gone"), &folder).expect("a link is made");
    refused("own/config is a link that leads nowhere");
    fs::remove_file(&folder).expect("the link is removed");
    fs::write(&folder, "").expect("a file is written");
    refused("Not a directory");
    fs::remove_file(&folder).expect("the file is removed");
    load(&scene.folders, &Inputs::default()).expect("a missing file isn't a mistake");
}

#[test]
fn file_that_is_too_large_or_not_regular_is_refused() {
    let scene = Scene::new();
    let problem = |expected: &str| {
        let problems =
            load(&scene.folders, &Inputs::default()).expect_err("the file is invalid").to_string();
        assert!(problems.contains(expected), "{problems}");
    };
    let path = scene.write(&" ".repeat(1024 * 1024 + 1));
    problem("larger than 1 MiB");
    scene.write(&(0..5000).map(|index| format!("k{index} = 1\n")).collect::<String>());
    problem("has 5000 values; the limit is 4096");
    scene.write(&format!("{} = 1", vec!["a"; 1000].join(".")));
    problem("recursion limit");
    fs::write(&path, [0xff]).expect("the file is written");
    problem("can't be read");
    fs::remove_file(&path).expect("the file is removed");
    fs::create_dir(&path).expect("a folder is made");
    problem("not a regular file");
    let missing = Inputs { file: Some(scene.work.join("none.toml")), ..Inputs::default() };
    let problems =
        load(&scene.folders, &missing).expect_err("a named file has to exist").to_string();
    assert!(problems.contains("the file doesn't exist"), "{problems}");
}

#[test]
fn variables_accept_toml_and_bare_texts() {
    let scene = Scene::new();
    scene.write("[plugins.my-tool]\npath = \"a.wasm\"\n");
    let check = |name: &str, value: &str, expected: AllowedPath| {
        let loaded =
            load(&scene.folders, &inputs(&[(name, value)], &[])).expect("the variable is valid");
        let tool = &loaded.values.plugins["my-tool"].allowed_paths;
        assert_eq!(
            if name.contains("MY") { tool } else { &loaded.values.tools.file.allowed_paths },
            &[expected],
            "{value}"
        );
    };
    let path = "TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS";
    check(path, "/a b", allowed("/a b", PathAccess::ReadWrite));
    check(path, "[\"/a\"]", allowed("/a", PathAccess::ReadWrite));
    check(path, "[{ path = \"/a\", access = \"read\" }]", allowed("/a", PathAccess::Read));
    check(path, "2024", allowed("2024", PathAccess::ReadWrite));
    check("TOOLHOLD_PLUGINS_MY_TOOL_ALLOWED_PATHS", "/a", allowed("/a", PathAccess::ReadWrite));

    let loaded = load(
        &scene.folders,
        &inputs(
            &[
                ("TOOLHOLD_PLUGINS_OTHER_PATH", "1"),
                ("TOOLHOLD_PLUGINS_OTHER_LIMITS_MEMORY_MIB", "9"),
            ],
            &[],
        ),
    );
    let loaded = loaded.expect("the variables are valid");
    assert_eq!(loaded.values.plugins["other"].path, "1");
    assert_eq!(loaded.plugin_limits("other").memory_mib.get(), 9);
    assert_eq!(loaded.plugin_limits("other").cpu_secs, Limits::default().cpu_secs);
}

#[test]
fn invalid_variables_and_settings_name_the_intended_key() {
    let scene = Scene::new();
    let problem = |variables: &[(&str, &str)], settings: &[&str], expected: &str| {
        let problems = load(&scene.folders, &inputs(variables, settings))
            .expect_err("it is invalid")
            .to_string();
        assert_eq!(problems, expected);
    };
    problem(
        &[("TOOLHOLD_TOOLS_FILE_ALOWED_PATHS", "x")],
        &[],
        "TOOLHOLD_TOOLS_FILE_ALOWED_PATHS: unknown variable; did you mean TOOLHOLD_TOOLS_FILE_ALLOWED_PATHS?",
    );
    problem(
        &[("TOOLHOLD_TOOLS_SHELL_TIMEOUT", "5")],
        &[],
        "TOOLHOLD_TOOLS_SHELL_TIMEOUT: unknown variable; Toolhold has another key for this: write \
         `call = 30` in [tools]",
    );
    problem(
        &[("TOOLHOLD_TOOLS_CALL", "soon")],
        &[],
        "TOOLHOLD_TOOLS_CALL: `tools.call`: invalid type: string \"soon\", expected a whole number from 1 to 86400",
    );
    problem(
        &[("TOOLHOLD_TOOLS_FILE_DENY_READ", "[\"a\"")],
        &[],
        "TOOLHOLD_TOOLS_FILE_DENY_READ: the value is not TOML: unclosed array, expected `]`",
    );
    problem(
        &[],
        &["tools.cal=3"],
        "--set tools.cal=3: unknown key `tools.cal`; did you mean `call`?",
    );
    let deep = load(&scene.folders, &inputs(&[], &[&format!("{}=1", vec!["a"; 1000].join("."))]))
        .expect_err("the key is too deep");
    assert!(deep.to_string().ends_with("key has 1000 parts; the limit is 16"));
    problem(
        &[],
        &["tools.call"],
        "--set tools.call: needs a key and a value: `--set tools.call=60`",
    );
}

#[test]
fn flags_add_grants_and_can_widen_those_of_the_file() {
    let scene = Scene::new();
    scene.write(
        "[tools.file]\nallowed_paths = [\".\", { path = \"~/notes\", access = \"read\" }]\n",
    );
    let notes = scene.work.parent().expect("it has a parent").join("own-home/notes");
    let access = |allow: Vec<(PathBuf, PathAccess)>| {
        let loaded = load(&scene.folders, &Inputs { allow, ..Inputs::default() })
            .expect("the configuration is valid");
        let grants = loaded
            .built_in_files(&scene.folders, &scene.work)
            .expect("all directories exist")
            .grants;
        let notes_grants: Vec<_> = grants
            .into_iter()
            .filter(|grant| grant.path == notes)
            .map(|grant| (grant.access, grant.place.text.into_owned()))
            .collect();
        assert_eq!(notes_grants.len(), 1, "{notes_grants:?}");
        notes_grants[0].clone()
    };
    let in_file = format!("[tools.file] in {}, line 2", scene.folders.config_file().display());
    assert_eq!(access(vec![]), (Access::Read, in_file));
    let by_flag = (Access::Write, format!("--allow {} on the command line", notes.display()));
    assert_eq!(access(vec![(notes.clone(), PathAccess::ReadWrite)]), by_flag);
}

#[test]
fn empty_list_is_the_working_directory_but_nothing_for_a_plugin() {
    let scene = Scene::new();
    let loaded = scene.load("tools.file.allowed_paths = []\n[plugins.x]\npath = \"x.wasm\"\n");
    let grants = loaded.built_in_files(&scene.folders, &scene.work).expect("it exists").grants;
    assert_eq!(
        grants.iter().map(|grant| grant.path.as_path()).collect::<Vec<_>>(),
        [scene.work.as_path()]
    );
    assert_eq!(
        loaded.plugin_files("x", &scene.folders, &scene.work).expect("nothing to open").grants,
        []
    );
    assert_eq!(
        loaded.plugin_files("other", &scene.folders, &scene.work).expect("nothing to open").grants,
        []
    );
    assert_eq!(
        loaded.plugin_path("x", &scene.folders, &scene.work),
        Some(scene.folders.config.join("x.wasm"))
    );
}

#[test]
fn plugin_comes_from_its_path_or_from_the_plugin_folder() {
    let scene = Scene::new();
    let (folders, work) = (&scene.folders, &scene.work);
    let loaded = scene.load("[plugins.named]\npath = \"x.wasm\"\n[plugins.found]\n");
    assert_eq!(loaded.plugin_path("found", folders, work), None);
    assert_eq!(loaded.plugin_folder(folders, work), folders.data.join("plugins"));
    let reload = |loaded: &Config| ["named", "found", "other"].map(|name| loaded.reload(name));
    assert_eq!(reload(&loaded), [Reload::Approve; 3]);

    let loaded = scene.load(
        "[plugin_folder]\npath = \"p\"\nreload = \"trust\"\n[plugins.named]\npath = \"x.wasm\"\n[plugins.found]\nreload = \"approve\"\n",
    );
    assert_eq!(loaded.plugin_folder(folders, work), folders.config.join("p"));
    assert_eq!(reload(&loaded), [Reload::Approve, Reload::Approve, Reload::Trust]);

    let set = load(folders, &inputs(&[], &["plugin_folder.path=p"])).expect("the setting is valid");
    assert_eq!(set.plugin_folder(folders, work), work.join("p"));
    let home = load(folders, &inputs(&[("TOOLHOLD_PLUGIN_FOLDER_PATH", "~/p")], &[]))
        .expect("the variable is valid");
    assert_eq!(
        home.plugin_folder(folders, work),
        folders.home.as_ref().expect("there is a home").join("p")
    );
}

#[test]
fn files_that_configure_toolhold_are_never_writable() {
    let scene = Scene::new();
    let (file, plugin) = (scene.work.join("team.toml"), scene.work.join("x.wasm"));
    fs::write(&file, "plugin_folder.path = \"plugins\"\n[plugins.x]\npath = \"x.wasm\"\n")
        .expect("the file is written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode is set");
    let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
    let loaded = load(&scene.folders, &inputs).expect("the configuration is valid");
    let grants = loaded.built_in_files(&scene.folders, &scene.work).expect("it exists").grants;
    let rules = FileRules::new(grants, loaded.own_paths(&scene.folders, &scene.work));
    let decide = |path: &Path, access| rules.decide(path, Kind::Other, access).is_ok();
    for path in [&file, &plugin, &scene.work.join("plugins"), &scene.work.join("plugins/new.wasm")]
    {
        assert!(decide(path, Access::Read) && !decide(path, Access::Write), "{}", path.display());
    }
    assert!(decide(&scene.work.join("other"), Access::Write));
}

#[test]
fn grant_of_a_missing_directory_is_a_problem() {
    let scene = Scene::new();
    fs::write(scene.work.join("file"), "").expect("a file is made");
    let loaded = scene.load("tools.file.allowed_paths = [\n\".\",\n\"file\",\n{ path = \"none\", access = \"read\" },\n]\n");
    let error = loaded
        .built_in_files(&scene.folders, &scene.work)
        .expect_err("neither can be granted")
        .to_string();
    // It would be writable if somebody made it.
    assert!(
        error.contains("toolhold.toml:4: ") && error.contains("none can't be granted"),
        "{error}"
    );
    assert!(error.contains("toolhold.toml:3: ") && error.contains("is not a directory"), "{error}");
}

#[test]
fn calls_go_on_without_a_directory_that_vanished() {
    let scene = Scene::new();
    let loaded = scene.load("tools.file.allowed_paths = [\n\".\",\n\"/none/at/all\",\n]\n");
    let files = loaded.built_in_files(&scene.folders, &scene.work).expect("the other is granted");
    assert_eq!(files.grants.len(), 1);
    let missing = loaded.missing_directories(&scene.folders, &scene.work);
    let [missing] = &missing[..] else { panic!("{missing:?}") };
    let missing = missing.to_string();
    assert!(missing.contains("toolhold.toml:3: /none/at/all doesn't exist"), "{missing}");
}

#[test]
fn globs_match_through_links_and_the_home() {
    let scene = Scene::new();
    let real = scene.work.parent().expect("it has a parent");
    std::os::unix::fs::symlink(real.join("work"), real.join("link")).expect("a link is made");
    let loaded = scene
        .load(&format!("[tools.file]\nallowed_paths = [\".\", \"~\"]\ndeny_read = [\"{}/link/src/*.key\", \"~/notes\"]\n", real.display()));
    let policy = loaded.built_in_files(&scene.folders, &scene.work).expect("all directories exist");
    let rules = FileRules::new(policy.grants, scene.folders.own_folders()).with_globs(
        policy.deny_read,
        policy.allow_read,
        policy.deny_write,
    );
    let read = |path: &Path| rules.decide(path, Kind::Other, Access::Read).is_ok();
    assert!(!read(&scene.work.join("src/a.key")));
    assert!(read(&scene.work.join("src/a.rs")));
    assert!(!read(&real.join("own-home/notes/today")));
    assert!(read(&real.join("own-home/other")));
    assert!(rules.decide(&scene.work.join(".git/hooks/x"), Kind::Other, Access::Write).is_err());
}

#[test]
fn entries_have_every_value_with_its_source() {
    let scene = Scene::new();
    let loaded = scene.load(
        "[tools.file]\nallowed_paths = [\n  \"a\",\n  { path = \"b\", access = \"read\" },\n]\n",
    );
    let entries = loaded.entries();
    let entry = entries
        .iter()
        .find(|entry| entry.key == "tools.file.allowed_paths")
        .expect("the key is listed");
    assert_eq!(entry.value, serde_json::json!(["a", { "path": "b", "access": "read" }]));
    let lines: Vec<_> = entry
        .elements
        .iter()
        .map(|source| matches!(source, Source::File { line, .. } if *line == 3 || *line == 4))
        .collect();
    assert_eq!(lines, [true, true]);
    let call = entries.iter().find(|entry| entry.key == "tools.call").expect("the key is listed");
    assert_eq!((&call.value, &call.source), (&serde_json::json!(30), &Source::Default));
}

#[test]
fn schema_agrees_with_loading() {
    let schema = schema();
    let accepts = |text: &str, expected: bool| {
        let value: toml::Value = toml::from_str(text).expect("the test's TOML is valid");
        let json = serde_json::to_value(value).expect("TOML has a JSON form");
        assert_eq!(jsonschema::is_valid(&schema, &json), expected, "{text}");
    };
    accepts("", true);
    accepts(
        "tools.call = 5\ntools.file.allowed_paths = [\"a\", { path = \"b\", access = \"read\" }]",
        true,
    );
    accepts("plugins.x = { path = \"x.wasm\", limits = { memory_mib = 5 } }", true);
    accepts("tools.call = 0", false);
    accepts("tools.cal = 1", false);
    accepts("tools.file.allowed_paths = [{ path = \"b\", acess = \"read\" }]", false);
    accepts("plugins.x = { limits = { memory_mib = 0 } }", false);
}
