//! The sample `image-info` with files that are made to break it.

use std::fs;

use serde_json::{Value, json};

use super::IMAGES;
use crate::support::{Cli, Ended};

fn info(cli: &Cli, path: &str) -> Value {
    let arguments = json!({ "path": path }).to_string();
    let line = ["call", "--json", "image-info__image_info", &arguments];
    Ended::from_output(cli.command(&line).output().expect("toolhold starts")).json()
}

#[test]
fn hostile_images_are_answered_or_refused() {
    let Some(component) = IMAGES.component() else { return };
    let cli = Cli::new();
    let grants = IMAGES
        .shown("toolhold.toml")
        .replace("\"image-info.wasm\"", &format!("{component:?}"))
        .replace("\".\"", &format!("{:?}", cli.work()));
    cli.configure(&grants);

    let start_of_png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";
    let huge = [start_of_png as &[u8], b"\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0\0\0\0\0"];
    let gif = [b"GIF89a\x01\0\x01\0\0\0\0\x21\xfe" as &[u8], &[1; 8 << 20]];
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", Vec::new(), "unknown-format"),
        ("cut", start_of_png.to_vec(), "damaged"),
        ("huge", huge.concat(), ""),
        ("markers", [b"\xff\xd8" as &[u8], &[0xff; 4 << 20]].concat(), "damaged"),
        ("back", b"\xff\xd8\xff\xe1\0\0\xff\xe1\0\0".to_vec(), "damaged"),
        ("blocks", gif.concat(), ""),
        ("quotes", [b"<svg " as &[u8], &b"a='".repeat(100_000)].concat(), "damaged"),
        ("comments", b"<!--".repeat(100_000), "unknown-format"),
        ("large", vec![0; (20 << 20) + 1], "too-large"),
    ];
    for (name, bytes, code) in cases {
        fs::write(cli.work().join(name), bytes).expect("a file is written");
        let answer = info(&cli, name);
        if code.is_empty() {
            assert!(answer["output"]["structured"]["width"].is_number(), "{name}: {answer}");
        } else {
            assert_eq!(answer["failure"]["code"], code, "{name}: {answer}");
        }
    }

    // Outside of what is granted, it learns nothing, not even by a link.
    std::os::unix::fs::symlink(cli.root.path().join("secret.txt"), cli.work().join("link"))
        .expect("a link is made");
    for path in ["link", "../secret.txt", "../none.png"] {
        let answer = info(&cli, path);
        assert_eq!(answer["failure"]["category"], "policy_blocked", "{path}: {answer}");
        assert!(!answer.to_string().contains("the secret"), "{answer}");
    }
}
