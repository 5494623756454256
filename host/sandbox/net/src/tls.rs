//! The certificate authorities that TLS trusts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::{ClientConfig, RootCertStore};

/// The trusted certificate authorities of this machine and of the operator. A machine without
/// authorities uses the built-in ones. The authorities are read at the first use, because reading
/// takes longer than most calls.
#[derive(Debug, Default)]
pub struct TrustStore {
    config: OnceLock<Result<Arc<ClientConfig>, Arc<TrustError>>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TrustError {
    #[error("`authorities` in [network] names {}: {source}", .path.display())]
    Authority { path: PathBuf, source: AuthorityError },
    #[error(transparent)]
    Versions(#[from] rustls::Error),
}

/// The reason why a file of authorities can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The file can't be read.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// The file has no certificate.
    #[error("the file has no certificate in PEM format")]
    Empty,
    /// A certificate of the file isn't valid.
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
}

impl TrustStore {
    /// Returns the TLS configuration of a client. `authorities` are the operator's own files. The
    /// first call is slow. An unusable file makes all requests fail, because requests must not rely
    /// on other authorities than the configured ones.
    pub(super) fn config(&self, authorities: &[PathBuf]) -> Result<ClientConfig, Arc<TrustError>> {
        let config = self.config.get_or_init(|| read(authorities).map(Arc::new).map_err(Arc::new));
        match config {
            Ok(config) => Ok((**config).clone()),
            Err(error) => Err(Arc::clone(error)),
        }
    }
}

/// Returns the number of certificates in a file of authorities.
///
/// # Errors
///
/// Returns the reason why the file can't be used.
pub fn examine_authority(path: &Path) -> Result<usize, AuthorityError> {
    let certificates = read_certificates(path)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone())?;
    }
    Ok(certificates.len())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AuthorityError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(AuthorityError::Empty) } else { Ok(certificates) }
}

fn add_authority(roots: &mut RootCertStore, path: &Path) -> Result<(), AuthorityError> {
    for certificate in read_certificates(path)? {
        roots.add(certificate)?;
    }
    Ok(())
}

/// Creates a configuration with the authorities of this machine and of the operator's files.
fn read(operator_files: &[PathBuf]) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(target: "toolhold::egress", "some of this machine's certificate authorities can't be read: {error}");
    }
    roots.add_parsable_certificates(system.certs);
    // A small container may have no authorities.
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    for path in operator_files {
        add_authority(&mut roots, path)
            .map_err(|source| TrustError::Authority { path: path.clone(), source })?;
    }

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
