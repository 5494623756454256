//! Private keys: whole, in parts, and line by line.

use super::*;

#[test]
fn part_of_a_key_file_is_found_without_begin_or_end() {
    let whole = pem("OPENSSH PRIVATE KEY");
    let lines: Vec<&str> = whole.lines().collect();
    let numbered = |lines: &[&str]| {
        lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("{:>4}\t{line}\n", at + 3))
            .collect::<String>()
    };
    let in_grep = |lines: &[&str]| {
        lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("keys/id_x:{at}: {line}\n"))
            .collect::<String>()
    };
    let in_json = |lines: &[&str]| format!("{{\"private\": \"{}\\n\"}}", lines.join("\\n"));
    let in_code = |lines: &[&str]| {
        lines.iter().map(|line| format!("    \"{line}\\n\" +\n")).collect::<String>()
    };
    for part in [&lines[..], &lines[..4], &lines[2..], &lines[5..]] {
        for text in [numbered(part), in_grep(part), part.join("\n")] {
            check_redacted(&text, part[1], Keys::Unknown);
        }
    }
    for text in [in_json(&lines), in_code(&lines)] {
        let redacted = check_redacted(&text, lines[3], Keys::Unknown);
        assert!(!redacted.contains(lines[6]), "{redacted}");
    }
    assert_eq!(
        super::text(&format!("a\n{whole}b\n"), Keys::Unknown),
        "a\n[REDACTED:private-key …]\nb\n"
    );
}

#[test]
fn private_key_without_header_is_found_by_its_beginning() {
    // The beginnings of keys of openssl and ssh-keygen. They are in two pieces, so that a secret
    // scanner doesn't report this file.
    for start in [
        ["MIIE", "ogIBAAKCAQEA"],
        ["MIIC", "XQIBAAKBgQDn"],
        ["MIIJ", "JwIBAAKCAgEA"],
        ["MIIE", "vgIBADANBgkqhkiG9w0B"],
        ["MHcC", "AQEEIAYy"],
        ["MIGk", "AgEBBDCj"],
        ["MIHc", "AgEBBEIA"],
        ["MIGH", "AgEAMBMGByqGSM49AgEG"],
        ["MIG2", "AgEAMBAGByqGSM49AgEG"],
        ["MIHu", "AgEAMBAGByqGSM49AgEG"],
        ["MC4C", "AQAwBQYDK2VwBCIEILsT"],
        ["b3Bl", "bnNzaC1rZXktdjEAAAAA"],
    ] {
        let lines: Vec<String> = [start.concat(), String::new(), String::new()]
            .map(|line| line.clone() + &random_text(ALNUM, 64 - line.len()))
            .into();
        for around in ["@", "  3\t@", "keys/x:3: @", "key = \"@\"", "(@)"] {
            check_redacted(
                &format!("a\n{}\nb\n", around.replace('@', &lines[0])),
                &lines[0],
                Keys::Unknown,
            );
        }
        let whole =
            format!("a\n{}\n{}==\nuse std::io;\n", lines.join("\n"), random_text(ALNUM, 20));
        assert_eq!(
            super::text(&whole, Keys::Unknown),
            "a\n[REDACTED:private-key …]\nuse std::io;\n"
        );
    }
    for public in [
        "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA",
        "MIIDXTCCAkWgAwIBAgIJAKoK",
        "MIIEpTCCA42gAwIBAgIEUdB",
    ] {
        let text = format!("{public}{}\n", random_text(ALNUM, 64 - public.len()));
        assert_eq!(super::text(&text, Keys::Settings), text);
    }
}

#[test]
fn each_line_of_a_key_file_is_redacted() {
    let whole = pem("OPENSSH PRIVATE KEY");
    let lines: Vec<&str> = whole.lines().collect();
    let part = format!("   3\t{}\n   4\t{}\n", lines[2], lines[3]);
    assert_eq!(
        super::text(&part, Keys::PrivateKey),
        "   3\t[REDACTED:private-key …]\n   4\t[REDACTED:private-key …]\n"
    );
    assert_eq!(super::text(&part, Keys::Settings), part);
    check_redacted("PASSWORD=correcthorse", "correcthorse", Keys::PrivateKey);
}
