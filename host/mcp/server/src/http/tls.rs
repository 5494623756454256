//! Sets TLS up if a certificate is configured.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use toolhold_core::config::Serve;

use crate::error::ServeError;

/// Creates the TLS acceptor from the files of the certificate and of the private key, or returns
/// `None` without a configured certificate.
pub(super) fn acceptor(settings: &Serve) -> Result<Option<TlsAcceptor>, ServeError> {
    let (certificate, key) = match (settings.certificate.as_str(), settings.key.as_str()) {
        ("", "") => return Ok(None),
        ("", _) => {
            return Err(ServeError::Settings("`key` in [serve] needs `certificate`".to_owned()));
        }
        (_, "") => {
            return Err(ServeError::Settings("`certificate` in [serve] needs `key`".to_owned()));
        }
        paths => paths,
    };
    let certificates = CertificateDer::pem_file_iter(absolute_path("certificate", certificate)?)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| read_error("certificate", certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(absolute_path("key", key)?)
        .map_err(|error| read_error("key", key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private))
        .map_err(|error| setting_error("certificate", certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn absolute_path<'a>(key: &str, path: &'a str) -> Result<&'a Path, ServeError> {
    let path = Path::new(path);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(ServeError::Settings(format!("`{key} = {path:?}` in [serve] isn't an absolute path")))
}

fn read_error(key: &str, path: &str, error: &pem::Error) -> ServeError {
    match error {
        pem::Error::NoItemsFound => {
            setting_error(key, path, &"the file has no such item in PEM format")
        }
        pem::Error::Io(error) => setting_error(key, path, error),
        error => setting_error(key, path, error),
    }
}

fn setting_error(key: &str, path: &str, error: &dyn std::fmt::Display) -> ServeError {
    ServeError::Settings(format!("`{key} = {path:?}` in [serve]: {error}"))
}
