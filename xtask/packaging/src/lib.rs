//! Packages of Toolhold for those who don't compile: Python wheels, packages for npm, a package for
//! Debian, a bundle for clients of MCP, and an image of a container. `cargo xtask dist` makes them
//! beside the archive, and the tests make them with the program that they test. A [`Publication`]
//! adds what belongs to the packages of all kinds of machines.
//!
//! The same contents give the same bytes: no file has an owner, and each has the same time.

mod archive;
mod deb;
mod image;
mod mcpb;
mod npm;
mod publication;
mod release;
mod wheel;

#[cfg(test)]
mod tests;

use std::io;

pub use publication::Publication;
pub use release::{Architecture, Release, Repository};

/// The name of the packages, which their publisher has to own in each registry.
pub use toolhold_contract::NAME;

/// The description of Toolhold in the metadata of packages.
const SUMMARY: &str = "Runs the tools of AI agents, each call in a WebAssembly sandbox of its own";

/// The maintainer in the metadata of packages.
const MAINTAINER: &str = "The Toolhold developers";

/// A file that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub file_name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Makes all packages of a release: the wheel, the two packages for npm, the package for Debian,
/// the bundle for clients of MCP, the image, the list of what is in the program, and the SDKs for
/// plugins in Python and JavaScript.
///
/// # Errors
///
/// The release has something that a format can't hold.
pub fn packages(release: &Release) -> io::Result<Vec<Package>> {
    // Make the packages at the same time, because each of them compresses the program in its own
    // way, which takes long.
    let made = std::thread::scope(|scope| {
        let threads = MAKERS.map(|make| scope.spawn(move || make(release)));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    Ok(made.into_iter().collect::<io::Result<Vec<_>>>()?.concat())
}

type Maker = fn(&Release) -> io::Result<Vec<Package>>;

const MAKERS: [Maker; 8] = [
    |release| Ok(vec![wheel::wheel(release)?]),
    |release| Ok(npm::packages(release)?.to_vec()),
    |release| Ok(vec![deb::deb(release)?]),
    |release| Ok(vec![mcpb::mcpb(release)?]),
    |release| Ok(vec![image::image(release)?]),
    |release| Ok(vec![sbom(release)]),
    |release| Ok(vec![wheel::sdk(release)?]),
    |release| Ok(vec![npm::sdk(release)?]),
];

/// The list of what is in the program, as a file of its own, although packages contain it, too.
fn sbom(release: &Release) -> Package {
    let version = &release.version;
    let machine = release.architecture.name();
    Package {
        file_name: format!("{NAME}-{version}-{machine}.cdx.json"),
        bytes: release.sbom.clone(),
    }
}
