//! Parses the command lines of `npx` and `uvx` servers.

use std::path::Path;

/// Package runners whose packages can't be pinned.
const OTHER_RUNNERS: [&str; 10] =
    ["bunx", "pnpx", "pnpm", "yarn", "npm", "pipx", "uv", "deno", "docker", "podman"];

/// A package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// The package manager of `npx`.
    Npm,
    /// The package manager of `uvx`.
    Uv,
}

/// The command line of a package runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunnerLine {
    pub(crate) manager: Manager,
    /// The runner as the command line names it.
    runner: String,
    /// The packages to fetch, with or without a version.
    pub(crate) wanted: Vec<String>,
    /// The Python version for uv.
    pub(crate) python: Option<String>,
    /// The program in the packages. `None` means the program of the first package.
    pub(crate) program: Option<String>,
    /// The arguments of the program.
    pub(crate) arguments: Vec<String>,
}

/// The reason why the packages of a command line can't be pinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
    #[error("`{0}` may fetch packages, but Toolhold can only pin packages of `npx` and `uvx`")]
    OtherRunner(String),
    #[error("`{0}` names no package")]
    NoPackage(&'static str),
    #[error("Toolhold doesn't know the option `{option}` of `{runner}`")]
    UnknownOption { runner: &'static str, option: String },
    #[error("`{0}` isn't a package of a registry")]
    NotOfRegistry(String),
    #[error("`{0}` isn't the name of a program")]
    NotAProgram(String),
}

impl RunnerLine {
    /// Parses a command line. Returns `None` if `command` isn't a known package runner.
    pub(crate) fn parse(command: &str, arguments: &[String]) -> Result<Option<Self>, LineError> {
        let file_name = Path::new(command).file_name().and_then(|name| name.to_str());
        // A command without a file name, such as `..`, is no package runner.
        let program = file_name.unwrap_or(command);
        match program {
            "npx" => Ok(Some(Self::parse_npx(command, arguments)?)),
            "uvx" => Ok(Some(Self::parse_uvx(command, arguments)?)),
            _ if OTHER_RUNNERS.contains(&program) => {
                Err(LineError::OtherRunner(program.to_owned()))
            }
            _ => Ok(None),
        }
    }

    /// Parses the arguments of `npx`: options, the package or program, and arguments of the
    /// program.
    fn parse_npx(runner: &str, arguments: &[String]) -> Result<Self, LineError> {
        let mut wanted = Vec::new();
        let mut words = arguments.iter();
        // The loop reads the options and ends at the first word that isn't an option.
        let first_word = loop {
            let word = words.next().ok_or(LineError::NoPackage("npx"))?.as_str();
            if let Some(("-p" | "--package", package)) = word.split_once('=') {
                wanted.push(package.to_owned());
                continue;
            }
            match word {
                "-y" | "--yes" | "--" => {}
                "-p" | "--package" => {
                    if let Some(package) = words.next() {
                        wanted.push(package.clone());
                    }
                }
                _ if word.starts_with('-') => {
                    let option = word.to_owned();
                    return Err(LineError::UnknownOption { runner: "npx", option });
                }
                _ => break word.to_owned(),
            }
        };
        // Without `--package`, the first word is the package. Otherwise, it is the program.
        let program = if wanted.is_empty() {
            wanted.push(first_word);
            None
        } else {
            Some(first_word)
        };
        if let Some(invalid) = wanted.iter().find(|package| !is_npm_package(package)) {
            return Err(LineError::NotOfRegistry(invalid.clone()));
        }
        Ok(Self {
            manager: Manager::Npm,
            runner: runner.to_owned(),
            wanted,
            python: None,
            program,
            arguments: words.cloned().collect(),
        })
    }

    fn parse_uvx(runner: &str, arguments: &[String]) -> Result<Self, LineError> {
        let mut from = None;
        let mut with = Vec::new();
        let mut python = None;
        let mut words = arguments.iter();
        let first = loop {
            let word = words.next().ok_or(LineError::NoPackage("uvx"))?.as_str();
            let (option, value) = match word.split_once('=') {
                Some((option, value)) if word.starts_with("--") => (option, Some(value.to_owned())),
                _ => (word, None),
            };
            match option {
                "--" => {}
                "--from" => from = value.or_else(|| words.next().cloned()),
                "--with" => {
                    let packages = value.or_else(|| words.next().cloned()).unwrap_or_default();
                    with.extend(packages.split(',').map(|part| part.trim().to_owned()));
                }
                "-p" | "--python" => python = value.or_else(|| words.next().cloned()),
                _ if option.starts_with('-') => {
                    let option = option.to_owned();
                    return Err(LineError::UnknownOption { runner: "uvx", option });
                }
                _ => break word.to_owned(),
            }
        };
        let (program, package) = match from {
            Some(from) => (first, from),
            None => split_program_word(&first),
        };
        let wanted: Vec<String> = std::iter::once(package).chain(with).collect();
        if let Some(invalid) = wanted.iter().find(|package| !is_python_package(package)) {
            return Err(LineError::NotOfRegistry(invalid.clone()));
        }
        if !is_name(&program) {
            return Err(LineError::NotAProgram(program));
        }
        Ok(Self {
            manager: Manager::Uv,
            runner: runner.to_owned(),
            wanted,
            python,
            program: Some(program),
            arguments: words.cloned().collect(),
        })
    }

    /// Returns the name of the first package as `npm:NAME` or `pypi:NAME`, without a version.
    pub(crate) fn package(&self) -> Option<String> {
        let wanted = self.wanted.first()?;
        match self.manager {
            Manager::Npm => {
                let (name, _version) = npm_name(wanted);
                Some(format!("npm:{name}"))
            }
            Manager::Uv => {
                let (name, _constraints) = split_requirement(wanted);
                Some(format!("pypi:{name}"))
            }
        }
    }

    /// Returns the package manager's program, which is in the folder of the runner.
    pub(crate) fn manager_program(&self) -> String {
        let name = match self.manager {
            Manager::Npm => "npm",
            Manager::Uv => "uv",
        };
        // The runner is a string, so the new path is a string too.
        let path = Path::new(&self.runner).with_file_name(name);
        path.to_str().unwrap_or(name).to_owned()
    }
}

/// Splits the first word of `uvx` into the name of the program and the requirement for the package.
/// The word is `PROGRAM@VERSION` or a requirement.
fn split_program_word(word: &str) -> (String, String) {
    if let Some((name, version)) = word.split_once('@') {
        let package = match version {
            "latest" => name.to_owned(),
            version => format!("{name}=={version}"),
        };
        return (name.to_owned(), package);
    }
    let (name, _constraints) = split_requirement(word);
    (name.to_owned(), word.to_owned())
}

/// Splits a Python requirement into its name and constraints.
fn split_requirement(requirement: &str) -> (&str, &str) {
    let name_end = requirement.find(|letter| "[=<>!~; ".contains(letter));
    requirement.split_at(name_end.unwrap_or(requirement.len()))
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(['-', '.'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Returns whether `package` is `name` or `@scope/name`, with an optional `@VERSION`.
fn is_npm_package(package: &str) -> bool {
    let (full_name, version) = npm_name(package);
    if let Some(version) = version
        && !is_version(version)
    {
        return false;
    }
    let Some(scoped_name) = full_name.strip_prefix('@') else { return is_name(full_name) };
    match scoped_name.split_once('/') {
        Some((scope, name)) => is_name(scope) && is_name(name),
        None => false,
    }
}

fn is_version(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.^~<>=*| ".contains(&byte))
}

/// Splits an npm package into name and version.
pub(super) fn npm_name(package: &str) -> (&str, Option<&str>) {
    for (position, letter) in package.char_indices() {
        // An `@` at the start belongs to a scoped name.
        if letter == '@' && position > 0 {
            let version_start = position + "@".len();
            return (&package[..position], Some(&package[version_start..]));
        }
    }
    (package, None)
}

/// Checks for a requirement by name, such as `name[extra]>=1,<2; python_version > "3"`.
fn is_python_package(package: &str) -> bool {
    let (name, constraint) = split_requirement(package);
    let has_address = constraint.trim_start().starts_with('@');
    is_name(name) && !has_address && constraint.bytes().all(is_of_constraint)
}

fn is_of_constraint(byte: u8) -> bool {
    (b' '..0x7f).contains(&byte) && !b"/\\:#".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<RunnerLine>, LineError> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        RunnerLine::parse(&words[0], &words[1..])
    }

    #[track_caller]
    fn gives(line: &str, wanted: &[&str], program: Option<&str>, arguments: &[&str]) {
        let parsed = parsed(line).expect("it is pinned").expect("it fetches");
        assert_eq!(parsed.wanted, wanted, "{line}");
        assert_eq!(parsed.program.as_deref(), program, "{line}");
        assert_eq!(parsed.arguments, arguments, "{line}");
    }

    #[test]
    fn usual_lines_are_understood() {
        gives("npx -y @a/server-b@1.2.3 /home/u", &["@a/server-b@1.2.3"], None, &["/home/u"]);
        gives("npx --package=a --yes -p b run -y", &["a", "b"], Some("run"), &["-y"]);
        gives("uvx mcp-server-time", &["mcp-server-time"], Some("mcp-server-time"), &[]);
        gives("uvx a==1.2 --tz UTC", &["a==1.2"], Some("a"), &["--tz", "UTC"]);
        gives("uvx a@1.2", &["a==1.2"], Some("a"), &[]);
        gives("uvx --from a[x]>=1 --with b,c d", &["a[x]>=1", "b", "c"], Some("d"), &[]);
        let line = parsed("/opt/n/npx a").expect("it is pinned").expect("it fetches");
        assert_eq!(line.manager_program(), "/opt/n/npm");
        let line = parsed("uvx --python=3.12 a").expect("it is pinned").expect("it fetches");
        assert_eq!((line.manager_program().as_str(), line.python.as_deref()), ("uv", Some("3.12")));
        assert_eq!(parsed("node server.js"), Ok(None));
    }

    #[test]
    fn what_cant_be_pinned_is_named() {
        for line in [
            "npx",
            "npx -c a",
            "npx --registry x a",
            "npx ./a",
            "npx ../a.tgz",
            "npx github:a/b",
            "npx a/b",
            "npx git+https://h.example/a",
            "npx a@file:../b",
            "npx a@npm:b@1",
            "npx @a",
            "uvx",
            "uvx --index-url=x a",
            "uvx --from git+https://h.example/a a",
            "uvx --from ./a a",
            "uvx --with-editable . a",
            "uvx --from b ../a",
            "uvx a@git",
            "docker run a",
            "bunx a",
            "uv tool run a",
        ] {
            let parsed = parsed(line);
            // A version that no package has is for the package manager to refuse.
            assert!(parsed.is_err() || line == "uvx a@git", "{line}: {parsed:?}");
        }
        let odd = ["a @ https://h.example/a.whl".to_owned()];
        assert!(
            RunnerLine::parse(
                "uvx",
                &[&["--from".to_owned()][..], &odd, &["a".to_owned()]].concat()
            )
            .is_err()
        );
    }
}
