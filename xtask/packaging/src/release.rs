//! The contents of packages.

use std::fmt;
use std::io;

use jiff::Timestamp;

use crate::NAME;

/// The contents of every package.
#[derive(Clone, Debug)]
pub struct Release {
    /// The version, such as `0.2.0`.
    pub version: String,
    /// The kind of machine that the program runs on.
    pub architecture: Architecture,
    /// The program.
    pub program: Vec<u8>,
    /// The parts that belong to the program: names and components.
    pub parts: Vec<(String, Vec<u8>)>,
    /// The readme.
    pub readme: Vec<u8>,
    /// The licences of Toolhold and of what is in it: names and contents.
    pub licences: Vec<(String, Vec<u8>)>,
    /// The list of what is in the program, as CycloneDX.
    pub sbom: Vec<u8>,
    /// The files below `share` in a system's package, by their paths: manual pages, completions and
    /// documents.
    pub share: Vec<(String, Vec<u8>)>,
    /// The SDK for plugins in Python: paths and contents.
    pub sdk_python: Vec<(String, Vec<u8>)>,
    /// The SDK for plugins in JavaScript: paths and contents.
    pub sdk_javascript: Vec<(String, Vec<u8>)>,
    /// Where the sources are.
    pub repository: Option<Repository>,
    /// The time of all files, in seconds since 1970.
    pub time: u64,
    /// How much a package is compressed: 1 is fast, 9 is small.
    pub compression: u32,
}

/// Where the sources are: a repository of GitHub, among whose releases the packages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    owner: String,
    name: String,
}

impl Repository {
    /// Returns the repository at an address such as `https://github.com/OWNER/NAME`.
    pub fn from_url(url: &str) -> Option<Self> {
        let (owner, name) = url.strip_prefix("https://github.com/")?.split_once('/')?;
        let is_word = |word: &str| {
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        (is_word(owner) && is_word(name))
            .then(|| Self { owner: owner.to_owned(), name: name.to_owned() })
    }

    /// Returns the address of the folder with the files of a release.
    pub(crate) fn release_url(&self, version: &str) -> String {
        format!("{self}/releases/download/v{version}")
    }

    /// Returns the name of this repository's server in the registry of MCP.
    pub(crate) fn mcp_name(&self) -> String {
        format!("io.github.{}/{NAME}", self.owner)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://github.com/{}/{}", self.owner, self.name)
    }
}

/// The kinds of machines that there are packages for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Architecture {
    /// All kinds of machines.
    pub(crate) const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// Returns the kind of machine with a name of `uname -m` and Rust.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// As `uname -m` and wheels name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// As Node names it.
    pub(crate) fn of_node(self) -> &'static str {
        match self {
            Self::X86_64 => "x64",
            Self::Aarch64 => "arm64",
        }
    }

    /// As images of containers name it.
    pub(crate) fn of_images(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }
}

impl Release {
    /// The licences of Toolhold alone, for packages without code of others.
    pub(crate) fn own_licences(&self) -> &[(String, Vec<u8>)] {
        let own = self.licences.iter().take_while(|(name, _)| name.starts_with("LICENSE-"));
        &self.licences[..own.count()]
    }

    /// The time of all files.
    pub(crate) fn timestamp(&self) -> io::Result<Timestamp> {
        i64::try_from(self.time)
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the time isn't valid"))
    }
}
