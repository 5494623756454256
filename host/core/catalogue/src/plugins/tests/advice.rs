//! Advice on the outputs of real tools, and no advice if the sandbox isn't the reason.

use std::path::{Path, PathBuf};

use toolhold_policy::files::{FileRules, Grant, PathGlobs};
use toolhold_policy::{OwnTable, TablePlace};
use toolhold_system::confine::{Limits, Tree};

use super::*;

/// Commands in `/home/u/work`, with a sandbox and one preset.
fn advisor() -> SandboxAdvisor {
    SandboxAdvisor { context: context() }
}

fn table_of(name: &str) -> OwnTable {
    let file = Path::new("/c/toolhold.toml").into();
    OwnTable { name: name.to_owned(), place: TablePlace { file, line: None } }
}

fn context() -> ProcessContext {
    let grant = |path: &str, access| Grant {
        path: path.into(),
        access,
        place: "[tools.shell] in toolhold.toml, line 2".into(),
    };
    let globs = |glob: &str| {
        PathGlobs::new(vec![(glob.to_owned(), "[tools.file] in toolhold.toml, line 7")])
            .expect("the glob is valid")
    };
    let rules = FileRules::new(
        vec![grant("/home/u/work", Access::Write), grant("/home/u/books", Access::Read)],
        Vec::new(),
    );
    let home = |place: &str| PathBuf::from("/home/u").join(place);
    ProcessContext {
        table: table_of("tools.shell"),
        kind: ProcessKind::Shell,
        network: NetworkGrant::Ask,
        rules: rules.with_globs(globs("**/.env"), PathGlobs::default(), globs("vendor")),
        allowed: vec![AllowedPath { path: ".".to_owned(), access: PathAccess::ReadWrite }],
        also: vec![Tree { path: "/home/u/.gitconfig".to_owned(), access: TreeAccess::Read }],
        other_presets: vec![
            ("cargo", home(".cargo/registry")),
            ("npm", home(".npm/_cacache")),
            ("python", home(".pyenv")),
            ("rustup", home(".rustup")),
        ],
        used_presets: vec!["git"],
        credentials: vec![home(".npmrc"), home(".ssh")],
        variables: vec!["PATH".to_owned(), "HOME".to_owned()],
        env: vec!["EDITOR".to_owned()],
        home: Some("/home/u".into()),
        directory: "/home/u/work".into(),
        limits: Limits::default(),
        sandboxed: true,
    }
}

fn advise(advisor: &SandboxAdvisor, stderr: &str) -> Vec<String> {
    advisor.advise(&FailedCommand {
        code: Some(1),
        stdout: "",
        stderr,
        network: false,
        path_rules: None,
    })
}

#[test]
fn sandbox_failures_name_the_line_to_change() {
    let network = "`hosts = [\"HOST\"]` in [tools.shell] of /c/toolhold.toml";
    let cargo = "presets = [\"git\", \"cargo\"]` in [tools.shell] of /c/toolhold.toml";
    let processes = "processes = 1024` in [tools.shell.limits] of /c/toolhold.toml";
    let repository = "`allowed_paths = [\".\", \"~/main\"]` in [tools.shell] of /c/toolhold.toml";
    let scratch = "scratch_mib = 2048` in [tools.shell.limits] of /c/toolhold.toml";
    for (stderr, expected) in [
        ("curl: (6) Could not resolve host: example.com", network),
        (
            "fatal: unable to access 'https://example.com/x.git/': Could not resolve host: example.com",
            network,
        ),
        (
            "ssh: Could not resolve hostname example.com: Temporary failure in name resolution",
            network,
        ),
        ("npm error code EAI_AGAIN\nnpm error syscall getaddrinfo", network),
        ("npm error code ENOTFOUND", network),
        (
            "Exception in thread \"main\" java.net.UnknownHostException: services.gradle.org",
            network,
        ),
        ("Could not transfer artifact: Unknown host repo.maven.apache.org", network),
        (
            "error: failed to get `serde`\n  [6] Could not resolve hostname (Could not resolve host: index.crates.io)",
            network,
        ),
        (
            "go: x: dial tcp: lookup proxy.golang.org on 10.0.0.2:53: network is unreachable",
            network,
        ),
        (
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            network,
        ),
        ("connect: Network is unreachable", network),
        ("wget: unable to resolve host address 'example.com'", network),
        (
            "psql: connection to server at \"localhost\" (127.0.0.1), port 5432 failed: Connection refused",
            "its `localhost` is private",
        ),
        ("Error: connect ECONNREFUSED ::1:6379", "its `localhost` is private"),
        ("cat: /home/u/books/x.txt: Permission denied", ""),
        (
            "bash: /home/u/books/x.txt: Read-only file system",
            "granted read-only by [tools.shell] in toolhold.toml, line 2",
        ),
        (
            "cat: .env: Permission denied",
            ".env: deny_read = \"**/.env\" ([tools.file] in toolhold.toml, line 7)",
        ),
        ("cat: /home/u/work/a/.env: Permission denied", ": deny_read = \"**/.env\""),
        ("touch: cannot touch 'vendor/x': Read-only file system", ": deny_write = \"vendor\""),
        (
            "error: could not write config file .git/config: Device or resource busy",
            "`allowed_paths = [\".\", \".git\"]` in [tools.shell] of /c/toolhold.toml",
        ),
        (
            "cat: /home/u/other/notes.txt: No such file or directory",
            "`allowed_paths = [\".\", { path = \"~/other\", access = \"read\" }]` in [tools.shell] of /c/toolhold.toml",
        ),
        (
            "ls: cannot access '/home/u/other': No such file or directory",
            "{ path = \"~/other\", access = \"read\" }",
        ),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/data/2024/x.csv'",
            "{ path = \"~/data/2024\", access = \"read\" }",
        ),
        (
            "cp: cannot create regular file '/home/u/out/x': Read-only file system",
            "`allowed_paths = [\".\", \"~/out\"]`",
        ),
        ("cat: ../other/x: No such file or directory", "\"~/other\""),
        (
            "error: failed to open `/home/u/.cargo/registry/cache/x`: Permission denied (os error 13)",
            cargo,
        ),
        (
            "/home/u/.pyenv/shims/python: line 8: /home/u/.pyenv/libexec/pyenv: No such file or directory",
            "\"python\"]",
        ),
        (
            "error: rustup could not choose a version of cargo to run",
            "presets = [\"git\", \"rustup\"]",
        ),
        ("cat: /home/u/.ssh/id_ed25519: No such file or directory", "may hold credentials"),
        (
            "error: could not lock config file /home/u/.gitconfig: Read-only file system",
            "is granted read-only by a preset",
        ),
        (
            "bash: line 1: DATABASE_URL: unbound variable",
            "`env = [\"EDITOR\", \"DATABASE_URL\"]` in [tools.shell] of /c/toolhold.toml",
        ),
        ("KeyError: 'API_BASE'", "\"API_BASE\"]"),
        ("Error: environment variable `SENTRY_DSN` not set", "\"SENTRY_DSN\"]"),
        ("thread 'main' panicked: environment variable not found: \"RPC_URL\"", "\"RPC_URL\"]"),
        ("bash: fork: retry: Resource temporarily unavailable", processes),
        ("RuntimeError: can't start new thread", processes),
        ("fatal: not a git repository: /home/u/main/.git/worktrees/tree", repository),
        ("fatal: not a git repository: /home/u/main/sub/../.git/modules/sub", repository),
        ("fatal: not a git repository: /srv/main.git/worktrees/tree", "[\".\", \"/srv/main.git\"]"),
        (
            "error: Couldn't load public key /home/u/.ssh/sign.pub: No such file or directory?\n\nfatal: failed to write commit object",
            "`allowed_paths = [\".\", { path = \"~/.ssh\", access = \"read\" }]` in [tools.shell]",
        ),
        (
            "error: gpg failed to sign the data:\ngpg: signing failed: No secret key",
            "`git -c commit.gpgsign=false commit`",
        ),
        ("==9==LeakSanitizer has encountered a fatal error.", "`ASAN_OPTIONS=detect_leaks=0`"),
        ("dd: error writing 'x': File too large", "file_mib = 8192` in [tools.shell.limits]"),
        (
            "OSError: [Errno 24] Too many open files: 'x'",
            "open_files = 8192` in [tools.shell.limits]",
        ),
        ("dd: error writing '/tmp/x': No space left on device", scratch),
        ("npm error ENOSPC: no space left on device, write '/home/u/.npm/_logs/x.log'", scratch),
    ] {
        let notices = advise(&advisor(), stderr);
        match expected {
            "" => assert_eq!(notices, [""; 0], "{stderr}"),
            expected => assert!(
                matches!(&notices[..], [notice] if notice.contains(expected)),
                "{stderr}: {notices:?}"
            ),
        }
    }
    let advise_code = |code| {
        advisor().advise(&FailedCommand {
            code: Some(code),
            stdout: "",
            stderr: "",
            network: false,
            path_rules: None,
        })
    };
    assert!(advise_code(153)[0].contains("file_mib = 8192"));
    assert!(advise_code(152)[0].contains("cpu_secs = 7200"));
    assert!(advise_code(1).is_empty());
}

#[test]
fn repository_around_a_granted_subfolder_is_named() {
    let root = tempfile::tempdir().expect("a folder");
    let mono = root.path().join("mono");
    std::fs::create_dir_all(mono.join("pkg/a")).expect("a folder is made");
    let mut context = context();
    context.directory = mono.join("pkg/a");
    let grant =
        Grant { path: mono.join("pkg/a"), access: Access::Write, place: "[tools.shell]".into() };
    context.rules = FileRules::new(vec![grant], Vec::new());
    let advisor = SandboxAdvisor { context };
    let said = "fatal: not a git repository (or any parent up to mount point /)";
    assert_eq!(advise(&advisor, said), [""; 0]);
    std::fs::create_dir(mono.join(".git")).expect("a folder is made");
    let line = format!("`allowed_paths = [\".\", \"{}\"]` in [tools.shell]", mono.display());
    let notices = advise(&advisor, said);
    assert!(matches!(&notices[..], [notice] if notice.contains(&line)), "{notices:?}");
}

#[test]
fn other_failures_get_no_advice() {
    for stderr in [
        "error[E0308]: mismatched types\n --> src/main.rs:3:5",
        "make: *** No rule to make target 'all'.  Stop.",
        "cat: x.txt: No such file or directory",
        "cat: ./src/x.txt: No such file or directory",
        "cat: /home/u/work/x.txt: No such file or directory",
        "ls: cannot access '/usr/lib/nothing': No such file or directory",
        "ls: cannot access '/no-such-root/x': No such file or directory",
        "cat: /tmp/x: No such file or directory",
        "bash: ./run.sh: Permission denied",
        "bash: line 1: /usr/bin/x: Permission denied",
        "bash: foo: command not found",
        "ls: cannot access '/': Permission denied",
        "cat: /home/u/.hidden: No such file or directory",
        "cat: /home/u: Permission denied",
        "error: the symbol `E_FOO` is not defined here\nFAILED tests/x.py::test - AssertionError: assert 1 == 2",
        "variable 'x' is not set",
        "ERROR is not set",
        "PATH: unbound variable",
        "EDITOR: unbound variable",
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "java.lang.OutOfMemoryError: Java heap space",
        // No memory is refused: a command that reaches `memory_mib` is stopped.
        "MemoryError",
        "memory allocation of 1073741824 bytes failed",
        "read: Resource temporarily unavailable",
        "ENOSPC: System limit for number of file watchers reached, watch '/tmp/x'",
        "write /home/u/work/x: no space left on device",
        "error writing: No space left on device",
        "curl: (7) Failed to connect to 10.1.2.3 port 80: Connection refused",
        "fatal: not a git repository (or any of the parent directories): .git",
        "see https://example.com/no/such/file: No such file or directory",
        "",
    ] {
        let notices = advise(&advisor(), stderr);
        assert!(
            notices.is_empty() || stderr.contains("E_FOO") && notices.len() == 1,
            "{stderr}: {notices:?}"
        );
    }
}

#[test]
fn granted_network_or_missing_sandbox_gets_no_advice() {
    let failed = |advisor: &SandboxAdvisor, network| {
        advisor.advise(&FailedCommand {
            code: Some(6),
            stdout: "",
            stderr: "curl: (6) Could not resolve host: example.com",
            network,
            path_rules: None,
        })
    };
    assert!(failed(&advisor(), true).is_empty());
    assert_eq!(failed(&advisor(), false).len(), 1);
    let off = SandboxAdvisor { context: ProcessContext { sandboxed: false, ..context() } };
    assert!(
        failed(&off, false).is_empty()
            && advise(&off, "cat: /home/u/other/x.txt: No such file or directory").is_empty()
    );
    assert!(advise(&off, "bash: fork: retry: Resource temporarily unavailable").is_empty());
    assert_eq!(advise(&off, "X_Y: unbound variable").len(), 1);
}

#[test]
fn network_advice_depends_on_the_grant() {
    let notice = |network, kind, table: &str| {
        let advisor = SandboxAdvisor {
            context: ProcessContext { network, kind, table: table_of(table), ..context() },
        };
        advise(&advisor, "connect: Network is unreachable").remove(0)
    };
    assert!(notice(NetworkGrant::Deny, ProcessKind::Shell, "tools.shell").contains(
        "`network = \"ask\"` in [tools.shell] of /c/toolhold.toml, where `network` is \"deny\" now"
    ));
    assert!(
        notice(NetworkGrant::Allow, ProcessKind::Shell, "tools.shell")
            .contains("needs no approval")
    );
    assert_eq!(
        notice(NetworkGrant::Deny, ProcessKind::Plugin, "plugins.x"),
        "The command couldn't reach a host. To grant a host: `hosts = [\"HOST\"]` in [plugins.x] of \
         /c/toolhold.toml. To grant the whole network: `network = true` there."
    );
}

#[test]
fn interpreter_of_a_plugin_gets_advice_about_the_host_that_it_names() {
    let context = ProcessContext {
        network: NetworkGrant::Deny,
        kind: ProcessKind::Plugin,
        table: table_of("plugins.x"),
        ..context()
    };
    let advisor = SandboxAdvisor { context };
    for (stderr, host) in [
        ("TypeError: fetch failed", "HOST"),
        (
            "TypeError: fetch failed\n  [cause]: Error: getaddrinfo ENOTFOUND api.example.com",
            "api.example.com",
        ),
        ("Error: getaddrinfo EAI_AGAIN api.example.com", "api.example.com"),
    ] {
        let notices = advise(&advisor, stderr);
        let line = format!("To grant a host: `hosts = [\"{host}\"]` in [plugins.x]");
        assert!(matches!(&notices[..], [notice] if notice.contains(&line)), "{notices:?}");
    }
    // A plugin's `localhost` is private with hosts, too.
    let refused = advise(&advisor, "Error: connect ECONNREFUSED 127.0.0.1:5432");
    assert!(refused[0].contains("`network = true` in [plugins.x]"), "{refused:?}");
}

#[test]
fn hostile_output_gets_few_short_neutral_notices() {
    let many: String = (0..10_000)
        .map(|n| format!("cat: /home/u/d{n}/x.txt: No such file or directory\n"))
        .collect();
    assert_eq!(advise(&advisor(), &many).len(), MAX_NOTICES);
    let long = format!("cat: /home/u/{}/x.txt: No such file or directory", "y".repeat(10_000));
    let odd = "cat: /home/u/\u{1b}[2J\u{202e}x/y.txt: No such file or directory";
    for stderr in
        [long.as_str(), odd, "é".repeat(20_000).as_str(), &"/".repeat(20_000), &"'".repeat(20_000)]
    {
        for notice in advise(&advisor(), stderr) {
            assert!(
                notice.len() < 30_000 && !notice.contains(['\u{1b}', '\n', '\u{202e}']),
                "{notice:?}"
            );
        }
    }
}

#[test]
fn advice_does_not_reveal_whether_a_path_exists() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let home = root.path().canonicalize().expect("the folder exists");
    std::fs::create_dir(home.join("real")).expect("a folder is made");
    std::fs::write(home.join("real/secret.txt"), "x").expect("a file is written");
    let context = ProcessContext {
        home: Some(home.clone()),
        directory: Path::new("/elsewhere").into(),
        ..context()
    };
    let advisor = SandboxAdvisor { context };
    let notices = |name: &str| {
        let stderr =
            format!("cat: {}/{name}/secret.txt: No such file or directory", home.display());
        advise(&advisor, &stderr)
            .into_iter()
            .map(|notice| notice.replace(name, "NAME"))
            .collect::<Vec<_>>()
    };
    assert_eq!(notices("real"), notices("fake"));
    assert_eq!(notices("real").len(), 1);
}

#[test]
fn advice_on_a_server_names_the_line_of_its_table() {
    let context = ProcessContext {
        kind: ProcessKind::Server,
        network: NetworkGrant::Deny,
        table: table_of("mcp.servers.x"),
        directory: "/home/u/elsewhere".into(),
        ..context()
    };
    let advisor = SandboxAdvisor { context };
    let place = "in [mcp.servers.x] of /c/toolhold.toml";
    for (words, line) in [
        (
            "Error: getaddrinfo EAI_AGAIN api.example.com",
            "The server had no network. To grant a host: `hosts = [\"api.example.com\"]` in",
        ),
        ("TypeError: fetch failed", "To grant a host: `hosts = [\"HOST\"]` in"),
        ("EACCES: permission denied, open '/home/u/notes/a.md'", "the server sees"),
        ("2026/11/30 09:00:00 open /home/u/notes/a.md: permission denied", "\"~/notes\""),
        ("KeyError: 'X_TOKEN'", "Servers don't get the variable `X_TOKEN`."),
        ("rustup could not choose a version of rustc", "`presets = [\"git\", \"rustup\"]`"),
    ] {
        let advice = advisor.advise_on_words(words, false);
        assert!(advice.len() == 1 && advice[0].contains(line), "{words}: {advice:?}");
        assert!(advice[0].contains(place), "{words}: {advice:?}");
    }
    assert!(advisor.advise_on_words("there is no such note", false).is_empty());
    // A server chooses its words, and gets no keys and no hooks by them.
    for words in [
        "error: Couldn't load public key /home/u/.ssh/sign.pub: No such file or directory",
        "error: could not write config file .git/config: Device or resource busy",
        "cat: /home/u/.ssh/id_ed25519: No such file or directory",
    ] {
        let advice = advisor.advise_on_words(words, false);
        assert!(!advice.concat().contains("allowed_paths"), "{words}: {advice:?}");
    }
    assert!(advisor.advise_on_words("getaddrinfo EAI_AGAIN api.example.com", true).is_empty());
    let context = ProcessContext { network: NetworkGrant::Allow, ..advisor.context };
    let connected = SandboxAdvisor { context };
    assert!(connected.advise_on_words("getaddrinfo EAI_AGAIN api.example.com", false).is_empty());
}
