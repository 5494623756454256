//! The steps of the workflow that are in `.ci/release`, and what they run.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;
use toolhold_packaging::{Package, packages};
use toolhold_signing::SecretKey;

use crate::{archive, archive_name, fetched, release_for, root, write_program};

/// A clone of a repository that has a release, in which steps run.
struct Clone {
    folder: TempDir,
}

impl Clone {
    fn new() -> Self {
        let folder = TempDir::new().expect("a folder is made");
        for inner in [".ci", "bin", "xtask/packaging"] {
            fs::create_dir_all(folder.path().join(inner)).expect("a folder is made");
        }
        fs::copy(root().join(".ci/release"), folder.path().join(".ci/release"))
            .expect("it is there");
        let clone = Self { folder };
        clone.write(
            "Cargo.toml",
            "[workspace.package]\nversion = \"1.2.3\"\nrepository = \"https://github.com/example/toolhold\"\n\n\
             [other]\nversion = \"9\"\n",
        );
        clone
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("it is written");
    }

    /// Runs a step, with these variables of the environment.
    fn step(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut step = Command::new(self.path(".ci/release"));
        let path = std::env::var("PATH").expect("it is set");
        step.args(arguments).current_dir(&self.folder).env_clear();
        step.env("PATH", format!("{}:{path}", self.path("bin").display()));
        step.env("HOME", self.path("home"));
        step.envs(variables.iter().copied()).output().expect("it starts")
    }

    #[track_caller]
    fn passes(&self, arguments: &[&str], variables: &[(&str, &str)]) -> String {
        let output = self.step(arguments, variables);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str], variables: &[(&str, &str)], why: &str) {
        let output = self.step(arguments, variables);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(why), "{arguments:?}: {errors}");
    }
}

const DRY: (&str, &str) = ("DRY_RUN", "true");

#[test]
fn release_needs_its_tag_its_repository_and_its_key() {
    let clone = Clone::new();
    let place =
        [("GITHUB_SERVER_URL", "https://github.com"), ("GITHUB_REPOSITORY", "example/toolhold")];
    let tag = ("GITHUB_REF", "refs/tags/v1.2.3");
    clone.passes(&["check"], &[DRY]);
    clone.fails(&["check"], &[], "the tag has to be v1.2.3");
    let other = ("GITHUB_REF", "refs/tags/v1.2.4");
    clone.fails(&["check"], &[place[0], place[1], other], "the tag has to be v1.2.3");
    clone.fails(&["check"], &[tag, place[0]], "Cargo.toml names the repository");
    clone.fails(&["check"], &[tag, place[0], place[1]], "the public key of releases is missing");
    clone.write("xtask/packaging/release.pub", "key\n");
    clone.passes(&["check"], &[tag, place[0], place[1]]);
    clone.fails(&["key", "keys"], &[], "RELEASE_KEY is missing");
    clone.write("Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\n");
    clone.fails(&["check"], &[DRY], "has no repository");
    clone.fails(&["publish"], &[DRY], "there is no step publish");
}

#[test]
fn packages_of_all_machines_are_signed_and_installed() {
    let Some(debian) = fetched("debian") else { return };
    let clone = Clone::new();
    let libraries = debian.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    let minisign = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH={} exec {} \"$@\"\n",
        libraries.display(),
        debian.join("usr/bin/minisign").display()
    );
    write_program(&clone.path("bin/minisign"), &minisign);
    for machine in ["x86_64", "aarch64"] {
        let folder = clone.path("input").join(machine);
        fs::create_dir_all(&folder).expect("a folder is made");
        let archive_file = folder.join(format!("{}.tar.gz", archive_name(machine)));
        fs::write(archive_file, archive(machine)).expect("it is written");
        fs::write(folder.join("SHA256SUMS"), "of this machine").expect("it is written");
        for Package { file_name, bytes } in packages(&release_for(machine)).expect("they are made")
        {
            fs::write(folder.join(file_name), bytes).expect("it is written");
        }
    }
    let gather = |output: &str| {
        fs::create_dir_all(clone.path(output)).expect("a folder is made");
        let mut gather = Command::new(env!("CARGO_BIN_EXE_toolhold-packaging"));
        gather.args([
            "release",
            "1.2.3",
            "https://github.com/example/toolhold",
            "keys/release.pub",
        ]);
        gather.args(["input", output]).current_dir(&clone.folder).output().expect("it starts")
    };

    clone.passes(&["key", "keys"], &[DRY]);
    let output = gather("dry");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    clone.passes(&["sign", "keys", "dry"], &[DRY]);
    assert!(clone.passes(&["try", "dry"], &[DRY]).ends_with("toolhold 1.2.3\n"));

    // With the key of the release, which has a password.
    let key = SecretKey::generate().expect("there are random bytes");
    let secret = key.to_file(Some("a password")).expect("it is made");
    let public = key.public().to_file();
    clone.write("xtask/packaging/release.pub", &public);
    clone.passes(&["key", "keys"], &[("RELEASE_KEY", secret.as_str())]);
    assert!(gather("real").status.success());
    clone.fails(&["sign", "keys", "real"], &[("RELEASE_KEY_PASSWORD", "another")], "");
    clone.passes(&["sign", "keys", "real"], &[("RELEASE_KEY_PASSWORD", "a password")]);
    assert!(clone.passes(&["try", "real"], &[]).ends_with("toolhold 1.2.3\n"));
    let names: Vec<_> = fs::read_dir(clone.path("real")).expect("it is there").collect();
    // Of each kind of machine 7 files, of both 3, and of the release 5.
    assert_eq!(names.len(), 2 * 7 + 3 + 5);
    fs::write(clone.path("real/toolhold-1.2.3.tgz"), "other").expect("it is written");
    clone.fails(&["try", "real"], &[], "did NOT match");

    // What is for all kinds of machines has to be the same from each.
    fs::write(clone.path("input/aarch64/toolhold-1.2.3.tgz"), "other").expect("it is written");
    let output = gather("different");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("toolhold-1.2.3.tgz isn't the same"), "{errors}");
}

#[test]
fn packages_of_npm_are_published_in_their_order() {
    let clone = Clone::new();
    fs::create_dir(clone.path("release")).expect("a folder is made");
    // A program that says what it was asked.
    write_program(&clone.path("bin/npm"), "#!/bin/sh\necho \"$@\"\n");
    let order = ["toolhold-linux-x64", "toolhold-linux-arm64", "toolhold", "toolhold-sdk"];
    let asked = |options: &str| {
        order.map(|name| format!("publish {options} ./{name}-1.2.3.tgz\n")).concat()
    };
    assert_eq!(clone.passes(&["npm", "release"], &[DRY]), asked("--dry-run"));
    assert_eq!(clone.passes(&["npm", "release"], &[]), asked("--provenance --access public"));
}
