//! Packages of Toolhold for those who don't compile: a Python wheel, packages for npm, and an image
//! of a container. `cargo xtask dist` makes them beside the archive, and the tests make them with
//! the program that they test.
//!
//! The same contents give the same bytes: no file has an owner, and each has the same time.

mod archive;
mod image;
mod npm;
mod release;
mod wheel;

#[cfg(test)]
mod tests;

use std::io;

pub use release::{Architecture, Release};

/// The name of the packages. Whoever publishes them has to own it there.
pub use toolhold_contract::NAME;

/// A file that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub file_name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Makes all packages of a release: the wheel, the two packages for npm, and the image.
///
/// # Errors
///
/// The release has something that a format can't hold.
pub fn packages(release: &Release) -> io::Result<Vec<Package>> {
    let [program, launcher] = npm::packages(release)?;
    Ok(vec![wheel::wheel(release)?, program, launcher, image::image(release)?])
}
