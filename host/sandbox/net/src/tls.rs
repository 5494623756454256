//! The certificate authorities that TLS trusts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The trusted certificate authorities: those of this machine and the operator's own. If the
/// machine has none, the built-in ones are used. They are read when they are first needed, because
/// reading them takes longer than most calls.
#[derive(Debug, Default)]
pub struct TrustStore {
    config: OnceLock<Result<Arc<ClientConfig>, String>>,
}

impl TrustStore {
    /// The TLS configuration of a client. The first call is slow.
    ///
    /// # Errors
    ///
    /// Why one of the operator's own authorities can't be used. Requests then fail, because they
    /// must not be made with other authorities than configured.
    pub(super) fn config(&self, own: &[PathBuf]) -> Result<ClientConfig, String> {
        self.config.get_or_init(|| read(own).map(Arc::new)).clone().map(|config| (*config).clone())
    }
}

/// The number of certificates in the file of an authority.
///
/// # Errors
///
/// Why the file can't be used.
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
        tracing::warn!(target: "toolhold::egress", "some of this machine's certificate authorities can't be read: {error}");
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
