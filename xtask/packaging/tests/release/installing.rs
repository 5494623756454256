//! The script that downloads a release and installs it.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;
use toolhold_signing::SecretKey;

use crate::server::Server;
use crate::{Published, archive_name, fetched, packed, succeeds, write_program};

/// The programs that the script and that of the archive use on every machine.
const TOOLS: [&str; 25] = [
    "awk",
    "cat",
    "chmod",
    "cp",
    "cut",
    "dirname",
    "grep",
    "gzip",
    "head",
    "mkdir",
    "mktemp",
    "mv",
    "printf",
    "rm",
    "rmdir",
    "sed",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "tail",
    "tar",
    "tr",
    "uname",
    "wc",
];

/// A machine of somebody who installs Toolhold, with these further programs.
struct Machine {
    home: TempDir,
}

impl Machine {
    fn with(programs: &[&str]) -> Self {
        let home = TempDir::new().expect("a folder is made");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("a folder is made");
        for program in TOOLS.iter().chain(programs) {
            let found = succeeds(Command::new("sh").args(["-c", &format!("command -v {program}")]));
            if found.starts_with('/') {
                symlink(found.trim_end(), bin.join(program)).expect("it is made");
            }
        }
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Runs the script of a release with these arguments, as it comes out of a download.
    fn run(&self, release: &Published, arguments: &[&str]) -> Output {
        let mut script = Command::new("sh");
        let text = File::open(release.path("install.sh")).expect("it is there");
        script.args(["-s", "--"]).args(arguments).stdin(text).current_dir(self.home.path());
        script.env_clear().env("PATH", self.path("bin")).env("HOME", self.path("home"));
        script.output().expect("it starts")
    }

    #[track_caller]
    fn installs(&self, release: &Published, arguments: &[&str]) -> String {
        let output = self.run(release, arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        let toolhold = self.path("home/.local/bin/toolhold");
        assert_eq!(succeeds(&mut Command::new(toolhold)), "toolhold 1.2.3\n");
        assert!(!self.path("home/.cache/toolhold-install").exists(), "the download is left");
        errors
    }

    /// Checks that nothing is installed or left, but perhaps a part of the download.
    #[track_caller]
    fn refuses(&self, release: &Published, arguments: &[&str], why: &str) {
        let output = self.run(release, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(why), "{errors}");
        let mut left: Vec<String> = fs::read_dir(self.home.path())
            .expect("it is there")
            .map(|entry| entry.expect("it is there").file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert!(left == ["bin"] || left == ["bin", "home"], "{left:?}");
        let home = fs::read_dir(self.path("home")).into_iter().flatten().flatten();
        assert!(home.into_iter().all(|entry| entry.file_name() == ".cache"), "{errors}");
    }
}

const CURL: &[&str] = &["curl", "openssl"];

#[test]
fn archive_is_installed_from_a_url_and_from_a_file() {
    let release = Published::new();
    let server = Server::new(release.folder.path());
    let (url, file) = (format!("{}/{}", server.url, release.archive()), release.archive());
    let file = release.path(&file);
    let file = file.to_str().expect("it is UTF-8");
    for programs in [CURL, &["wget", "openssl"]] {
        Machine::with(programs).installs(&release, &[&url]);
    }
    let machine = Machine::with(&["openssl"]);
    machine.installs(&release, &[file]);
    // The archive's own script has the options about the place.
    let output = machine.run(&release, &[file, "--uninstall"]);
    assert!(output.status.success() && !machine.path("home/.local/bin").exists(), "{output:?}");
    let output = machine.run(&release, &["--prefix", "elsewhere", file]);
    assert!(output.status.success() && machine.path("elsewhere/bin/toolhold").exists());
}

#[test]
fn signature_is_checked_by_the_program_that_is_there() {
    let release = Published::new();
    let file = release.path(&release.archive());
    let file = file.to_str().expect("it is UTF-8");
    let bare = Machine::with(&[]);
    bare.refuses(&release, &[file], "install minisign or OpenSSL 3");
    let said = bare.installs(&release, &["--no-signature", file]);
    assert!(said.contains("the signature is not checked"), "{said}");

    let other = SecretKey::generate().expect("there are random bytes").public().to_string();
    let mut machines = vec![Machine::with(&["openssl"])];
    if let Some(debian) = fetched("debian") {
        let machine = Machine::with(&[]);
        let libraries =
            debian.join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        let script = format!(
            "#!/bin/sh\nLD_LIBRARY_PATH={} exec {} \"$@\"\n",
            libraries.display(),
            debian.join("usr/bin/minisign").display()
        );
        write_program(&machine.path("bin/minisign"), &script);
        machines.push(machine);
    }
    for machine in machines {
        let wrong = "the signature of SHA256SUMS is wrong or missing";
        machine.refuses(&release, &["--key", &other, file], wrong);
        machine.refuses(&release, &["--key", "not a key", file], wrong);
        machine.refuses(&release, &["--key", "", file], "has no public key");
        let signature = fs::read(release.path("SHA256SUMS.minisig")).expect("it is there");
        for damaged in [&b""[..], b"no signature\n\n\n\n", &signature[..90]] {
            release.write("SHA256SUMS.minisig", damaged);
            machine.refuses(&release, &[file], wrong);
        }
        fs::remove_file(release.path("SHA256SUMS.minisig")).expect("it was there");
        machine.refuses(&release, &[file], wrong);
        release.write("SHA256SUMS.minisig", &signature);
        let sums = fs::read(release.path("SHA256SUMS")).expect("it is there");
        release.write("SHA256SUMS", &[&sums[..], b"\n"].concat());
        machine.refuses(&release, &[file], wrong);
        release.write("SHA256SUMS", &sums);
        machine.installs(&release, &[file]);
    }
}

#[test]
fn archive_with_another_checksum_changes_nothing() {
    let release = Published::new();
    let server = Server::new(release.folder.path());
    let url = format!("{}/{}", server.url, release.archive());
    let whole = fs::read(release.path(&release.archive())).expect("it is there");
    release.write(&release.archive(), &[&whole[..], b"more"].concat());
    let machine = Machine::with(CURL);
    machine.refuses(&release, &[&url], "the checksum of toolhold-1.2.3");
    let file = release.path(&release.archive());
    machine.refuses(&release, &[file.to_str().expect("it is UTF-8")], "the checksum of");
    // What was kept of it isn't in the way of the next run.
    release.write(&release.archive(), &whole);
    machine.installs(&release, &[&url]);

    let sums = fs::read_to_string(release.path("SHA256SUMS")).expect("it is there");
    let line = sums.lines().find(|line| line.ends_with(&release.archive())).expect("it is listed");
    for other in [sums.replace(line, ""), format!("{sums}{line}\n"), sums.replace("  ", " ./")] {
        release.write("SHA256SUMS", other.as_bytes());
        release.sign();
        Machine::with(CURL).refuses(&release, &[&url], "SHA256SUMS has no checksum of");
    }
}

#[test]
fn download_that_is_cut_off_goes_on_where_it_ended() {
    let release = Published::new();
    let server = Server::new(release.folder.path());
    let url = format!("{}/{}", server.url, release.archive());
    for programs in [CURL, &["wget", "openssl"]] {
        let machine = Machine::with(programs);
        server.cut(&[100, 50]);
        machine.installs(&release, &[&url]);
        assert_eq!(server.starts(), [0, 100, 150], "{programs:?}");
    }
    // Also in the next run. (wget tries more often than a test can cut off.)
    let machine = Machine::with(CURL);
    server.cut(&[100, 50, 10]);
    machine.refuses(&release, &[&url], "The next run goes on where this one ended");
    assert_eq!(server.starts(), [0, 100, 150]);
    machine.installs(&release, &[&url]);
    assert_eq!(server.starts(), [160]);
    // Not from a part of another file, nor after the end.
    let length = fs::read(release.path(&release.archive())).expect("it is there").len();
    for stale in [200, length, length + 1] {
        let machine = Machine::with(CURL);
        let folder =
            format!("home/.cache/toolhold-install/{}", archive_name(std::env::consts::ARCH));
        fs::create_dir_all(machine.path(&folder)).expect("a folder is made");
        let part = machine.path(&folder).join(release.archive());
        fs::write(part, vec![7; stale]).expect("it is written");
        machine.installs(&release, &[&url]);
    }
}

#[test]
fn hostile_names_change_nothing() {
    let release = Published::new();
    let machine = Machine::with(CURL);
    let arch = std::env::consts::ARCH;
    for (from, why) in [
        (
            format!("https://example.com/toolhold-$(touch x)-{arch}-linux.tar.gz"),
            "unexpected characters",
        ),
        (format!("https://example.com/toolhold-1 2-{arch}-linux.tar.gz"), "unexpected characters"),
        ("https://example.com/..".to_owned(), "has to be named"),
        ("https://example.com/".to_owned(), "has to be named"),
        ("https://example.com/toolhold-1.2.3-mips-linux.tar.gz".to_owned(), "has to be named"),
        (format!("http://example.com/{}", release.archive()), "has to begin with https://"),
        (format!("ftp://example.com/{}", release.archive()), "has to begin with https://"),
        ("--output=x".to_owned(), "there is no option"),
    ] {
        machine.refuses(&release, &[&from], why);
    }
    machine.refuses(&release, &["one", "two"], "more than one archive");

    // A signed archive, as that of a key in wrong hands.
    let folder = archive_name(arch);
    let script = b"#!/bin/sh\ntouch ../../../../x\n".to_vec();
    let member = |path: &str| (path.to_owned(), 0o755, script.clone());
    for outside in
        ["../x", "/x", "x", &format!("{folder}/../x"), &format!("{folder}/.."), "../../home/x"]
    {
        release
            .replace_archive(&packed(&[member(&format!("{folder}/install.sh")), member(outside)]));
        let file = release.path(&release.archive());
        machine.refuses(
            &release,
            &[file.to_str().expect("it is UTF-8")],
            "has an unexpected member",
        );
    }
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Fifo] {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_size(0);
        if kind != tar::EntryType::Fifo {
            header.set_link_name("../../..").expect("it is short");
        }
        let path = format!("{folder}/install.sh");
        archive.append_data(&mut header, path, &b""[..]).expect("it is packed");
        let bytes = crate::gzip(&archive.into_inner().expect("it is packed"));
        release.replace_archive(&bytes);
        let file = release.path(&release.archive());
        machine.refuses(
            &release,
            &[file.to_str().expect("it is UTF-8")],
            "neither a file nor a folder",
        );
    }
    release.replace_archive(b"no archive");
    let file = release.path(&release.archive());
    machine.refuses(&release, &[file.to_str().expect("it is UTF-8")], "can't be read");
}
