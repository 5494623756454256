//! Puts the secrets into a request after the check, so that no guest sees them.

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_policy::egress::{Placement, SecretMismatch, Target};
use url::Url;

use super::record::Record;
use super::{Egress, Error};

/// Bytes of a notice. A guest chooses the method of a request.
const MAX_NOTICE: usize = 1024;

impl Egress {
    /// Puts the secrets for a request into its headers and its URL.
    ///
    /// # Errors
    ///
    /// Returns an error if a secret can't be read, or isn't valid in a header.
    pub(super) async fn put_secrets(
        &self,
        url: &mut Url,
        target: &Target,
        method: &Method,
        headers: &mut HeaderMap,
        record: &Record,
    ) -> Result<(), Error> {
        let private: Vec<_> =
            self.settings.reach.private.iter().map(|placed| placed.value.clone()).collect();
        let path = url.path().to_owned();
        let mut has_secrets = false;
        let mut withheld = Vec::new();
        for (index, secret) in self.settings.secrets.iter().enumerate() {
            let rule = &secret.rule;
            if !rule.applies_to(target, method.as_str(), &path, &private) {
                let mismatch = rule.mismatch(target, method.as_str(), &path, &private);
                withheld.extend(mismatch.map(|mismatch| (&rule.name, mismatch)));
                continue;
            }
            let value = self.secret(index).await?;
            has_secrets = true;
            match &secret.rule.placement {
                Placement::Header { name, prefix } => {
                    let name = HeaderName::try_from(name).map_err(|error| {
                        Error::Secret(secret.rule.name.clone(), error.to_string())
                    })?;
                    let Ok(mut value) = HeaderValue::try_from(format!("{prefix}{value}")) else {
                        let reason = "it isn't valid in a header".to_owned();
                        return Err(Error::Secret(secret.rule.name.clone(), reason));
                    };
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
                Placement::Query { name } => {
                    // The secret replaces a value of the guest.
                    let others: Vec<(String, String)> =
                        url.query_pairs().into_owned().filter(|(other, _)| other != name).collect();
                    url.query_pairs_mut().clear().extend_pairs(others).append_pair(name, value);
                }
            }
            record.add_secret(&secret.rule.name);
        }
        if has_secrets {
            self.update_echoes();
            return Ok(());
        }
        // Other secrets of the host are for other requests, so they are no mistake beside one that
        // is sent.
        for (name, mismatch) in withheld {
            let notice = self.describe_withheld(name, mismatch, target, method);
            tracing::warn!(target: "toolhold::egress", "{notice}");
            record.notice(notice);
        }
        Ok(())
    }

    /// Describes why a request to a host of a secret went out without the secret, and the remedy.
    fn describe_withheld(
        &self,
        name: &str,
        mismatch: SecretMismatch,
        target: &Target,
        method: &Method,
    ) -> String {
        let table = format!("[{}.secrets.{name}]", self.settings.reach.table.name);
        let (why, remedy) = match mismatch {
            SecretMismatch::Origin => (
                "its `hosts` have another port or scheme".to_owned(),
                format!("add \"{target}\" to `hosts` in {table}"),
            ),
            SecretMismatch::NoTls => (
                "the request has no TLS, and the host isn't opened on this machine".to_owned(),
                format!(
                    "use https, or, for a server of this machine, add \"{}\" to \
                     `allowed_private_hosts` in [{}]",
                    target.host_and_port(),
                    self.settings.reach.table.name
                ),
            ),
            SecretMismatch::Method => (
                format!("its `methods` don't have {method}"),
                format!("add the method to `methods` in {table}"),
            ),
            SecretMismatch::Path => (
                "its `paths` don't have the path of the request".to_owned(),
                format!("add the start of the path to `paths` in {table}"),
            ),
        };
        let text =
            format!("The secret `{name}` was not sent to {target}: {why}. To send it, {remedy}.");
        neutral_line(cut(&text, MAX_NOTICE))
    }
}
