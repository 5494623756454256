//! Debian's `docker-registry`, with TLS and a password. The tests of the program use it too.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

/// `anna`, and the password as bcrypt has it.
const PASSWORDS: &str = "anna:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";

/// The login as the files of clients have it: `anna:open sesame`.
pub(crate) const AUTH: &str = "YW5uYTpvcGVuIHNlc2FtZQ==";

/// The time for the registry to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A registry that runs until it is dropped.
pub(crate) struct DockerRegistry {
    process: Child,
    folder: TempDir,
    /// The registry's port of `localhost`.
    pub(crate) port: u16,
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl DockerRegistry {
    pub(crate) fn start(program: &Path) -> Self {
        let folder = TempDir::new().expect("a folder is made");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| fs::write(path(name), text).expect("it is written");
        let (key, mut params) =
            (KeyPair::generate().expect("is made"), CertificateParams::default());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        write("ca.pem", &params.self_signed(&key).expect("it is signed").pem());
        let issuer = Issuer::new(params, key);
        let own_key = KeyPair::generate().expect("a key is made");
        let own = CertificateParams::new(["localhost".to_owned()]).expect("the name is valid");
        write("own.pem", &own.signed_by(&own_key, &issuer).expect("it is signed").pem());
        write("own.key", &own_key.serialize_pem());
        write("passwords", PASSWORDS);
        write(
            "config.json",
            &json!({
                "version": "0.1",
                "log": { "accesslog": { "disabled": true }, "level": "info" },
                "storage": { "filesystem": { "rootdirectory": path("data") } },
                "http": {
                    "addr": "127.0.0.1:0",
                    "secret": "of this test",
                    "tls": { "certificate": path("own.pem"), "key": path("own.key") },
                },
                "auth": { "htpasswd": { "realm": "test", "path": path("passwords") } },
            })
            .to_string(),
        );
        let mut process = Command::new(program)
            .arg("serve")
            .arg(path("config.json"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the registry starts");
        let lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
        let (found, port) = mpsc::channel();
        // Reads to the end, so that the registry never waits for a reader.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let port = line.split("listening on 127.0.0.1:").nth(1).and_then(|rest| {
                    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok()
                });
                if let Some(port) = port {
                    let _ = found.send(port);
                }
            }
        });
        let port = port.recv_timeout(PATIENCE).expect("the registry says where it listens");
        Self { process, folder, port }
    }

    /// The certificate of the authority that signed the registry's certificate.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// The folder of the registry's files. The registry stores its content in `data`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}
