//! The certificate authority with which Toolhold reads the TLS connections of programs.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use toolhold_policy::egress::TargetHost;

/// The names of the authority and of the owner of its certificates. They differ, because a program
/// takes a certificate with two equal names for a self-signed one.
const AUTHORITY_NAME: &str = "Toolhold, for commands in its sandbox only";
const OWNER_NAME: &str = "Toolhold";

/// Certificates are valid from this time before their creation, because clocks differ.
const BEFORE: Duration = Duration::from_secs(24 * 60 * 60);

/// Certificates are valid for this time. Some programs refuse more than 398 days.
const VALID: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Maximum number of certificates that are kept. Without a limit, a program could ask for any
/// number of names below a granted name.
const MAX_CERTIFICATES: usize = 256;

/// Protocols that programs may choose, in the order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The reason why a certificate can't be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthorityError {
    #[error(transparent)]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The reason is a text, because the library's error is one.
    #[error("the key of the certificate can't be used: {0}")]
    Key(&'static str),
}

/// A certificate authority that only programs in the sandbox trust. Its key exists only in memory.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    servers: Mutex<HashMap<TargetHost, Arc<ServerConfig>>>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// Makes an authority with a new key.
    pub(super) fn new() -> Result<Self, AuthorityError> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        set_validity(&mut params);
        params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        let intermediates = 0;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(intermediates));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate, servers: Mutex::default() })
    }

    /// Returns the certificate of the authority in PEM format.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Returns the TLS configuration with a certificate for a host.
    pub(super) fn server(&self, host: &TargetHost) -> Result<Arc<ServerConfig>, AuthorityError> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(host) {
            return Ok(Arc::clone(server));
        }
        if servers.len() >= MAX_CERTIFICATES {
            servers.clear();
        }
        let server = Arc::new(self.new_server(host)?);
        servers.insert(host.clone(), Arc::clone(&server));
        Ok(server)
    }

    fn new_server(&self, host: &TargetHost) -> Result<ServerConfig, AuthorityError> {
        // Each certificate has its own key, because its serial number is made from the key.
        let key = KeyPair::generate()?;
        let name = match host {
            TargetHost::Name(name) => name.clone(),
            TargetHost::Address(address) => address.to_string(),
        };
        let mut params = CertificateParams::new(vec![name])?;
        set_validity(&mut params);
        params.distinguished_name.push(DnType::CommonName, OWNER_NAME);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;

        let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(AuthorityError::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)?;
        config.alpn_protocols = PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

fn set_validity(params: &mut CertificateParams) {
    let now = SystemTime::now();
    params.not_before = now.checked_sub(BEFORE).unwrap_or(now).into();
    params.not_after = now.checked_add(VALID).unwrap_or(now).into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_kept_and_bounded() {
        let authority = Authority::new().expect("an authority");
        let name = |number: usize| TargetHost::Name(format!("{number}.example.org"));
        let first = authority.server(&name(0)).expect("a certificate");
        assert!(Arc::ptr_eq(&first, &authority.server(&name(0)).expect("a certificate")));
        for number in 1..=MAX_CERTIFICATES {
            authority.server(&name(number)).expect("a certificate");
        }
        let kept = authority.servers.lock().expect("a lock").len();
        assert!(kept <= MAX_CERTIFICATES, "{kept}");
        assert!(authority.certificate().starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(!authority.certificate().contains("PRIVATE"));
    }
}
