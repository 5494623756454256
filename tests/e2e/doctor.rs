//! `toolhold doctor` in broken environments: it finds what is wrong, still checks the rest, and its
//! advice works.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use seccompiler::{SeccompAction, SeccompFilter};
use serde_json::{Value, json};
use toolhold_contract::BUILT_IN_PLUGINS;

use crate::support::server::Authority;
use crate::support::{Cli, Ended, NEWEST_LANDLOCK, not_tried, output_under, plugin, toolhold};

/// The findings of the doctor.
struct Report(Value);

impl Report {
    #[track_caller]
    fn parse(ended: Ended) -> Self {
        let report = Self(ended.json());
        let failures = report.0["summary"]["failures"].as_u64().expect("it is a number");
        assert_eq!(report.0["ok"], json!(failures == 0));
        assert_eq!(ended.code, if failures == 0 { 0 } else { 4 }, "{}", report.0);
        for finding in report.all() {
            assert_eq!(
                finding["state"] == "ok",
                finding["fix"].is_null(),
                "what is wrong can be mended: {finding}"
            );
        }
        report
    }

    fn all(&self) -> &[Value] {
        self.0["findings"].as_array().expect("it is a list")
    }

    #[track_caller]
    fn finding(&self, group: &str, name: &str) -> &Value {
        let found =
            self.all().iter().find(|finding| finding["group"] == group && finding["name"] == name);
        found.unwrap_or_else(|| panic!("nothing is said of {name}: {}", self.0))
    }

    /// A finding has `state` and says `words`.
    #[track_caller]
    fn expect(&self, group: &str, name: &str, state: &str, words: &str) -> &Value {
        let finding = self.finding(group, name);
        assert_eq!(finding["state"], json!(state), "{finding}");
        assert!(
            finding["found"].as_str().is_some_and(|found| found.contains(words)),
            "{words:?} is not said: {finding}"
        );
        finding
    }
}

/// Runs the doctor with a cache of its own, so that nothing of other tests is there.
fn doctor(cli: &Cli) -> Command {
    let mut command = cli.command(&["doctor", "--json"]);
    command.env("TOOLHOLD_CACHE_DIR", cli.root.path().join("cache"));
    command
}

#[track_caller]
fn examined(command: &mut Command) -> Report {
    Report::parse(Ended::from_output(command.output().expect("toolhold starts")))
}

/// The doctor after a line of a shell.
#[track_caller]
fn after(cli: &Cli, line: &str) -> Output {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{line} && exec \"$0\" doctor --json")])
        .arg(toolhold())
        .current_dir(cli.work())
        .env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    for (name, value) in doctor(cli).get_envs() {
        command.env(name, value.expect("it is set"));
    }
    command.output().expect("a shell starts")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
}

#[test]
fn doctor_finds_a_healthy_machine_healthy() {
    let cli = Cli::new();
    let report = examined(&mut doctor(&cli));
    assert_eq!(report.0["ok"], json!(true), "{}", report.0);
    report.expect("Kernel", "openat2", "ok", "file names can't lead out of a granted directory");
    report.expect("Kernel", "system call filter", "ok", "enforced");
    report.expect("Engine", "compiling", "ok", "in a confined process");
    report.finding("Process sandbox", "sandbox");
    report.expect("Engine", "built-in `file`", "ok", "compiled ahead");
    report.expect("Plugins", "file", "ok", "10 tools");
    assert_eq!(report.finding("Plugins", "shell")["found"], json!("1 tool"));
    report.expect("Plugins", "modules of code", "ok", "modules");
    report.expect("Configuration", "file", "ok", "the defaults apply");
    report.expect("Agent", "model of the agent", "ok", "`toolhold models`");
    let report = examined(doctor(&cli).env("MISTRAL_API_KEY", "a-key-of-mistral"));
    report.expect("Agent", "model of the agent", "ok", "with the key of MISTRAL_API_KEY");
    // Now there is a cache from loading; code is added and removed.
    let report = examined(&mut doctor(&cli));
    report.expect("Engine", "compiled code", "ok", "mapped from there");
    // The code of the built-in plugins and what they offer are kept by every start.
    let kept = fs::read_dir(cli.root.path().join("cache/compiled")).expect("it is there").flatten();
    let others = kept.filter(|file| file.path().extension() != Some("offer".as_ref()));
    assert_eq!(others.count(), BUILT_IN_PLUGINS.len(), "nothing else is left behind");
    assert!(!cli.root.path().join("data").exists(), "nothing is made that is not needed");

    let told = Ended::from_output(cli.command(&["doctor"]).output().expect("toolhold starts"))
        .ends(0)
        .stdout;
    assert!(
        told.trim_end().ends_with("Toolhold works here.") && told.starts_with("Kernel\n"),
        "{told}"
    );
}

#[test]
fn missing_parsers_are_named_and_search_code_says_who_tells_more() {
    let cli = Cli::new();
    let folder = cli.root.path().join("bin");
    fs::create_dir_all(folder.join("parts")).expect("folders are made");
    let program = folder.join("toolhold");
    fs::copy(toolhold(), &program).expect("the program is copied");
    // One of another build is none.
    fs::write(folder.join("parts/rust.wasm"), "\0asm").expect("it is written");
    fs::write(cli.work().join("a.rs"), "fn here() {}\n").expect("it is written");
    let run = |line: &[&str]| {
        let from = cli.command(line);
        let mut command = Command::new(&program);
        command.args(line).current_dir(cli.work()).env_clear();
        for (name, value) in from.get_envs() {
            command.env(name, value.expect("it is set"));
        }
        // Another test has left the code of the parsers in the shared one.
        command.env("TOOLHOLD_CACHE_DIR", cli.root.path().join("cache"));
        // A test beside this one may have begun a process while the copy was open for writing.
        let output = loop {
            match command.output() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
                output => break output.expect("toolhold starts"),
            }
        };
        Ended::from_output(output)
    };
    let found = run(&["call", "search_code", "symbol=here"]).ends(0).stdout;
    let notice = found.lines().find(|line| line.contains("aren't known")).expect("it says so");
    assert!(notice.contains("rust") && notice.contains("`toolhold doctor`"), "{notice}");
    assert!(notice.len() < 250, "{notice}");
    let outline = run(&["call", "search_code", "outline=a.rs"]);
    assert!(outline.stderr.contains("try: ") && outline.stderr.contains("`toolhold doctor`"));
    let report = Report::parse(run(&["doctor", "--json"]));
    let finding =
        report.expect("Plugins", "modules of code", "warning", &folder.display().to_string());
    let found = finding["found"].as_str().expect("it is a text");
    assert!(found.contains("rust") && found.contains("python"), "{found}");
    assert!(
        finding["fix"].as_str().is_some_and(|fix| fix.contains("install Toolhold")),
        "{finding}"
    );
}

#[test]
fn doctor_finds_missing_namespaces_and_names_the_setting() {
    let there =
        Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|status| status.success());
    if !there {
        not_tried("unshare");
        return;
    }
    let cli = Cli::new();
    let after = |line: &str| {
        let mut command = Command::new("unshare");
        let line = format!("{line} && exec \"$0\" doctor --json");
        command.args(["-Ur", "sh", "-c", &line]).arg(toolhold());
        command.current_dir(cli.work()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, value) in doctor(&cli).get_envs() {
            command.env(name, value.expect("it is set"));
        }
        examined(&mut command)
    };
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces";
    let report = after(forbid);
    report.expect("Process sandbox", "sandbox", "warning", "no command starts: namespaces");
    let fix = report.expect(
        "Process sandbox",
        "namespaces",
        "warning",
        "missing (namespaces can't be set up: ",
    )["fix"]
        .as_str()
        .expect("there is one")
        .to_owned();
    assert_eq!(fix, "sysctl user.max_user_namespaces=15000");
    // The rest is checked nevertheless.
    report.expect("Process sandbox", "filter of system calls", "ok", "enforced");
    // The setting helps.
    let (name, value) = fix.trim_start_matches("sysctl ").split_once('=').expect("it is a setting");
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let report = after(&format!("{forbid} && echo {value} > {path}"));
    report.expect(
        "Process sandbox",
        "namespaces",
        "ok",
        "commands have private users, mounts, processes and network",
    );
}

/// As under Docker's filter.
#[test]
fn doctor_finds_a_filter_that_forbids_namespaces_and_names_the_option() {
    const UNSHARE: i64 = if cfg!(target_arch = "x86_64") { 272 } else { 97 };
    const EPERM: u32 = 1;
    let architecture = std::env::consts::ARCH.try_into().expect("it is known");
    let filter = SeccompFilter::new(
        [(UNSHARE, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(EPERM),
        architecture,
    );
    let filter = filter.and_then(TryInto::try_into).expect("it is a filter");
    let cli = Cli::new();
    let report = Report::parse(Ended::from_output(output_under(&[filter], &mut doctor(&cli))));
    report.expect("Process sandbox", "sandbox", "warning", "no command starts: namespaces");
    let fix = &report.expect(
        "Process sandbox",
        "namespaces",
        "warning",
        "missing (namespaces can't be set up: ",
    )["fix"];
    let fix = fix.as_str().expect("there is one");
    assert!(fix.contains("docker run --security-opt seccomp=unconfined"), "{fix}");
}

#[test]
fn doctor_names_the_kernel_that_landlock_needs() {
    for (newest, state, found) in [
        ("0", "warning", "not supported by this kernel, so only mounts protect files"),
        ("1", "warning", "version 1 isn't used, so only mounts protect files"),
        (
            "2",
            "ok",
            "version 2; commands with the network can create Unix sockets only with version 6",
        ),
    ] {
        let cli = Cli::new();
        let report = examined(doctor(&cli).env(NEWEST_LANDLOCK, newest));
        report.expect("Process sandbox", "sandbox", "ok", "strict: ");
        let landlock = report.expect("Process sandbox", "Landlock", state, found);
        if state == "warning" {
            let fix = landlock["fix"].as_str().expect("there is one");
            assert!(fix.starts_with("use Linux 5.19 or later"), "{fix}");
        }
    }
}

#[test]
fn folders_that_others_write_to_are_found_and_the_fix_mends_them() {
    let cli = Cli::new();
    for (name, finding) in [("data", "data"), ("config", "configuration")] {
        let folder = cli.root.path().join(name);
        fs::create_dir_all(&folder).expect("a folder is made");
        set_mode(&folder, 0o777);
        let report = examined(&mut doctor(&cli));
        let fix = report.expect("Folders", finding, "failure", "other users can write")["fix"]
            .as_str()
            .expect("there is one")
            .to_owned();
        assert!(
            Command::new("sh").args(["-c", &fix]).status().expect("a shell starts").success(),
            "{fix}"
        );
        examined(&mut doctor(&cli)).expect("Folders", finding, "ok", "mode 700");
    }
}

#[test]
fn doctor_finds_an_unwritable_record() {
    let cli = Cli::new();
    let write = ["--set", "tools.autonomy=full", "call", "write", "path=new.txt", "content=x"];
    cli.run(&write).ends(0);
    fs::remove_file(cli.work().join("new.txt")).expect("it is removed");
    let data = cli.root.path().join("data");
    for (path, mode, group, name, words) in [
        (
            data.join("audit"),
            0o755,
            "Audit",
            "audit log",
            "data/audit: other users have access (mode 755)",
        ),
        (
            data.join("audit/head"),
            0o666,
            "Audit",
            "audit log",
            "other users have access (mode 666)",
        ),
        (data.clone(), 0o775, "Folders", "data", "data: other users can write"),
    ] {
        let before = fs::metadata(&path).expect("it is there").permissions();
        set_mode(&path, mode);
        examined(&mut doctor(&cli)).expect(group, name, "failure", words);
        let told = cli.run(&write).stderr;
        assert!(
            told.contains("permanent_failure/audit")
                && told.contains(&format!("{}: other users have access", path.display())),
            "{told}"
        );
        assert!(!cli.work().join("new.txt").exists(), "nothing was done");
        fs::set_permissions(&path, before).expect("its mode is set");
    }
    assert_eq!(examined(&mut doctor(&cli)).0["ok"], json!(true));
}

#[test]
fn unreadable_configuration_gets_no_line_as_advice() {
    let cli = Cli::new();
    cli.configure("");
    let path = cli.root.path().join("config/toolhold.toml");
    let wrong = |what: &str| {
        let report = examined(&mut doctor(&cli));
        let finding =
            report.expect("Configuration", path.to_str().expect("it is text"), "failure", what);
        let fix = finding["fix"].as_str().expect("it can be mended");
        assert!(!fix.contains("line 1") && !fix.contains("schema"), "{finding}");
    };
    set_mode(&path, 0o666);
    wrong("others can write to the file");
    fs::remove_file(&path).expect("it is removed");
    symlink("nowhere", &path).expect("a link is made");
    wrong("it is a link that leads nowhere");
}

#[test]
fn doctor_finds_stored_files_that_others_can_write() {
    let cli = Cli::asking();
    let counted = ["--set", "tools.max_tool_calls_per_session=9", "call", "read", "path=notes.txt"];
    cli.run(&counted).ends(0);
    cli.run(&["call", "write", "path=new.txt", "content=x"]).ends(3);
    let report = examined(&mut doctor(&cli));
    report.expect("Kept", "sessions", "ok", "1 kept");
    report.expect("Kept", "questions", "ok", "1 waiting");
    report.expect("Kept", "approved plugins", "ok", "0 approved");

    let data = cli.root.path().join("data");
    for folder in ["sessions", "questions"] {
        set_mode(&data.join(folder), 0o777);
        examined(&mut doctor(&cli)).expect(
            "Kept",
            folder,
            "failure",
            &format!("data/{folder}: other users have access"),
        );
        set_mode(&data.join(folder), 0o700);
        let files = fs::read_dir(data.join(folder))
            .expect("it is there")
            .map(|entry| entry.expect("it is there").path());
        let file = files
            .into_iter()
            .find(|path| path.extension().is_some_and(|extension| extension == "json"))
            .expect("there is one");
        fs::write(&file, "{").expect("it is damaged");
        examined(&mut doctor(&cli)).expect(
            "Kept",
            folder,
            "failure",
            &format!("{}: the file is damaged", file.display()),
        );
        fs::remove_file(&file).expect("it is removed");
    }
    fs::write(data.join("toolhold.lock"), "{").expect("it is written");
    examined(&mut doctor(&cli)).expect(
        "Kept",
        "approved plugins",
        "failure",
        "data/toolhold.lock: the file is damaged",
    );
    fs::remove_file(data.join("toolhold.lock")).expect("it is removed");
    fs::write(data.join("trusted.json"), "{").expect("it is written");
    fs::write(cli.work().join("toolhold.toml"), "[tools]\nautonomy = \"full\"\n")
        .expect("it is written");
    let report = examined(&mut doctor(&cli));
    report.expect("Kept", "trusted files", "failure", "data/trusted.json: the file is damaged");
    // The project's file isn't used.
    let blamed = report
        .all()
        .iter()
        .filter(|finding| finding["state"] == "failure" && finding["group"] == "Configuration");
    let blamed: Vec<&Value> = blamed.collect();
    assert!(blamed.len() == 1 && !blamed[0].to_string().contains("toolhold.toml"), "{blamed:?}");
    assert!(
        blamed[0]["name"].as_str().is_some_and(|name| name.ends_with("data/trusted.json")),
        "{blamed:?}"
    );
    fs::remove_file(data.join("trusted.json")).expect("it is removed");
    assert_eq!(examined(&mut doctor(&cli)).0["ok"], json!(true));
}

#[test]
fn doctor_names_a_cache_that_is_not_private() {
    let cli = Cli::new();
    let (cache, elsewhere) = (cli.root.path().join("cache"), cli.root.path().join("elsewhere"));
    fs::create_dir_all(&cache).and_then(|()| fs::create_dir(&elsewhere)).expect("folders are made");
    set_mode(&elsewhere, 0o700);
    symlink(&elsewhere, cache.join("compiled")).expect("a link is made");
    let report = examined(&mut doctor(&cli));
    report.expect("Folders", "cache of compiled code", "warning", "is a link");
    report.expect("Engine", "compiled code", "warning", "compiled again in each run");
    assert_eq!(
        fs::read_dir(&elsewhere).expect("it is there").count(),
        0,
        "nothing was put behind the link"
    );

    fs::remove_file(cache.join("compiled"))
        .and_then(|()| fs::create_dir(cache.join("compiled")))
        .expect("it is a folder");
    set_mode(&cache.join("compiled"), 0o755);
    let report = examined(&mut doctor(&cli));
    report.expect("Folders", "cache of compiled code", "warning", "other users can read it");
    report.expect("Engine", "compiled code", "warning", "other users have access");
    assert_eq!(report.0["ok"], json!(true), "Toolhold works without a cache: {}", report.0);
}

#[test]
fn every_problem_of_the_configuration_is_a_finding_and_the_rest_is_examined() {
    let cli = Cli::new();
    cli.configure("[tools]\ncal = 7\nmax_call = \"long\"\n[plugins.\"x\\u001b[2J\"]\n");
    let report = examined(doctor(&cli).env("TOOLHOLD_TOOLS_CAL", "1"));
    let wrong: Vec<String> = report
        .all()
        .iter()
        .filter(|finding| finding["group"] == "Configuration")
        .map(Value::to_string)
        .collect();
    for words in ["`call`", "toolhold.toml:3", "TOOLHOLD_TOOLS_CAL"] {
        assert!(
            wrong.iter().any(|finding| finding.contains("failure") && finding.contains(words)),
            "{words}: {wrong:?}"
        );
    }
    report.expect("Engine", "compiling", "ok", "in a confined process");
    report.expect("Plugins", "loading", "warning", "not tried");
}

#[test]
fn plugin_that_does_not_load_is_a_finding() {
    let cli = Cli::new();
    cli.configure("[plugins.gone]\npath = \"/no/such.wasm\"\n");
    examined(&mut doctor(&cli)).expect("Plugins", "gone", "failure", "/no/such.wasm can't be read");
    cli.configure(&format!("[plugins.hostile]\npath = {:?}\n", plugin("hostile")));
    let held = examined(&mut doctor(&cli));
    assert_eq!(
        held.expect("Plugins", "hostile", "warning", "never approved")["fix"],
        json!("toolhold plugin approve hostile")
    );
    cli.configure("");
    examined(doctor(&cli).arg("--plugin").arg(plugin("hostile")))
        .expect("Plugins", "hostile", "ok", "tools");
}

#[test]
fn plugin_that_is_not_installed_is_named_with_the_command_that_installs_it() {
    let cli = Cli::new();
    cli.configure("[plugins.word]\nsource = \"word.wasm\"\n");
    let ceiling = cli.work().join("ceiling.toml");
    fs::write(&ceiling, "[plugins.\"*\"]\nshell = false\n").expect("it is written");
    let run = |line: &[&str]| {
        let mut command = cli.command(line);
        command.env("TOOLHOLD_CEILING", &ceiling);
        Ended::from_output(command.output().expect("toolhold starts"))
    };
    let report = Report::parse(run(&["doctor", "--json"]));
    let words = "the plugin `word` isn't installed (";
    let finding = report.expect("Plugins", "not installed", "warning", words);
    assert!(finding["found"].as_str().is_some_and(|found| found.contains("toolhold.toml:2)")));
    assert_eq!(finding["fix"], json!("toolhold plugin install"));
    let checked = run(&["config", "check"]).ends(0).stdout;
    assert!(checked.contains(words) && !checked.contains("no plugin is named"), "{checked}");
    let listed = run(&["plugin", "list"]).ends(0).stdout;
    assert!(listed.contains("Not installed: word."), "{listed}");
}

#[test]
fn fix_names_the_file_to_change() {
    let cli = Cli::new();
    let file = cli.root.path().join("config/toolhold.toml").display().to_string();
    cli.configure("[network]\nauthorities = [\"/no/such.pem\"]\n");
    let report = examined(&mut doctor(&cli));
    let fix = &report.expect("Requests", "authority /no/such.pem", "failure", "no request")["fix"];
    let expected = format!("remove it from `authorities` in [network] of {file}");
    assert!(fix.as_str().is_some_and(|fix| fix.contains(&expected)), "{fix}");
    cli.configure("[tools.limits]\nmemory_mib = 4096\n[tools]\nmax_concurrent = 1000\n");
    let report = examined(&mut doctor(&cli));
    let fix = &report.expect("Limits", "memory", "warning", "together")["fix"];
    let expected = format!("`memory_mib` in [tools.limits] of {file}");
    assert!(fix.as_str().is_some_and(|fix| fix.contains(&expected)), "{fix}");
}

#[test]
fn doctor_reports_narrow_limits_with_the_command_that_widens_them() {
    let cli = Cli::new();
    let report = |line: &str| Report::parse(Ended::from_output(after(&cli, line)));
    let files = report("ulimit -n 64");
    assert!(
        files.expect("Limits", "open files", "warning", "64")["fix"]
            .to_string()
            .contains("ulimit -n")
    );
    // Enough for everything but the pool.
    let memory = report("ulimit -v 8388608");
    assert!(
        memory.expect("Engine", "memory pool", "warning", "calls start slower")["fix"]
            .to_string()
            .contains("ulimit -v")
    );
    assert_eq!(memory.0["ok"], json!(true), "{}", memory.0);
}

#[test]
fn doctor_tells_an_unset_home_from_an_unusable_one() {
    let cli = Cli::new();
    let mut command = doctor(&cli);
    // The system's list of users knows it as well.
    examined(command.env_remove("HOME")).expect(
        "Configuration",
        "file",
        "ok",
        "the defaults apply",
    );
    for folder in ["TOOLHOLD_CONFIG_DIR", "TOOLHOLD_DATA_DIR", "TOOLHOLD_CACHE_DIR"] {
        command.env_remove(folder);
    }
    let report = examined(command.env("HOME", "relative"));
    assert!(
        report.expect("Configuration", "folders", "failure", "home directory")["fix"]
            .to_string()
            .contains("HOME")
    );
    report.expect("Engine", "compiling", "ok", "in a confined process");
}

/// Something else mounted in place of the kernel's `/proc`.
#[test]
fn foreign_proc_is_found() {
    let cli = Cli::new();
    let hidden = "mount -t tmpfs none /proc";
    let mut found = None;
    // As root, or else as the root of a user namespace.
    for unshare in ["unshare -m", "unshare -rm"] {
        let line =
            format!("exec {unshare} sh -c '{hidden} && exec \"$0\" doctor --json' \"$0\" && true");
        let ended = after(&cli, &line);
        if !ended.stdout.is_empty() {
            found = Some(Report::parse(Ended::from_output(ended)));
            break;
        }
    }
    match found {
        Some(report) => {
            report.expect("Kernel", "/proc", "failure", "no directory can be granted");
            report.expect(
                "Kernel",
                "openat2",
                "ok",
                "file names can't lead out of a granted directory",
            );
            report.expect("Engine", "compiling", "failure", "can't be compiled");
        }
        // If mount namespaces aren't allowed, `/proc` can only be in order.
        None => {
            examined(&mut doctor(&cli)).expect("Kernel", "/proc", "ok", "the kernel's own");
        }
    }
}

/// Nothing is connected to, read or run for that.
#[test]
fn doctor_checks_requests_and_shows_no_secret() {
    const SECRET: &str = "zq-7731-Wert";
    let cli = Cli::new();
    let config = cli.root.path().join("config");
    fs::write(config.join("token"), SECRET).expect("it is written");
    set_mode(&config.join("token"), 0o644);
    let secrets = "[tools.web.secrets.by-file]\nfile = \"token\"\nhosts = [\"a.example.com\"]\n\
                   [tools.web.secrets.by-variable]\nenv = \"TOKEN\"\nhosts = [\"b.example.com\"]\n\
                   [plugins.word.secrets.by-command]\ncommand = [\"prints-a-secret\"]\nhosts = [\"c.example.com\"]\n";
    cli.configure(&format!("network.authorities = [\"ca.pem\"]\n{secrets}"));
    let run = |variables: &[(&str, &str)]| {
        let mut command = doctor(&cli);
        command.envs(variables.iter().copied()).env("PATH", cli.root.path());
        let report = examined(&mut command);
        assert!(
            !report.0.to_string().contains(SECRET) && !report.0.to_string().contains("hunter2"),
            "{}",
            report.0
        );
        report
    };
    let report = run(&[("HTTPS_PROXY", "socks5://me:hunter2@proxy.example.com:1080")]);
    report.expect("Requests", "proxy", "warning", "the value of HTTPS_PROXY isn't an HTTP proxy");
    let authority = format!("authority {}", config.join("ca.pem").display());
    report.expect("Requests", &authority, "failure", "no request can be sent");
    // A file in the form of a certificate that isn't valid.
    fs::write(
        config.join("ca.pem"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .expect("it is written");
    run(&[]).expect("Requests", &authority, "failure", "no request can be sent");
    let file = report.expect(
        "Requests",
        "secret by-file",
        "warning",
        "other users can read or change the secret",
    );
    assert!(file["found"].as_str().is_some_and(|found| found.contains("chmod 600")), "{file}");
    let variable = report.expect(
        "Requests",
        "secret by-variable",
        "warning",
        "the variable `TOKEN` is not set",
    );
    assert!(
        variable["fix"].as_str().is_some_and(|fix| fix.contains("[tools.web.secrets.by-variable]")),
        "{variable}"
    );
    report.expect(
        "Requests",
        "secret by-command",
        "warning",
        "program `prints-a-secret` not found",
    );

    fs::copy(Authority::new().file(), config.join("ca.pem")).expect("it is copied");
    set_mode(&config.join("token"), 0o600);
    let program = cli.root.path().join("prints-a-secret");
    fs::write(&program, format!("#!/bin/sh\necho {SECRET} | tee \"$0.ran\"\n"))
        .expect("it is written");
    set_mode(&program, 0o700);
    let report =
        run(&[("HTTPS_PROXY", "http://me:hunter2@proxy.example.com:3128"), ("TOKEN", SECRET)]);
    for name in ["proxy", &authority, "secret by-file", "secret by-variable", "secret by-command"] {
        report.expect("Requests", name, "ok", "");
    }
    assert!(!cli.root.path().join("prints-a-secret.ran").exists(), "nothing is run");
    // Reported without its value, whatever else is wrong with it.
    fs::remove_file(config.join("token")).expect("it is removed");
    run(&[("TOKEN", SECRET)]).expect("Requests", "secret by-file", "warning", "can't be read");
}

#[test]
fn secret_that_no_request_can_carry_is_reported() {
    let cli = Cli::new();
    let table = "[plugins.word]\nhosts = [\"https://api.example.com:8443\"]\n[plugins.word.secrets.key]\nenv = \"TOKEN\"\n";
    cli.configure(&format!("{table}hosts = [\"api.example.com\"]\n"));
    let report = examined(doctor(&cli).env("TOKEN", "zq-7731-Wert"));
    let found = report.expect("Requests", "hosts of secret key", "warning", "`word`");
    assert!(found["fix"].as_str().is_some_and(|fix| fix.contains("[plugins.word.secrets.key]")));
    cli.configure(&format!("{table}hosts = [\"https://api.example.com:8443\"]\n"));
    let report = examined(doctor(&cli).env("TOKEN", "zq-7731-Wert"));
    assert!(!report.0.to_string().contains("hosts of secret"), "{}", report.0);
}
