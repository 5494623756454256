//! Which values count in the working directory's file after the user has trusted it.

use super::*;

const WIDE: &str = "tools.call = 60\ntools.max_concurrent = 1\n[tools.file]\nallowed_paths = [\"~/notes\"]\ndeny_read = [\"a\"]\ndeny_write = []\n[plugins.x]\npath = \"x.wasm\"\n";

fn standing(loaded: &Config) -> ProjectTrust {
    loaded.project.as_ref().expect("it was read").standing
}

fn trust(scene: &Scene, loaded: &Config) {
    loaded
        .project
        .as_ref()
        .expect("it was read")
        .trust(&scene.folders)
        .expect("the list is written");
}

#[test]
fn trusted_file_counts_like_the_user_file() {
    let scene = Scene::new();
    let before = scene.load_with("", WIDE);
    assert_eq!((standing(&before), before.values.tools.call.get()), (ProjectTrust::Narrows, 30));
    trust(&scene, &before);
    let after = scene.load_with("", WIDE);
    assert_eq!((standing(&after), after.values.tools.call.get()), (ProjectTrust::Trusted, 60));
    assert_eq!(after.project.as_ref().map(Project::ignored), Some(&[][..]));
    assert_eq!(after.values.tools.max_concurrent.get(), 1);
    assert_eq!(after.values.tools.file.allowed_paths, [allowed("~/notes", PathAccess::ReadWrite)]);
    assert_eq!(
        after.plugin_path("x", &scene.folders, &scene.work),
        Some(scene.work.join("x.wasm"))
    );
    assert_eq!(
        after.source("tools.call"),
        Source::File { path: scene.work.join("toolhold.toml"), line: 1 }
    );
}

#[test]
fn trusted_file_takes_no_denial_away() {
    let scene = Scene::new();
    trust(&scene, &scene.load_with("tools.file.deny_read = [\"mine\"]", WIDE));
    let loaded = scene.load_with("tools.file.deny_read = [\"mine\"]", WIDE);
    assert_eq!(standing(&loaded), ProjectTrust::Trusted);
    let texts =
        |globs: &[PathGlob]| globs.iter().map(|glob| glob.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(texts(&loaded.values.tools.file.deny_read), ["mine", "a"]);
    assert_eq!(texts(&loaded.values.tools.file.deny_write), [".git/**"]);
}

#[test]
fn file_that_changes_before_trust_is_not_trusted() {
    let scene = Scene::new();
    let shown = scene.load_with("", WIDE);
    // The file changes between the question and the answer.
    let other = WIDE.replace("60", "90");
    std::fs::write(scene.work.join("toolhold.toml"), &other).expect("the file is written");
    trust(&scene, &shown);
    let loaded = scene.load_with("", &other);
    assert_ne!(standing(&loaded), ProjectTrust::Trusted);
    assert_eq!(loaded.values.tools.call.get(), 30);
    // The content that was shown is trusted.
    assert_eq!(scene.load_with("", WIDE).values.tools.call.get(), 60);
}

#[test]
fn empty_folder_is_ignored_and_a_full_one_is_refused() {
    let scene = Scene::new();
    let folder = scene.work.join("toolhold.toml");
    std::fs::create_dir(&folder).expect("a folder is made");
    assert!(scene.load_there(&[]).expect("an empty folder is accepted").project.is_none());
    std::fs::write(folder.join("file"), "").expect("a file is made");
    assert!(scene.load_there(&[]).is_err());
}

#[test]
fn trust_ends_with_a_change_of_one_byte() {
    let scene = Scene::new();
    trust(&scene, &scene.load_with("", WIDE));
    let changed = scene.load_with("", &format!("{WIDE} "));
    assert_eq!((standing(&changed), changed.values.tools.call.get()), (ProjectTrust::Changed, 30));
    assert!(changed.values.plugins.is_empty());
    assert_eq!(standing(&scene.load_with("", WIDE)), ProjectTrust::Trusted);
}

#[test]
fn trust_ends_when_a_link_leads_elsewhere() {
    let scene = Scene::new();
    let home = scene.folders.home.clone().expect("there is a home");
    let link = scene.work.join("docs");
    std::os::unix::fs::symlink(home.join("notes"), &link).expect("a link is made");
    let text = "tools.file.allowed_paths = [\"docs\"]";
    trust(&scene, &scene.load_with("", text));
    assert_eq!(standing(&scene.load_with("", text)), ProjectTrust::Trusted);
    // The link may come from the same repository as the file, which can change it.
    fs::remove_file(&link)
        .and_then(|()| std::os::unix::fs::symlink(&home, &link))
        .expect("the link is changed");
    let changed = scene.load_with("", text);
    assert_eq!(standing(&changed), ProjectTrust::Changed);
    assert_eq!(changed.values, ConfigValues::default());
}

#[test]
fn same_content_elsewhere_is_not_trusted() {
    let scene = Scene::new();
    trust(&scene, &scene.load_with("", WIDE));
    fs::write(scene.work.join("src/toolhold.toml"), WIDE).expect("the file is written");
    let inputs = Inputs { working_directory: Some(scene.work.join("src")), ..Inputs::default() };
    let loaded = load(&scene.folders, &inputs).expect("it is valid");
    assert_eq!(standing(&loaded), ProjectTrust::Narrows);
    // The directory is the same under any path.
    let link = scene.work.join("src/back");
    std::os::unix::fs::symlink("..", &link).expect("a link is made");
    let loaded =
        load(&scene.folders, &Inputs { working_directory: Some(link), ..Inputs::default() })
            .expect("it is valid");
    assert_eq!(standing(&loaded), ProjectTrust::Trusted);
}

#[test]
fn trusted_files_are_listed_and_can_be_forgotten() {
    let scene = Scene::new();
    let loaded = scene.load_with("", WIDE);
    assert!(trusted(&scene.folders).expect("a missing list isn't a mistake").is_empty());
    trust(&scene, &loaded);
    let project = loaded.project.expect("it was read");
    let path = project.path.to_str().expect("it is UTF-8").to_owned();
    assert_eq!(
        trusted(&scene.folders).expect("the list is written"),
        [(path, project.digest.clone())].into()
    );
    assert!(forget(&scene.folders, &project.path).expect("the list is written"));
    assert!(!forget(&scene.folders, &project.path).expect("the list is written"));
    assert_eq!(standing(&scene.load_with("", WIDE)), ProjectTrust::Narrows);
}

#[test]
fn damaged_list_of_trusted_files_ends_the_start() {
    let scene = Scene::new();
    trust(&scene, &scene.load_with("", WIDE));
    fs::write(scene.folders.data.join("trusted.json"), "{").expect("it is damaged");
    let problems = scene.load_there(&[]).expect_err("it is damaged").to_string();
    assert!(problems.contains("trusted.json") && problems.contains("remove it"), "{problems}");
    // The list isn't read if no value needs trust.
    assert_eq!(standing(&scene.load_with("", "tools.call = 5")), ProjectTrust::Narrows);
}
