//! Whom TLS trusts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The authorities: those of this machine, or those that are built in where it has none, and the
/// operator's own. Read when they are first needed, since reading them takes longer than most
/// calls.
#[derive(Debug, Default)]
pub struct TrustStore {
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl TrustStore {
    /// What a client needs. Takes some time the first time.
    ///
    /// # Errors
    ///
    /// What is wrong with the operator's own authorities: a request is not made with others than
    /// were meant.
    pub(super) fn config(&self, own: &[PathBuf]) -> Result<ClientConfig, String> {
        self.config.get_or_init(|| read(own).map(Arc::new)).clone().map(|config| (*config).clone())
    }
}

/// How many certificates a file of an authority has.
///
/// # Errors
///
/// Why it can't be used.
pub fn examine_authority(path: &Path) -> Result<usize, String> {
    let certificates = read_certificates(path)?;
    let mut roots = RootCertStore::empty();
    certificates
        .iter()
        .try_for_each(|certificate| roots.add(certificate.clone()))
        .map_err(|error| error.to_string())?;
    Ok(certificates.len())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let certificates: Vec<_> =
        certificates.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    if certificates.is_empty() {
        Err("it has no certificate in PEM form".to_owned())
    } else {
        Ok(certificates)
    }
}

fn read(own: &[PathBuf]) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(target: "berth::egress", "some of this machine's certificate authorities can't be read: {error}");
    }
    roots.add_parsable_certificates(system.certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for path in own {
        let fail = |reason: String| {
            format!("`authorities` in [network] names {}: {reason}", path.display())
        };
        let certificates = read_certificates(path).map_err(fail)?;
        for certificate in certificates {
            roots.add(certificate).map_err(|error| fail(error.to_string()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
