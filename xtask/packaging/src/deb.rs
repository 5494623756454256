//! The package for Debian and its descendants: the files of the archive below `/usr`. No script
//! runs when it is installed or removed.

use std::collections::BTreeSet;
use std::io;

use crate::archive::{Entry, gzip, tar};
use crate::{MAINTAINER, NAME, Package, Release, SUMMARY};

/// The folder of zsh's completions in the archive, and the folder in which zsh looks for the
/// completions of packages on Debian.
const ZSH: (&str, &str) = ("share/zsh/site-functions/", "share/zsh/vendor-completions/");

/// The package of a release.
pub(crate) fn deb(release: &Release) -> io::Result<Package> {
    let machine = release.architecture.of_images();
    // Debian sorts a version with `~` before the version without it, as Cargo does with `-`.
    let version = release.version.replacen('-', "~", 1);

    let mut files = vec![Entry::program(format!("./usr/bin/{NAME}"), &release.program)];
    files.extend(release.parts_in("./usr/"));
    files.extend(release.share.iter().map(|(path, content)| {
        Entry::file(format!("./usr/{}", path.replacen(ZSH.0, ZSH.1, 1)), content)
    }));
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Comment: THIRD-PARTY-LICENSES has the licences of the code of others in {NAME}.\n\n\
         Files: *\nCopyright: {MAINTAINER}\nLicense: Expat or Apache-2.0\n \
         The texts are in LICENSE-MIT and LICENSE-APACHE.\n"
    );
    let documents = format!("./usr/share/doc/{NAME}");
    files.push(Entry::file(format!("{documents}/copyright"), copyright.as_bytes()));
    let size: usize = files.iter().map(|file| file.content.unwrap_or_default().len()).sum();

    let homepage = release.repository.as_ref().map(|url| format!("Homepage: {url}\n"));
    let control = format!(
        "Package: {NAME}\nVersion: {version}\nArchitecture: {machine}\nMaintainer: {MAINTAINER}\n\
         Section: utils\nPriority: optional\nInstalled-Size: {}\nRecommends: ca-certificates\n\
         {}Description: sandboxed tools for AI agents\n {SUMMARY}.\n",
        size.div_ceil(1024),
        homepage.unwrap_or_default()
    );
    let control = [Entry::folder("./", 0o755), Entry::file("./control", control.as_bytes())];
    let control = gzip(release, &tar(release, &control)?)?;
    let data = gzip(release, &tar(release, &with_folders(files))?)?;
    Ok(Package {
        file_name: format!("{NAME}_{}_{machine}.deb", release.version),
        bytes: ar(
            release,
            &[("debian-binary", b"2.0\n"), ("control.tar.gz", &control), ("data.tar.gz", &data)],
        ),
    })
}

/// The files, each after the folders that it is in.
fn with_folders(files: Vec<Entry<'_>>) -> Vec<Entry<'_>> {
    let mut made = BTreeSet::new();
    let mut entries = Vec::new();
    for file in files {
        for (end, _) in file.path.match_indices('/') {
            let folder = &file.path[..=end];
            if made.insert(folder.to_owned()) {
                entries.push(Entry::folder(folder, 0o755));
            }
        }
        entries.push(file);
    }
    entries
}

/// Makes an archive of `ar`. Each file has a header of 60 bytes, and begins at an even offset.
fn ar(release: &Release, files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in files {
        let header =
            format!("{name:<16}{:<12}0     0     100644  {:<10}`\n", release.time, content.len());
        archive.extend(header.as_bytes());
        archive.extend(*content);
        if content.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}
