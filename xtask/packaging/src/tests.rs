//! That packages are the same twice, and hold what they have to.

use super::*;

fn release() -> Release {
    Release {
        version: "1.2.3".to_owned(),
        architecture: Architecture::X86_64,
        program: b"\x7fELF program".to_vec(),
        parts: vec![("go".to_owned(), b"\0asm".to_vec())],
        readme: b"# Toolhold\n".to_vec(),
        licences: vec![("LICENSE-MIT".to_owned(), b"licence".to_vec())],
        sbom: b"{}".to_vec(),
        time: 1_700_000_000,
        compression: 6,
    }
}

fn named(name: &str) -> Vec<u8> {
    let all = packages(&release()).expect("they are made");
    all.into_iter().find(|one| one.file_name == name).expect("it is there").bytes
}

#[test]
fn packages_are_the_same_bytes_twice_and_none_has_another_time() {
    let names: Vec<String> =
        packages(&release()).expect("they are made").into_iter().map(|one| one.file_name).collect();
    assert_eq!(
        names,
        [
            "toolhold-1.2.3-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl",
            "toolhold-linux-x64-1.2.3.tgz",
            "toolhold-1.2.3.tgz",
            "toolhold-1.2.3-x86_64-image.tar",
        ]
    );
    let [once, again] = [(); 2].map(|()| packages(&release()).expect("they are made"));
    assert_eq!(once, again);
    let later = Release { time: 1_800_000_000, ..release() };
    assert_ne!(packages(&later).expect("they are made"), once);
}

#[test]
fn files_in_tars_belong_to_root_and_the_program_can_be_run() {
    let unpacked = |bytes: Vec<u8>| {
        let mut tar = tar::Archive::new(std::io::Cursor::new(bytes));
        let entries = tar.entries().expect("it is a tar");
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.expect("it is an entry");
            let header = entry.header();
            assert_eq!(
                (header.uid().expect("it has one"), header.gid().expect("it has one")),
                (0, 0)
            );
            assert_eq!(header.mtime().expect("it has one"), 1_700_000_000);
            let path = entry.path().expect("it has one").display().to_string();
            found.push((path, header.mode().expect("it has one")));
        }
        found
    };
    let gunzip = |bytes: Vec<u8>| {
        let mut plain = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&bytes[..]);
        std::io::Read::read_to_end(&mut decoder, &mut plain).expect("it is gzip");
        plain
    };
    let program = unpacked(gunzip(named("toolhold-linux-x64-1.2.3.tgz")));
    assert!(program.contains(&("package/bin/toolhold".to_owned(), 0o755)), "{program:?}");
    let part = ("package/lib/toolhold/parts/go.wasm".to_owned(), 0o644);
    assert!(program.contains(&part), "{program:?}");
    let launcher = unpacked(gunzip(named("toolhold-1.2.3.tgz")));
    assert!(launcher.contains(&("package/toolhold.sh".to_owned(), 0o755)), "{launcher:?}");
    assert!(launcher.contains(&("package/LICENSE-MIT".to_owned(), 0o644)), "{launcher:?}");
    let image = unpacked(named("toolhold-1.2.3-x86_64-image.tar"));
    assert_eq!(image.iter().filter(|(path, _)| path.starts_with("blobs/sha256/")).count(), 4);
}
