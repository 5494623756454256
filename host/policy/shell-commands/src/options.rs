//! Skips the options between a program and its subcommand: `git -C . push` is `git push`.
//!
//! A rule about `git push` must match all spellings of this command. For this reason, a rule that
//! denies or asks also matches the command without these options. An unknown option may or may not
//! take the next word, so both readings are tried.

use super::word::Word;

/// The maximum number of readings of one program. A program with more readings is unresolved.
const MAX_READINGS: usize = 256;

struct Options {
    programs: &'static [&'static str],
    /// Options that take the next word, unless their value is in the same word.
    values: &'static [&'static str],
    flags: &'static [&'static str],
}

/// The usual git commands, which an alias can't replace.
pub(super) const GIT_COMMANDS: [&str; 63] = [
    "add",
    "am",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-ignore",
    "checkout",
    "cherry-pick",
    "clean",
    "clone",
    "commit",
    "config",
    "describe",
    "diff",
    "diff-tree",
    "difftool",
    "fetch",
    "filter-branch",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "grep",
    "hash-object",
    "help",
    "init",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "maintenance",
    "merge",
    "merge-base",
    "mergetool",
    "mv",
    "notes",
    "prune",
    "pull",
    "push",
    "range-diff",
    "rebase",
    "reflog",
    "remote",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "send-email",
    "shortlog",
    "show",
    "show-ref",
    "stash",
    "status",
    "submodule",
    "switch",
    "tag",
    "worktree",
];

const OPTIONS: &[Options] = &[
    Options {
        programs: &["git"],
        values: &[
            "-c",
            "-C",
            "--git-dir",
            "--work-tree",
            "--namespace",
            "--config-env",
            "--super-prefix",
            "--attr-source",
            "--list-cmds",
        ],
        flags: &[
            "-p",
            "-P",
            "--paginate",
            "--no-pager",
            "--bare",
            "--no-replace-objects",
            "--no-lazy-fetch",
            "--no-optional-locks",
            "--no-advice",
            "--literal-pathspecs",
            "--glob-pathspecs",
            "--noglob-pathspecs",
            "--icase-pathspecs",
            "--exec-path",
            "--html-path",
            "-v",
            "--version",
            "-h",
            "--help",
        ],
    },
    Options {
        programs: &["cargo"],
        values: &["-C", "-Z", "--color", "--config", "--manifest-path", "--explain"],
        flags: &[
            "-q",
            "-v",
            "-vv",
            "--quiet",
            "--verbose",
            "--locked",
            "--offline",
            "--frozen",
            "-V",
            "--version",
            "-h",
            "--help",
            "--list",
        ],
    },
    Options {
        programs: &["npm", "pnpm", "yarn", "bun"],
        values: &[
            // `yarn workspace NAME add`.
            "workspace",
            "-w",
            "-C",
            "-F",
            "--workspace",
            "--prefix",
            "--dir",
            "--cwd",
            "--filter",
            "--registry",
            "--loglevel",
            "--userconfig",
            "--cache",
            "--tag",
            "--otp",
            "--config",
        ],
        flags: &[
            "-s",
            "-d",
            "-q",
            "-g",
            "-r",
            "-f",
            "-y",
            "--silent",
            "--quiet",
            "--verbose",
            "--global",
            "--recursive",
            "--force",
            "--yes",
            "--json",
            "--offline",
            "--workspaces",
            "-ws",
            "--workspace-root",
            "--include-workspace-root",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
        ],
    },
    Options {
        programs: &["kubectl", "oc"],
        values: &[
            "-n",
            "-s",
            "-v",
            "--namespace",
            "--context",
            "--cluster",
            "--user",
            "--server",
            "--kubeconfig",
            "--token",
            "--as",
            "--as-group",
            "--as-uid",
            "--cache-dir",
            "--certificate-authority",
            "--client-certificate",
            "--client-key",
            "--password",
            "--username",
            "--profile",
            "--profile-output",
            "--request-timeout",
            "--tls-server-name",
            "--vmodule",
            "--log-flush-frequency",
        ],
        flags: &[
            "--insecure-skip-tls-verify",
            "--disable-compression",
            "--match-server-version",
            "--warnings-as-errors",
        ],
    },
    Options {
        programs: &["helm"],
        values: &[
            "-n",
            "--namespace",
            "--kube-context",
            "--kubeconfig",
            "--kube-apiserver",
            "--kube-token",
            "--kube-as-user",
            "--kube-as-group",
            "--kube-ca-file",
            "--kube-tls-server-name",
            "--registry-config",
            "--repository-cache",
            "--repository-config",
            "--burst-limit",
            "--qps",
        ],
        flags: &["--debug", "--kube-insecure-skip-tls-verify"],
    },
    Options {
        programs: &["terraform", "tofu", "terragrunt"],
        values: &[],
        flags: &["-help", "-version", "--help", "--version"],
    },
    Options {
        programs: &["gh", "glab"],
        values: &["-R", "--repo", "--hostname"],
        flags: &["--help", "--version"],
    },
    Options {
        programs: &["docker", "podman", "nerdctl", "docker-compose"],
        values: &[
            "-H",
            "-c",
            "-l",
            "-f",
            "-p",
            "--host",
            "--context",
            "--config",
            "--log-level",
            "--tlscacert",
            "--tlscert",
            "--tlskey",
            "--file",
            "--project-name",
            "--project-directory",
            "--profile",
            "--env-file",
            "--ansi",
            "--progress",
            "--connection",
            "--url",
            "--identity",
            "--root",
            "--runroot",
            "--namespace",
            "-n",
            "-a",
            "--address",
        ],
        flags: &["-D", "--debug", "--tls", "--tlsverify", "-v", "--version", "--remote", "-r"],
    },
    Options {
        programs: &["aws"],
        values: &[
            "--profile",
            "--region",
            "--output",
            "--endpoint-url",
            "--query",
            "--color",
            "--ca-bundle",
            "--cli-read-timeout",
            "--cli-connect-timeout",
            "--cli-binary-format",
        ],
        flags: &[
            "--debug",
            "--no-verify-ssl",
            "--no-paginate",
            "--no-sign-request",
            "--no-cli-pager",
            "--no-cli-auto-prompt",
            "--cli-auto-prompt",
        ],
    },
    Options {
        programs: &["gcloud"],
        values: &[
            "--project",
            "--account",
            "--configuration",
            "--format",
            "--verbosity",
            "--filter",
            "--billing-project",
            "--impersonate-service-account",
            "--flags-file",
        ],
        flags: &["-q", "--quiet", "--log-http", "--user-output-enabled"],
    },
    Options {
        programs: &["systemctl", "journalctl"],
        values: &[
            "-H",
            "-M",
            "-t",
            "-p",
            "-n",
            "-o",
            "-s",
            "--host",
            "--machine",
            "--type",
            "--state",
            "--property",
            "--kill-whom",
            "--signal",
            "--root",
            "--lines",
            "--output",
        ],
        flags: &[
            "-q",
            "-l",
            "-a",
            "-f",
            "--user",
            "--system",
            "--global",
            "--now",
            "--quiet",
            "--no-block",
            "--no-pager",
            "--force",
            "--all",
            "--runtime",
        ],
    },
    Options { programs: &["go"], values: &["-C"], flags: &[] },
    Options {
        programs: &["pip", "pip3", "uv", "poetry"],
        values: &[
            "--python",
            "--log",
            "--proxy",
            "--timeout",
            "--retries",
            "--cert",
            "--client-cert",
            "--cache-dir",
            "--project",
            "--directory",
            "--config-file",
            "--color",
            "-C",
            "-P",
        ],
        flags: &[
            "-q",
            "-v",
            "-qq",
            "-vv",
            "-n",
            "--quiet",
            "--verbose",
            "--isolated",
            "--no-input",
            "--no-cache",
            "--offline",
            "--debug",
            "--require-virtualenv",
            "--no-interaction",
        ],
    },
];

/// Returns the arguments of a program without the options before its subcommand, and without the
/// options between the subcommand and the next word. If the place of the subcommand isn't certain,
/// returns a result for each possible place. Returns `None` if there are too many results.
pub(super) fn without_options<'w>(
    program: &str,
    arguments: &'w [Word],
) -> Option<Vec<Vec<&'w Word>>> {
    let options = OPTIONS.iter().find(|options| options.programs.contains(&program));
    let mut readings = Vec::new();
    for first in possible_subcommands(program, options, arguments) {
        let rest = &arguments[first + 1..];
        let seconds = possible_subcommands(program, options, rest);
        if readings.len() + seconds.len() >= MAX_READINGS {
            return None;
        }
        let command = std::iter::once(&arguments[first]);
        let has_options_before = first > 0;
        if has_options_before {
            readings.push(command.clone().chain(rest).collect());
        }
        for second in seconds {
            let has_options_between = second > 0;
            if has_options_between {
                readings.push(command.clone().chain(&rest[second..]).collect());
            }
        }
    }
    Some(readings)
}

/// Returns the index of the first argument that is neither an option nor the value of a known
/// option.
pub(super) fn subcommand(program: &str, arguments: &[Word]) -> Option<usize> {
    let options = OPTIONS.iter().find(|options| options.programs.contains(&program));
    let mut words = arguments.iter().enumerate();
    while let Some((index, word)) = words.next() {
        let takes_next = options.and_then(|options| options.takes_next(&word.text));
        if takes_next == Some(true) {
            words.next();
        } else if !is_option(program, &word.text) {
            return Some(index);
        }
    }
    None
}

impl Options {
    /// Checks whether the next word is the value of the option `word`. Returns `None` for an
    /// unknown option.
    fn takes_next(&self, word: &str) -> Option<bool> {
        if self.values.contains(&word) {
            return Some(true);
        }
        // The value is in the same word: `--context=x`, `-nprod`.
        let has_long_value = word.starts_with('-') && word.contains('=');
        let mut short_options = self
            .values
            .iter()
            .filter(|option| option.len() == "-n".len() && option.starts_with('-'));
        let has_short_value = short_options.any(|option| word.starts_with(*option));
        let is_known = self.flags.contains(&word) || has_long_value || has_short_value;
        if is_known { Some(false) } else { None }
    }
}

fn is_option(program: &str, word: &str) -> bool {
    // `cargo +nightly` chooses a toolchain.
    let is_toolchain = program == "cargo" && word.starts_with('+');
    is_toolchain || (word.starts_with('-') && word.len() > 1)
}

/// Returns each index at which the subcommand may be. An unknown option may take the next word as
/// its value.
fn possible_subcommands(
    program: &str,
    options: Option<&Options>,
    arguments: &[Word],
) -> Vec<usize> {
    let mut indexes = Vec::new();
    let mut index = 0;
    let mut has_unknown_option = false;
    while let Some(word) = arguments.get(index) {
        let text = word.text.as_str();
        let takes_next = options.and_then(|options| options.takes_next(text));
        if takes_next == Some(true) {
            index += 2;
            continue;
        }
        if is_option(program, text) {
            let may_take_next =
                takes_next.is_none() && !text.starts_with('+') && !text.contains('=');
            has_unknown_option = has_unknown_option || may_take_next;
            index += 1;
            continue;
        }
        indexes.push(index);
        // This word may be the value of an unknown option, and not the subcommand. In that case, a
        // later word is the subcommand, so the search goes on.
        let follows_option = index > 0 && is_option(program, &arguments[index - 1].text);
        let may_be_value = has_unknown_option && follows_option;
        if !may_be_value {
            break;
        }
        index += 1;
    }
    indexes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &[&str]) {
        let words: Vec<Word> = line.split_whitespace().map(Word::plain).collect();
        let readings = without_options(&words[0].text, &words[1..]).expect("few readings");
        let joined = |words: &Vec<&Word>| {
            words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
        };
        let readings: Vec<String> = readings.iter().map(joined).collect();
        assert_eq!(readings, expected, "{line}");
    }

    #[test]
    fn options_before_a_subcommand_are_skipped() {
        check("git push", &[]);
        check("git push origin main", &[]);
        check("git -C . push", &["push"]);
        check("git -C push status", &["status"]);
        check("git --no-pager -c a.b=c --git-dir=.git push -f", &["push -f"]);
        check("cargo -q publish", &["publish"]);
        check("cargo +nightly publish", &["publish"]);
        check("npm -w p publish", &["publish"]);
        check("kubectl -nprod --context c delete pod x", &["delete pod x"]);
        check("terraform -chdir=i destroy", &["destroy"]);
        check("gh -R a/b repo delete", &["repo delete"]);
        check("docker --host h system prune", &["system prune"]);
        check("docker compose -f f.yml down", &["compose down"]);
    }

    #[test]
    fn value_of_an_unknown_option_may_be_the_subcommand() {
        check("git --new push", &["push"]);
        check("git --new . push", &[". push", "push"]);
        check("tool -x a delete b", &["a delete b", "delete b"]);
        check("tool --x=a delete b", &["delete b"]);
        check("git -", &[]);
        check("git -C", &[]);
    }
}
