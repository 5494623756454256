//! The presets: named sets of files outside the working directory that a user's toolchains need.
//!
//! A preset grants caches for reading and writing, programs and settings for reading, and the
//! variables that configure the tool. A preset never grants credentials: the paths of
//! [`CREDENTIALS`] in its directories are hidden.
//!
//! To add a tool, add an entry to [`PRESETS`] with the paths of its caches and programs, from the
//! tool's documentation.

mod caches;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toolhold_system::confine::{Tree, TreeAccess};

/// The files and variables that a tool needs. Paths begin with `~/`, or with `$NAME/` for a
/// variable of [`ROOTS`].
#[derive(Debug)]
pub struct Preset {
    /// The preset's name for `presets` in `[tools.shell]`.
    pub name: &'static str,
    /// The names of presets that this preset includes.
    pub with: &'static [&'static str],
    /// Directories of caches, for reading and writing. Missing directories are created. Without
    /// them, the cache would be in memory, and the tool would download everything again next time.
    pub caches: &'static [&'static str],
    /// Files for writing, if they exist.
    pub writes: &'static [&'static str],
    /// Directories and files for reading, if they exist.
    pub reads: &'static [&'static str],
    /// Variables of the operator's environment that the tool gets, in addition to the variables in
    /// its paths.
    pub variables: &'static [&'static str],
}

/// Variables at the start of paths, and the path if the variable isn't set.
pub const ROOTS: [(&str, &str); 29] = [
    ("XDG_CACHE_HOME", "~/.cache"),
    ("XDG_CONFIG_HOME", "~/.config"),
    ("XDG_DATA_HOME", "~/.local/share"),
    ("CARGO_HOME", "~/.cargo"),
    ("RUSTUP_HOME", "~/.rustup"),
    ("npm_config_cache", "~/.npm"),
    ("NVM_DIR", "~/.nvm"),
    ("FNM_DIR", "$XDG_DATA_HOME/fnm"),
    ("VOLTA_HOME", "~/.volta"),
    ("YARN_CACHE_FOLDER", "$XDG_CACHE_HOME/yarn"),
    ("PNPM_HOME", "$XDG_DATA_HOME/pnpm"),
    ("BUN_INSTALL", "~/.bun"),
    ("DENO_DIR", "$XDG_CACHE_HOME/deno"),
    ("PIP_CACHE_DIR", "$XDG_CACHE_HOME/pip"),
    ("PYENV_ROOT", "~/.pyenv"),
    ("WORKON_HOME", "~/.virtualenvs"),
    ("UV_CACHE_DIR", "$XDG_CACHE_HOME/uv"),
    ("POETRY_CACHE_DIR", "$XDG_CACHE_HOME/pypoetry"),
    ("GOPATH", "~/go"),
    ("GOMODCACHE", "$GOPATH/pkg/mod"),
    ("GOCACHE", "$XDG_CACHE_HOME/go-build"),
    ("SDKMAN_DIR", "~/.sdkman"),
    ("GRADLE_USER_HOME", "~/.gradle"),
    ("CCACHE_DIR", "$XDG_CACHE_HOME/ccache"),
    ("SCCACHE_DIR", "$XDG_CACHE_HOME/sccache"),
    ("RBENV_ROOT", "~/.rbenv"),
    ("NUGET_PACKAGES", "~/.nuget/packages"),
    ("MISE_DATA_DIR", "$XDG_DATA_HOME/mise"),
    ("ASDF_DATA_DIR", "~/.asdf"),
];

const NONE: Preset =
    Preset { name: "", with: &[], caches: &[], writes: &[], reads: &[], variables: &[] };

/// Libraries of several languages. pip makes folders such as `python3.12` in it.
const SHARED_LIBRARIES: &str = "~/.local/lib";

/// All presets.
pub const PRESETS: [Preset; 22] = [
    Preset {
        name: "git",
        reads: &[
            "~/.gitconfig",
            "$XDG_CONFIG_HOME/git",
            "~/.gitignore",
            "~/.gitignore_global",
            "~/.gitmessage",
            "~/.gitattributes",
        ],
        variables: &[
            "GIT_AUTHOR_NAME",
            "GIT_AUTHOR_EMAIL",
            "GIT_COMMITTER_NAME",
            "GIT_COMMITTER_EMAIL",
            "EMAIL",
        ],
        ..NONE
    },
    Preset {
        name: "rustup",
        reads: &["$RUSTUP_HOME", "$CARGO_HOME/bin"],
        variables: &["RUSTUP_TOOLCHAIN"],
        ..NONE
    },
    Preset {
        name: "cargo",
        with: &["rustup"],
        caches: &["$CARGO_HOME/registry", "$CARGO_HOME/git"],
        // These are locks, which a cargo outside the sandbox uses, too.
        writes: &["$CARGO_HOME/.package-cache", "$CARGO_HOME/.package-cache-mutate"],
        reads: &["$CARGO_HOME/config.toml", "$CARGO_HOME/config"],
        variables: &[
            "RUSTFLAGS",
            "RUSTDOCFLAGS",
            "RUST_BACKTRACE",
            "RUST_LOG",
            "CARGO_INCREMENTAL",
            "CARGO_NET_OFFLINE",
        ],
    },
    Preset {
        name: "node",
        reads: &["$NVM_DIR", "$FNM_DIR", "$VOLTA_HOME", "~/.n", "~/.nodenv"],
        variables: &["NODE_ENV", "NODE_EXTRA_CA_CERTS", "FNM_MULTISHELL_PATH"],
        ..NONE
    },
    Preset {
        name: "npm",
        with: &["node"],
        caches: &["$npm_config_cache/_cacache"],
        variables: &["npm_config_registry"],
        ..NONE
    },
    Preset {
        name: "yarn",
        with: &["node"],
        caches: &["$YARN_CACHE_FOLDER", "~/.yarn/berry/cache"],
        ..NONE
    },
    Preset {
        name: "pnpm",
        with: &["node"],
        caches: &["$PNPM_HOME/store", "$XDG_CACHE_HOME/pnpm"],
        reads: &["$PNPM_HOME"],
        variables: &["npm_config_registry"],
        ..NONE
    },
    Preset {
        name: "bun",
        caches: &["$BUN_INSTALL/install/cache"],
        reads: &["$BUN_INSTALL/bin"],
        ..NONE
    },
    Preset { name: "deno", caches: &["$DENO_DIR"], reads: &["~/.deno/bin"], ..NONE },
    Preset {
        name: "python",
        reads: &[
            "$PYENV_ROOT",
            "$WORKON_HOME",
            "$XDG_DATA_HOME/virtualenvs",
            SHARED_LIBRARIES,
            "~/.local/pipx",
            "$XDG_DATA_HOME/pipx",
            "~/miniconda3",
            "~/miniforge3",
            "~/anaconda3",
        ],
        variables: &[
            "PYENV_VERSION",
            "VIRTUAL_ENV",
            "CONDA_PREFIX",
            "CONDA_DEFAULT_ENV",
            "PYTHONDONTWRITEBYTECODE",
        ],
        ..NONE
    },
    Preset {
        name: "pip",
        with: &["python"],
        caches: &["$PIP_CACHE_DIR"],
        variables: &["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"],
        ..NONE
    },
    Preset {
        name: "uv",
        with: &["python"],
        caches: &["$UV_CACHE_DIR"],
        reads: &["$XDG_DATA_HOME/uv"],
        variables: &["UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_PYTHON"],
        ..NONE
    },
    Preset {
        name: "poetry",
        with: &["python"],
        caches: &["$POETRY_CACHE_DIR"],
        reads: &["$XDG_DATA_HOME/pypoetry"],
        ..NONE
    },
    Preset {
        name: "go",
        caches: &["$GOMODCACHE", "$GOCACHE"],
        reads: &["$GOPATH/bin", "~/sdk", "$XDG_CONFIG_HOME/go/env"],
        variables: &[
            "GOROOT",
            "GOFLAGS",
            "GOPROXY",
            "GOPRIVATE",
            "GONOPROXY",
            "GONOSUMDB",
            "GOSUMDB",
            "GOTOOLCHAIN",
            "CGO_ENABLED",
        ],
        ..NONE
    },
    Preset {
        name: "java",
        reads: &["$SDKMAN_DIR/candidates", "~/.jdks", "~/.jenv"],
        variables: &["JAVA_HOME", "JAVA_OPTS"],
        ..NONE
    },
    Preset {
        name: "gradle",
        with: &["java"],
        caches: &["$GRADLE_USER_HOME/caches", "$GRADLE_USER_HOME/wrapper"],
        ..NONE
    },
    Preset {
        name: "maven",
        with: &["java"],
        caches: &["~/.m2/repository", "~/.m2/wrapper"],
        variables: &["MAVEN_OPTS"],
        ..NONE
    },
    Preset {
        name: "ccache",
        caches: &["$CCACHE_DIR"],
        reads: &["$XDG_CONFIG_HOME/ccache"],
        ..NONE
    },
    Preset { name: "sccache", caches: &["$SCCACHE_DIR"], variables: &["RUSTC_WRAPPER"], ..NONE },
    Preset {
        name: "bundler",
        caches: &["$XDG_DATA_HOME/gem", "~/.bundle/cache"],
        reads: &["$RBENV_ROOT", "~/.rvm", "~/.gem", "~/.rubies"],
        variables: &["BUNDLE_PATH", "RBENV_VERSION"],
        ..NONE
    },
    Preset {
        name: "dotnet",
        caches: &["$NUGET_PACKAGES"],
        reads: &["~/.dotnet"],
        variables: &["DOTNET_ROOT"],
        ..NONE
    },
    Preset {
        name: "mise",
        reads: &["$MISE_DATA_DIR", "$XDG_CONFIG_HOME/mise", "$ASDF_DATA_DIR", "~/.tool-versions"],
        ..NONE
    },
];

/// Files and directories with credentials. They are hidden in every granted tree.
pub const CREDENTIALS: [&str; 27] = [
    "$CARGO_HOME/credentials.toml",
    "$CARGO_HOME/credentials",
    "~/.npmrc",
    "~/.yarnrc.yml",
    "~/.pypirc",
    "~/.netrc",
    "~/.git-credentials",
    "$XDG_CONFIG_HOME/git/credentials",
    "$XDG_CONFIG_HOME/pypoetry/auth.toml",
    "$XDG_DATA_HOME/uv/credentials",
    "$XDG_CONFIG_HOME/pip/pip.conf",
    "~/.pip/pip.conf",
    "~/.gem/credentials",
    "~/.local/share/gem/credentials",
    "~/.bundle/config",
    "$GRADLE_USER_HOME/gradle.properties",
    "~/.m2/settings.xml",
    "~/.m2/settings-security.xml",
    "~/.nuget/NuGet/NuGet.Config",
    "~/.docker/config.json",
    "~/.aws",
    "~/.azure",
    "~/.kube",
    "~/.ssh",
    "~/.gnupg",
    "$XDG_CONFIG_HOME/gh",
    "$XDG_CONFIG_HOME/gcloud",
];

/// Returns the preset with this name.
pub fn preset(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// Returns a preset and all presets that it includes, without duplicates.
pub fn with_all(preset: &'static Preset) -> Vec<&'static Preset> {
    let mut all = vec![preset];
    let mut index = 0;
    // The list grows in the loop, because an included preset may include others.
    while index < all.len() {
        for included in all[index].with.iter().filter_map(|name| self::preset(name)) {
            if !all.iter().any(|known| known.name == included.name) {
                all.push(included);
            }
        }
        index += 1;
    }
    all
}

/// Returns the names of the presets that are in use, because one of their paths exists. A preset is
/// left out if another found preset includes it.
pub fn found(roots: &Roots<'_>) -> Vec<&'static str> {
    let mut found: Vec<&'static Preset> = Vec::new();
    for preset in &PRESETS {
        for (place, _) in preset.places() {
            if let Some(path) = roots.find(place)
                && is_in_use(place, &path)
            {
                found.push(preset);
                break;
            }
        }
    }
    let mut names = Vec::new();
    for preset in &found {
        let is_included = found.iter().any(|other| other.with.contains(&preset.name));
        if !is_included {
            names.push(preset.name);
        }
    }
    names
}

/// Checks whether the preset's tool has made a path. Several programs make the folder
/// `SHARED_LIBRARIES`, so this folder must have an entry of Python.
fn is_in_use(place: &str, path: &Path) -> bool {
    if place != SHARED_LIBRARIES {
        return path.exists();
    }
    let Ok(entries) = path.read_dir() else { return false };
    entries.flatten().any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"python"))
}

impl Preset {
    /// Returns the paths of the preset, each with the granted access.
    pub fn places(&self) -> impl Iterator<Item = (&'static str, TreeAccess)> + use<> {
        let writes = self.caches.iter().chain(self.writes).map(|place| (*place, TreeAccess::Write));
        writes.chain(self.reads.iter().map(|place| (*place, TreeAccess::Read)))
    }

    /// Returns the variables that the preset's tool gets.
    pub fn variables(&self) -> impl Iterator<Item = &'static str> {
        let roots = self.places().filter_map(|(place, _)| Some(split_root(place)?.0));
        self.variables.iter().copied().chain(roots)
    }
}

/// Splits `$NAME/below` into `NAME` and `below`.
fn split_root(place: &'static str) -> Option<(&'static str, &'static str)> {
    let place = place.strip_prefix('$')?;
    Some(place.split_once('/').unwrap_or((place, "")))
}

fn default_root(variable: &str) -> Option<&'static str> {
    let (_, default) = ROOTS.iter().find(|(name, _)| *name == variable)?;
    Some(default)
}

/// Returns a path with the defaults of its variables, such as `~/.cargo/registry`.
pub fn usual(place: &'static str) -> String {
    let Some((variable, below)) = split_root(place) else { return place.to_owned() };
    match default_root(variable) {
        Some(default) if below.is_empty() => usual(default),
        Some(default) => format!("{}/{below}", usual(default)),
        None => place.to_owned(),
    }
}

/// The home directory and the variables with which the paths of presets begin.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'r> {
    /// The real path of the home directory.
    pub home: &'r Path,
    /// The operator's environment.
    pub variables: &'r BTreeMap<String, String>,
}

impl Roots<'_> {
    /// Returns the full path, or `None` if `place` starts with an unknown variable.
    pub fn find(&self, place: &'static str) -> Option<PathBuf> {
        if let Some(below) = place.strip_prefix("~/") {
            return Some(self.home.join(below));
        }
        let (variable, below) = split_root(place)?;
        let root = match self.variables.get(variable) {
            Some(value) if Path::new(value).is_absolute() => PathBuf::from(value),
            _ => self.find(default_root(variable)?)?,
        };
        Some(if below.is_empty() { root } else { root.join(below) })
    }

    /// Returns the existing files and directories that a preset grants, by their real paths.
    /// Creates missing caches.
    ///
    /// `trusted` returns the real path of an existing path, or `None` if tools may have created a
    /// link on the path. The grant contains this real path. A path that isn't UTF-8 is omitted. A
    /// path that contains the home directory is omitted, too: with `CARGO_HOME=/`, a preset would
    /// grant everything.
    pub fn trees(&self, preset: &Preset, trusted: impl Fn(&Path) -> Option<PathBuf>) -> Vec<Tree> {
        let mut trees = Vec::new();
        for (place, access) in preset.places() {
            let Some(path) = self.real_path(place, preset, &trusted) else { continue };
            if self.home.starts_with(&path) {
                continue;
            }
            if let Ok(path) = path.into_os_string().into_string() {
                trees.push(Tree { path, access });
            }
        }
        trees
    }

    /// Returns the real path of a preset's path, such as `~/.cargo/bin`. Creates a missing cache.
    /// Returns `None` for any other missing path.
    fn real_path(
        &self,
        place: &'static str,
        preset: &Preset,
        trusted: &impl Fn(&Path) -> Option<PathBuf>,
    ) -> Option<PathBuf> {
        let path = self.find(place)?;
        // `symlink_metadata` also finds a link to a missing target, which `exists` would skip.
        let existing = path.ancestors().find(|above| above.symlink_metadata().is_ok())?;
        let real = trusted(existing)?;
        let missing = path.strip_prefix(existing).ok()?;
        if missing.as_os_str().is_empty() {
            return Some(real);
        }
        if !preset.caches.contains(&place) {
            return None;
        }
        // If the cache can't be created, the tool uses the sandbox's private folder.
        caches::make(&real, missing).ok()
    }

    /// Returns the existing paths with credentials, by their real paths.
    pub fn credentials(&self) -> Vec<PathBuf> {
        // Check first whether a path exists. Most of these paths are missing, and one system call
        // detects this. Resolving links needs a system call for each parent folder.
        let places = CREDENTIALS.iter().filter_map(|place| self.find(place));
        places.filter(|path| path.exists()).filter_map(|path| path.canonicalize().ok()).collect()
    }
}
