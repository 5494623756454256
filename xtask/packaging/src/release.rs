//! What is packed.

use std::io;

use jiff::Timestamp;

/// What every package holds.
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
    /// The time of all files, in seconds since 1970.
    pub time: u64,
    /// How much a package is compressed: 1 is fast, 9 is small.
    pub compression: u32,
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
    /// The one with this name, as `uname -m` and Rust have it.
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
    /// The time of all files.
    pub(crate) fn timestamp(&self) -> io::Result<Timestamp> {
        i64::try_from(self.time)
            .ok()
            .and_then(|seconds| Timestamp::from_second(seconds).ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the time isn't valid"))
    }
}
