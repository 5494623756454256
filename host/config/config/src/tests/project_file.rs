//! The working directory's `toolhold.toml` as a file: how it is read, and its notices.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn mistakes_in_the_file_end_the_start() {
    let scene = Scene::new();
    for (text, line, expected) in [
        ("[tools]\ncal = 5", 2, "did you mean `call`?"),
        ("TOOLS.call = 5", 1, "unknown key `TOOLS`"),
        ("tools.call = ", 1, "is not TOML"),
        ("\ntools.call = \"x\"", 2, "invalid type"),
        ("tools.call = 5\ntools.call = 6", 2, "duplicate key"),
        ("tools = 1", 1, "invalid type"),
        ("tools.file.deny_read = [\"!x\"]", 1, "a denial always wins"),
        ("[plugins.\"e\\u001b[31mvil\"]", 1, "isn't a valid plugin name"),
        ("tools.file.allowed_paths = [\n\"src/missing\"]", 2, "isn't an existing directory"),
        ("tools.file.allowed_paths = [\"toolhold.toml\"]", 1, "isn't an existing directory"),
    ] {
        fs::write(scene.work.join("toolhold.toml"), text).expect("the file is written");
        let problems = scene.load_there(&[]).expect_err("it is invalid").to_string();
        let place = format!("{}:{line}: ", scene.work.join("toolhold.toml").display());
        assert!(problems.contains(&place) && problems.contains(expected), "{text}: {problems}");
        assert!(!problems.contains('\u{1b}'), "{problems:?}");
    }
}

#[test]
fn links_pipes_and_large_files_are_refused() {
    let scene = Scene::new();
    let path = scene.work.join("toolhold.toml");
    let problem = |expected: &str| {
        let problems = scene.load_there(&[]).expect_err("the file is refused").to_string();
        assert!(
            problems.contains(&path.display().to_string()) && problems.contains(expected),
            "{problems}"
        );
        let remove = if path.is_dir() { fs::remove_dir_all } else { fs::remove_file };
        remove(&path).expect("it is removed");
    };
    fs::write(&path, " ".repeat((1 << 20) + 1)).expect("a file is written");
    problem("larger than 1 MiB");
    fs::write(&path, (0..600).map(|index| format!("k{index} = 1\n")).collect::<String>())
        .expect("a file is written");
    problem("has 600 values; the limit is 512");
    fs::write(&path, "a.".repeat(1000) + "a = 1").expect("a file is written");
    problem("recursion limit");
    fs::write(&path, [0xff]).expect("a file is written");
    problem("can't be read");
    // An empty folder is accepted: it keeps a command from making such a file.
    fs::create_dir_all(path.join("folder")).expect("a folder is made");
    problem("not a regular file");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).expect("a pipe is made");
    problem("not a regular file");
    fs::write(scene.work.join("elsewhere.toml"), "tools.call = 5").expect("a file is written");
    symlink("elsewhere.toml", &path).expect("a link is made");
    problem("is a link");
    symlink("missing", &path).expect("a link is made");
    problem("is a link");
}

#[test]
fn user_file_is_not_read_twice() {
    let scene = Scene::new();
    let wide = "tools.call = 600\n[plugins.x]\npath = \"x.wasm\"\n";
    let user = scene.write(wide);
    let in_the_folder = |inputs: Inputs| {
        let loaded = load(&scene.folders, &inputs).expect("it is valid");
        assert_eq!((loaded.values.tools.call.get(), loaded.project.is_none()), (600, true));
    };
    in_the_folder(Inputs {
        working_directory: Some(scene.folders.config.clone()),
        ..Inputs::default()
    });
    // The file is elsewhere, and a link to it is in Toolhold's folder.
    fs::rename(&user, scene.work.join("toolhold.toml")).expect("it is moved");
    symlink(scene.work.join("toolhold.toml"), &user).expect("a link is made");
    in_the_folder(Inputs { working_directory: Some(scene.work.clone()), ..Inputs::default() });
    in_the_folder(Inputs {
        working_directory: Some(scene.folders.config.clone()),
        ..Inputs::default()
    });
    let named = Inputs { file: Some(scene.work.join("toolhold.toml")), ..Inputs::default() };
    in_the_folder(Inputs { working_directory: Some(scene.work.clone()), ..named });
}

#[test]
fn file_is_read_only_in_the_working_directory() {
    let scene = Scene::new();
    fs::write(scene.work.join("toolhold.toml"), "tools.call = 5").expect("the file is written");
    let below = Inputs { working_directory: Some(scene.work.join("src")), ..Inputs::default() };
    for inputs in [below, Inputs::default()] {
        let loaded = load(&scene.folders, &inputs).expect("it is valid");
        assert_eq!((loaded.values.tools.call.get(), loaded.project), (30, None));
    }
}

#[test]
fn variables_and_flags_come_after_the_file() {
    let scene = Scene::new();
    scene.load_with("", "tools.call = 5\ntools.file.deny_read = [\"a\"]\n");
    let set = ["tools.call=60", "tools.file.deny_read=b"];
    let loaded = scene.load_there(&set).expect("it is valid");
    assert_eq!(loaded.values.tools.call.get(), 60);
    assert_eq!(
        loaded.values.tools.file.deny_read,
        [PathGlob::new("b").expect("the glob is valid")]
    );
    let allow = vec![(scene.folders.home.clone().expect("there is a home"), PathAccess::Read)];
    fs::write(scene.work.join("toolhold.toml"), "tools.file.allowed_paths = [\"src\"]")
        .expect("the file is written");
    let loaded = load(
        &scene.folders,
        &Inputs { working_directory: Some(scene.work.clone()), allow, ..Inputs::default() },
    );
    let grants = loaded
        .expect("it is valid")
        .built_in_files(&scene.folders, &scene.work)
        .expect("all directories exist")
        .grants;
    let paths: Vec<_> = grants.into_iter().map(|grant| grant.path).collect();
    assert_eq!(
        paths,
        [scene.work.join("src"), scene.folders.home.clone().expect("there is a home")]
    );
}

#[test]
fn denials_of_the_file_show_its_lines() {
    let scene = Scene::new();
    let loaded = scene.load_with(
        "tools.file.deny_read = [\"a\"]",
        "\n[tools.file]\ndeny_read = [\n\"b\"]\nallowed_paths = [\"src\"]\n",
    );
    let policy = loaded.built_in_files(&scene.folders, &scene.work).expect("all directories exist");
    let place = |line| {
        format!("[tools.file] in {}, line {line}", scene.work.join("toolhold.toml").display())
    };
    assert_eq!(policy.grants[0].place.text, place(5));
    let rules = FileRules::new(policy.grants, Vec::new()).with_globs(
        policy.deny_read,
        policy.allow_read,
        policy.deny_write,
    );
    let place_of = |name: &str| {
        let path = scene.work.join("src").join(name);
        let refusal = rules.decide(&path, Kind::Other, Access::Read).expect_err("it is denied");
        rules.explain(refusal, &path, Access::Read).place
    };
    assert_eq!(place_of("b"), place(4));
    assert_eq!(
        place_of("a"),
        format!("[tools.file] in {}, line 1", scene.folders.config_file().display())
    );
}

#[test]
fn notice_is_one_short_line_without_control_characters() {
    let scene = Scene::new();
    let long = "x".repeat(100_000);
    let loaded = scene
        .load_with("", &format!("tools.file.allowed_paths = [\"/\\u001b[2J\\n\\u202e{long}\"]"));
    let notice = loaded.project.expect("it was read").ignored()[0].to_string();
    assert!(notice.len() < 500 && !notice.contains(['\u{1b}', '\n', '\u{202e}']), "{notice:?}");
    assert!(
        notice.contains("toolhold.toml:1: `tools.file.allowed_paths` is ignored: "),
        "{notice}"
    );
}
