//! The install script of the archive, on archives like those of `cargo xtask dist` except for their
//! content.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::toolhold;

const SCRIPT: &str = include_str!("../../xtask/src/dist/install.sh");

/// The files of an archive for this machine, by their paths in it.
const SHARED: [&str; 5] = [
    "share/doc/toolhold/README.md",
    "share/doc/toolhold/wit/deps/io/poll.wit",
    "share/doc/toolhold/wit/tool/tools.wit",
    "share/man/man1/toolhold.1",
    "share/zsh/site-functions/_toolhold",
];

/// An unpacked archive and its destination, with another program's file there.
struct Unpacked {
    root: TempDir,
}

impl Unpacked {
    /// With a program that only prints its version.
    fn new() -> Self {
        let unpacked = Self { root: TempDir::new().expect("a temporary folder is made") };
        unpacked.add("bin/toolhold", b"#!/bin/sh\necho toolhold 1.0.0\n");
        for file in SHARED {
            unpacked.add(file, file.as_bytes());
        }
        unpacked.add("install.sh", SCRIPT.replace("@ARCH@", std::env::consts::ARCH).as_bytes());
        unpacked.seal();
        fs::create_dir_all(unpacked.prefix().join("bin")).expect("a folder is made");
        fs::write(unpacked.prefix().join("bin/other"), "another's").expect("a file is written");
        unpacked
    }

    fn archive(&self) -> PathBuf {
        self.root.path().join("an archive")
    }

    fn prefix(&self) -> PathBuf {
        self.root.path().join("a prefix")
    }

    fn add(&self, path: &str, content: &[u8]) {
        program(&self.archive().join(path), content);
    }

    fn seal(&self) {
        let mut sum = Command::new("sh");
        sum.current_dir(self.archive()).args([
            "-c",
            "find bin share install.sh -type f | sort | xargs -d '\\n' sha256sum > SHA256SUMS",
        ]);
        assert!(sum.status().expect("there is a shell").success());
    }

    fn run(&self, arguments: &[&str], path: &str) -> Output {
        let mut script = Command::new(self.archive().join("install.sh"));
        script.current_dir(self.root.path()).args(["--prefix", "a prefix"]).args(arguments);
        script.env("PATH", path).env("HOME", self.root.path()).output().expect("there is a shell")
    }

    fn works(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments, &path());
        assert!(output.status.success(), "{}", output_text(&output));
        output_text(&output)
    }

    fn fails(&self, path: &str) -> String {
        let output = self.run(&[], path);
        assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
        output_text(&output)
    }

    /// The files below the prefix.
    fn installed(&self) -> BTreeSet<String> {
        fn collect(folder: &Path, prefix: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(folder).expect("a folder can be listed").flatten() {
                if entry.path().is_dir() {
                    collect(&entry.path(), prefix, found);
                } else {
                    found.insert(
                        entry
                            .path()
                            .strip_prefix(prefix)
                            .expect("it is below")
                            .display()
                            .to_string(),
                    );
                }
            }
        }
        let mut found = BTreeSet::new();
        collect(&self.prefix(), &self.prefix(), &mut found);
        found
    }
}

/// Makes a file that can be executed.
fn program(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder is made");
    let source = path.with_extension("source");
    fs::write(&source, content).expect("a file is written");
    // Written by a process that then ends. A child of another test may keep a file of this process
    // open for writing a little longer, and such a file can't be executed.
    let script = "cp \"$1\" \"$2\" && chmod 755 \"$2\" && rm \"$1\"";
    let made = Command::new("sh")
        .args(["-c", script, "sh"])
        .args([&source, path])
        .status()
        .expect("there is a shell");
    assert!(made.success(), "{} can't be made", path.display());
}

fn path() -> String {
    std::env::var("PATH").expect("there is a PATH")
}

fn output_text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn set(files: &[&str]) -> BTreeSet<String> {
    files.iter().map(|file| (*file).to_owned()).collect()
}

#[test]
fn program_installs_and_uninstalls_without_a_trace() {
    let unpacked = Unpacked::new();
    unpacked.add("bin/toolhold", &fs::read(toolhold()).expect("the program is there"));
    unpacked.seal();
    let expected = set(&[
        &["bin/toolhold", "bin/other", "share/doc/toolhold/installed"][..],
        &SHARED,
    ]
    .concat());
    for _ in 0..2 {
        assert!(unpacked.works(&[]).ends_with("Next, run: toolhold init\n"));
        assert_eq!(unpacked.installed(), expected);
    }
    let version = Command::new(unpacked.prefix().join("bin/toolhold"))
        .arg("--version")
        .output()
        .expect("it starts");
    assert!(output_text(&version).starts_with("toolhold "), "{}", output_text(&version));
    for file in SHARED {
        let installed = unpacked.prefix().join(file);
        assert_eq!(fs::read_to_string(&installed).expect("it is there"), file);
        assert_eq!(
            fs::metadata(&installed).expect("it is there").permissions().mode() & 0o777,
            0o644
        );
    }

    unpacked.works(&["--uninstall"]);
    assert_eq!(unpacked.installed(), set(&["bin/other"]));
    assert!(!unpacked.prefix().join("share").exists());
}

#[test]
fn installer_reports_a_folder_that_is_not_on_the_path() {
    let unpacked = Unpacked::new();
    let folder = unpacked.prefix().join("bin");
    assert!(unpacked.works(&[]).contains(&format!("{} is not on your PATH", folder.display())));
    let output = unpacked.run(&[], &format!("{}:{}", folder.display(), path()));
    assert!(
        output.status.success() && !output_text(&output).contains("PATH"),
        "{}",
        output_text(&output)
    );
}

#[test]
fn damaged_archive_changes_nothing() {
    let unpacked = Unpacked::new();
    unpacked.works(&[]);
    for damaged in ["bin/toolhold", SHARED[1]] {
        let sound = fs::read(unpacked.archive().join(damaged)).expect("it is there");
        unpacked.add(damaged, b"#!/bin/sh\necho something else\n");
        let told = unpacked.fails(&path());
        assert!(told.contains("damaged") && told.contains(damaged), "{told}");
        assert_eq!(fs::read(unpacked.prefix().join(damaged)).expect("it is there"), sound);
        unpacked.add(damaged, &sound);
    }
    fs::remove_file(unpacked.archive().join("SHA256SUMS")).expect("it was there");
    assert!(unpacked.fails(&path()).contains("unpack the whole archive"));
}

#[test]
fn program_that_does_not_start_is_not_installed() {
    let unpacked = Unpacked::new();
    unpacked.add("bin/toolhold", b"#!/bin/sh\nexit 1\n");
    unpacked.seal();
    assert!(unpacked.fails(&path()).contains("does not start"));
    assert_eq!(unpacked.installed(), set(&["bin/other"]));
}

#[test]
fn another_machine_is_refused() {
    let unpacked = Unpacked::new();
    for (system, machine, expected) in
        [("Linux", "riscv64", "this machine is riscv64"), ("Darwin", "arm64", "this is Darwin")]
    {
        let tools = unpacked.root.path().join(system);
        program(
            &tools.join("uname"),
            format!("#!/bin/sh\ncase $1 in -s) echo {system} ;; -m) echo {machine} ;; esac\n")
                .as_bytes(),
        );
        let told = unpacked.fails(&format!("{}:{}", tools.display(), path()));
        assert!(told.contains(expected), "{told}");
        assert_eq!(unpacked.installed(), set(&["bin/other"]));
    }
}

#[test]
fn upgrade_leaves_nothing_of_the_old_version() {
    let unpacked = Unpacked::new();
    unpacked.add("share/man/man1/toolhold-old.1", b"of the old version");
    unpacked.seal();
    unpacked.works(&[]);
    let old = unpacked.prefix().join("share/man/man1/toolhold-old.1");
    assert!(old.exists());
    fs::remove_file(unpacked.archive().join("share/man/man1/toolhold-old.1"))
        .expect("it was there");
    unpacked.seal();
    unpacked.works(&[]);
    assert!(!old.exists() && unpacked.installed().contains("share/man/man1/toolhold.1"));
}

#[test]
fn installed_list_cannot_lead_out_of_the_prefix() {
    let unpacked = Unpacked::new();
    unpacked.works(&[]);
    let outside = unpacked.root.path().join("outside");
    fs::write(&outside, "another's").expect("a file is written");
    let list = format!("../outside\nbin/../../outside\n{}\nbin/toolhold\n", outside.display());
    fs::write(unpacked.prefix().join("share/doc/toolhold/installed"), list)
        .expect("a file is written");
    unpacked.works(&["--uninstall"]);
    assert!(outside.exists() && !unpacked.prefix().join("bin/toolhold").exists());
}

#[test]
fn mistakes_are_named() {
    let unpacked = Unpacked::new();
    for (arguments, expected) in [
        (&["--prefix"][..], "needs a directory"),
        (&["--root"], "no option --root"),
        (&["--uninstall"], "was not installed"),
    ] {
        let output = unpacked.run(arguments, &path());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(output_text(&output).contains(expected), "{}", output_text(&output));
    }
}
