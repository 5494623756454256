//! Finds the command in the arguments of wrappers such as `sudo` and `env`.

use super::word::Word;

/// A program that runs the last part of its arguments as a command.
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// Options with a value. The value is the next word, or follows a short option directly.
    values: &'static [&'static str],
    /// Options without a value. `--*=` stands for all long options with a value in the same word.
    flags: &'static [&'static str],
    /// Number of words between the options and the command.
    words: usize,
    assignments: bool,
}

const fn wrapper(
    name: &'static str,
    values: &'static [&'static str],
    flags: &'static [&'static str],
    words: usize,
) -> Wrapper {
    Wrapper { name, values, flags, words, assignments: false }
}

const SUDO_VALUES: &[&str] =
    &["-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "-U", "-D", "-R", "--user", "--group"];

const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        name: "env",
        values: &["-u", "--unset", "-C", "--chdir"],
        flags: &[
            "-i",
            "-",
            "-0",
            "-v",
            "--ignore-environment",
            "--null",
            "--debug",
            "--block-signal",
            "--default-signal",
            "--ignore-signal",
        ],
        words: 0,
        assignments: true,
    },
    Wrapper {
        name: "sudo",
        values: SUDO_VALUES,
        flags: &["-A", "-b", "-E", "-H", "-n", "-P", "-S", "-i", "-s", "-k"],
        words: 0,
        assignments: true,
    },
    wrapper(
        "run0",
        &["-u", "-g", "-D", "--user", "--group", "--chdir", "--setenv", "--unit", "--nice"],
        &["--pipe", "--pty", "--*="],
        0,
    ),
    wrapper("doas", &["-u", "-C"], &["-n", "-s", "-L"], 0),
    wrapper("command", &[], &["-p"], 0),
    wrapper("builtin", &[], &[], 0),
    wrapper("exec", &["-a"], &["-c", "-l"], 0),
    wrapper("nice", &["-n", "--adjustment"], &[], 0),
    wrapper("ionice", &["-c", "-n", "--class", "--classdata"], &["-t", "--ignore"], 0),
    wrapper("nohup", &[], &[], 0),
    wrapper("setsid", &[], &["-c", "-f", "-w", "--ctty", "--fork", "--wait"], 0),
    wrapper("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"], &[], 0),
    // A reserved word of shells, so assignments can follow it.
    Wrapper {
        name: "time",
        values: &["-f", "-o", "--format", "--output"],
        flags: &["-p", "-v", "-a", "-q", "--verbose", "--portability", "--append"],
        words: 0,
        assignments: true,
    },
    wrapper(
        "timeout",
        &["-s", "-k", "--signal", "--kill-after"],
        &["-v", "-p", "-f", "--verbose", "--foreground", "--preserve-status"],
        1,
    ),
    wrapper("chrt", &["-T", "-P", "-D"], &["-f", "-r", "-o", "-b", "-i", "-v"], 1),
    wrapper("taskset", &[], &["-a", "-c"], 1),
    wrapper("numactl", &["-N", "-m", "-i", "-p", "-C"], &["-l", "--localalloc", "--*="], 0),
    wrapper("linux32", &[], &["-R"], 0),
    wrapper("linux64", &[], &["-R"], 0),
    wrapper("catchsegv", &[], &[], 0),
    wrapper("eatmydata", &[], &[], 0),
    wrapper(
        "xvfb-run",
        &["-n", "-s", "-e", "-f", "-w"],
        &["-a", "-l", "--auto-servernum", "--*="],
        0,
    ),
    wrapper("dbus-run-session", &[], &["--*="], 0),
    wrapper("valgrind", &[], &["-v", "-q", "--*="], 0),
    wrapper(
        "ltrace",
        &["-e", "-o", "-n", "-s", "-u", "-x", "-l"],
        &["-f", "-c", "-C", "-i", "-r", "-S", "-t", "-T"],
        0,
    ),
    wrapper("rlwrap", &[], &[], 0),
    wrapper("torsocks", &[], &["-q", "-d", "-i"], 0),
    wrapper("proxychains", &["-f"], &["-q"], 0),
    wrapper("proxychains4", &["-f"], &["-q"], 0),
    wrapper("fakechroot", &[], &[], 0),
    wrapper("setuidgid", &[], &[], 1),
    wrapper("gosu", &[], &[], 1),
    wrapper("su-exec", &[], &[], 1),
    Wrapper { name: "cross-env", values: &[], flags: &[], words: 0, assignments: true },
    wrapper(
        "ssh",
        &[
            "-B", "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O",
            "-o", "-P", "-p", "-Q", "-R", "-S", "-W", "-w",
        ],
        &[
            "-4", "-6", "-A", "-a", "-C", "-f", "-G", "-g", "-K", "-k", "-M", "-N", "-n", "-q",
            "-s", "-T", "-t", "-V", "-v", "-X", "-x", "-Y", "-y",
        ],
        1,
    ),
    wrapper("chroot", &["--userspec", "--groups"], &["--skip-chdir"], 1),
    wrapper(
        "unshare",
        &["-S", "-G", "-R", "-w"],
        &[
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "-U",
            "-C",
            "-T",
            "-f",
            "-r",
            "-c",
            "--fork",
            "--pid",
            "--net",
            "--mount",
            "--user",
            "--map-root-user",
        ],
        0,
    ),
    wrapper(
        "flock",
        &["-w", "-E", "--timeout", "--conflict-exit-code"],
        &["-s", "-x", "-e", "-u", "-n", "-o", "-F"],
        1,
    ),
    wrapper(
        "watch",
        &["-n", "--interval"],
        &["-b", "-c", "-d", "-e", "-g", "-p", "-t", "-w", "-x"],
        0,
    ),
    wrapper(
        "nsenter",
        &["-t", "-S", "-G", "--target", "--setuid", "--setgid"],
        &["-m", "-u", "-i", "-n", "-p", "-U", "-C", "-T", "-r", "-w", "-F", "-a"],
        0,
    ),
    wrapper("pkexec", &[], &[], 0),
    wrapper("setpriv", &[], &[], 0),
    wrapper("prlimit", &[], &[], 0),
    wrapper("systemd-run", &[], &[], 0),
    wrapper("fakeroot", &[], &[], 0),
    wrapper("unbuffer", &[], &[], 0),
    wrapper(
        "strace",
        &["-o", "-e", "-p", "-s", "-a", "-u", "-E"],
        &["-f", "-ff", "-c", "-q", "-t", "-tt", "-T", "-v", "-y"],
        0,
    ),
    wrapper("busybox", &[], &[], 0),
    wrapper("toybox", &[], &[], 0),
    wrapper(
        "xargs",
        &[
            "-n",
            "-P",
            "-I",
            "-L",
            "-d",
            "-s",
            "-a",
            "-E",
            "--max-args",
            "--max-procs",
            "--max-lines",
            "--delimiter",
            "--arg-file",
            "--max-chars",
        ],
        &[
            "-0",
            "-r",
            "-t",
            "-p",
            "-x",
            "-o",
            "--null",
            "--no-run-if-empty",
            "--verbose",
            "--interactive",
            "--exit",
        ],
        0,
    ),
    wrapper(
        "parallel",
        &["-j", "--jobs", "-n", "-N", "-I", "-a", "-d"],
        &["-k", "-0", "-t", "-u", "--keep-order", "--verbose", "--ungroup"],
        0,
    ),
];

pub(super) enum Started<'w> {
    /// The command, which may be empty, and the `NAME=value` words before it.
    Words {
        set: Vec<&'w Word>,
        command: &'w [Word],
    },
    Unclear,
}

pub(super) fn named(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

impl Wrapper {
    /// Checks whether the wrapper may start a program that its arguments don't name: a shell, or a
    /// command from its input.
    pub(super) fn may_start_unnamed(&self) -> bool {
        [
            "chroot",
            "dbus-run-session",
            "doas",
            "fakeroot",
            "nsenter",
            "parallel",
            "pkexec",
            "run0",
            "ssh",
            "sudo",
            "systemd-run",
            "unshare",
        ]
        .contains(&self.name)
    }

    pub(super) fn started<'w>(&self, mut words: &'w [Word]) -> Started<'w> {
        // `command -v x` only prints the path of `x`.
        if self.name == "command"
            && let Some(option) = words.first()
            && ["-v", "-V"].contains(&option.text.as_str())
        {
            return Started::Words { set: Vec::new(), command: &[] };
        }

        while let Some((word, rest)) = words.split_first() {
            let text = word.text.as_str();
            if !text.starts_with('-') || (text == "-" && !self.flags.contains(&"-")) {
                break;
            }
            words = rest;
            if text == "--" {
                break;
            }
            if word.open {
                return Started::Unclear;
            }
            let name = text.split('=').next().unwrap_or_default();
            let has_own_value = name != text;
            if self.values.contains(&name) {
                if !has_own_value {
                    words = words.get(1..).unwrap_or_default();
                }
                continue;
            }
            let is_known = if text.starts_with("--") {
                self.flags.contains(&text) || (has_own_value && self.flags.contains(&"--*="))
            } else {
                self.is_short_options(text)
            };
            if !is_known {
                return Started::Unclear;
            }
        }

        let mut set = Vec::new();
        if self.assignments {
            // The text before `=` doesn't have to be a valid name.
            while let Some((word, rest)) = words.split_first()
                && word.text.contains('=')
            {
                set.push(word);
                words = rest;
            }
        }
        Started::Words { set, command: words.get(self.words..).unwrap_or_default() }
    }

    /// Checks whether a word is one or more short options, or a number for `nice`. The last option
    /// may have its value in the same word: `-n5`, `-0r`.
    fn is_short_options(&self, text: &str) -> bool {
        if self.flags.contains(&text) || text[1..].bytes().all(|byte| byte.is_ascii_digit()) {
            return true;
        }
        let mut letters = text.chars().skip("-".len());
        let are_flags = letters.all(|letter| self.flags.contains(&format!("-{letter}").as_str()));
        let has_value =
            self.values.iter().any(|option| option.len() == "-n".len() && text.starts_with(option));
        are_flags || has_value
    }
}
