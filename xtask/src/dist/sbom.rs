//! The software bill of materials: the packages in the binary, in CycloneDX's JSON, for
//! vulnerability scanners.

use super::packages::Package;

/// The bill of materials. It has no time and no serial number, which would differ in each build.
pub(crate) fn document(version: &str, rust: &str, packages: &[Package]) -> String {
    let components: Vec<String> =
        packages.iter().map(component).chain([standard_library(rust), c_library()]).collect();
    format!(
        "{{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.6\",\n  \"version\": 1,\n  \"metadata\": {{\n    \"component\": \
         {{\"type\": \"application\", \"bom-ref\": \"toolhold\", \"name\": \"toolhold\", \"version\": {}}}\n  }},\n  \"components\": [\n    {}\n  ]\n}}\n",
        json_string(version),
        components.join(",\n    ")
    )
}

fn component(package: &Package) -> String {
    let Package { name, version, licence, checksum, .. } = package;
    let mut fields = vec![
        r#""type": "library""#.to_owned(),
        format!(r#""bom-ref": {}"#, json_string(&format!("{name}@{version}"))),
        format!(r#""name": {}"#, json_string(name)),
        format!(r#""version": {}"#, json_string(version)),
    ];
    if !licence.is_empty() {
        // Older manifests write an alternative as a slash, which isn't valid in SPDX.
        let alternatives: Vec<&str> = licence.split('/').map(str::trim).collect();
        fields.push(format!(
            r#""licenses": [{{"expression": {}}}]"#,
            json_string(&alternatives.join(" OR "))
        ));
    }
    if let Some(checksum) = checksum {
        // A `purl` is valid only for packages of the registry. In it, a `+` means a space, so it is
        // escaped.
        fields.push(format!(
            r#""purl": {}"#,
            json_string(&format!("pkg:cargo/{name}@{}", version.replace('+', "%2B")))
        ));
        fields.push(format!(
            r#""hashes": [{{"alg": "SHA-256", "content": {}}}]"#,
            json_string(checksum)
        ));
    }
    format!("{{{}}}", fields.join(", "))
}

/// The standard library, which the Rust project compiles.
fn standard_library(version: &str) -> String {
    format!(
        r#"{{"type": "library", "bom-ref": "rust-std", "name": "rust-std", "version": {}, "licenses": [{{"expression": "MIT OR Apache-2.0"}}]}}"#,
        json_string(version)
    )
}

/// The C library, which is installed with the Rust target.
fn c_library() -> String {
    r#"{"type": "library", "bom-ref": "musl", "name": "musl", "licenses": [{"expression": "MIT"}]}"#
        .to_owned()
}

/// A string in JSON.
fn json_string(text: &str) -> String {
    let mut json = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::super::{packages, stdout_of};
    use super::{document, json_string};
    use crate::cargo;

    #[test]
    fn every_package_of_the_binary_is_listed_once() {
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let listed = document(
            "1.0.0",
            "1.0.0",
            &packages::in_binary(&target).expect("cargo lists the packages"),
        );
        for (workspace, target, root) in
            [(cargo::root(), &*target, "toolhold-cli"), (&cargo::plugins(), cargo::WASM, "file")]
        {
            let mut tree = cargo::cargo(workspace, "tree");
            let tree = tree.args([
                "--locked",
                "--edges",
                "normal,no-proc-macro",
                "--target",
                target,
                "--prefix",
                "none",
                "--package",
                root,
            ]);
            let tree = stdout_of(tree).expect("cargo lists the packages");
            let packages: Vec<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
            assert!(packages.len() > 10, "{packages:?}");
            for package in packages {
                let mut words = package.split(' ');
                let (name, version) = (
                    words.next().unwrap_or_default(),
                    words.next().unwrap_or_default().trim_start_matches('v'),
                );
                let entry = format!("\"name\": \"{name}\", \"version\": \"{version}\"");
                assert_eq!(listed.matches(&entry).count(), 1, "{package}");
            }
        }
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(json_string("a \"b\" \\ \n é"), "\"a \\\"b\\\" \\\\ \\u000a é\"");
    }
}
