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
        share: vec![("share/man/man1/toolhold.1".to_owned(), b"page".to_vec())],
        sdk_python: vec![("toolhold/__init__.py".to_owned(), b"tool = 1\n".to_vec())],
        sdk_javascript: vec![("toolhold.js".to_owned(), b"export {};\n".to_vec())],
        repository: Repository::from_url("https://github.com/example/toolhold"),
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
            "toolhold_1.2.3_amd64.deb",
            "toolhold-1.2.3-x86_64-linux.mcpb",
            "toolhold-1.2.3-x86_64-image.tar",
            "toolhold-1.2.3-x86_64.cdx.json",
            "toolhold_sdk-1.2.3-py3-none-any.whl",
            "toolhold-sdk-1.2.3.tgz",
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

#[test]
fn repository_is_one_of_github() {
    let repository = Repository::from_url("https://github.com/example/tool.hold").expect("it is");
    assert_eq!(repository.to_string(), "https://github.com/example/tool.hold");
    for url in [
        "",
        "http://github.com/example/toolhold",
        "https://github.com/example",
        "https://github.com/example/",
        "https://github.com/example/toolhold/",
        "https://github.com/example/toolhold; rm",
        "https://example.com/example/toolhold",
    ] {
        assert_eq!(Repository::from_url(url), None, "{url}");
    }
}

/// What `cargo binstall` makes of the metadata of the crate with the program.
#[test]
fn binstall_finds_the_archive_of_a_release() {
    let manifest = include_str!("../../../host/cli/toolhold/Cargo.toml");
    let value = |key: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
        let template = line.unwrap_or_else(|| panic!("{key} is missing")).trim_end_matches('"');
        template
            .replace("{ repo }", "https://github.com/example/toolhold")
            .replace("{ version }", "1.2.3")
            .replace("{ target-arch }", "x86_64")
            .replace("{ bin }{ binary-ext }", "toolhold")
    };
    let repository = release().repository.expect("it has one");
    let name = "toolhold-1.2.3-x86_64-linux";
    let url = repository.release_url("1.2.3");
    assert_eq!(value("pkg-url"), format!("{url}/{name}.tar.gz"));
    assert_eq!(value("bin-dir"), format!("{name}/bin/toolhold"));
    assert_eq!(value("pkg-fmt"), "tgz");
}
