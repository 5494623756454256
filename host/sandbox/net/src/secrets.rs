//! Inserts secrets into a request after the checks. Guests never see the secrets.

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_policy::egress::{Placement, SecretMismatch, SecretRule, Target};
use url::Url;

use super::record::Record;
use super::{Egress, Error};

/// Maximum length of a notice in bytes. A longer notice is cut, because a guest chooses the method
/// in it.
const MAX_NOTICE: usize = 1024;

impl Egress {
    /// Inserts the secrets for a request into its headers and its URL. Fails if a secret can't be
    /// read, or isn't valid in a header.
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
            // Only programs have placeholders.
            if matches!(rule.placement, Placement::Placeholder { .. }) {
                continue;
            }
            if !rule.applies_to(target, method.as_str(), &path, &private) {
                let mismatch = rule.mismatch(target, method.as_str(), &path, &private);
                withheld.extend(mismatch.map(|mismatch| (rule, mismatch)));
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
                        let reason =
                            "the secret has a character that headers don't allow".to_owned();
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
                Placement::Placeholder { .. } => {}
            }
            record.add_secret(&secret.rule.name);
        }
        if has_secrets {
            self.update_echoes();
            return Ok(());
        }
        // If one secret of the host was sent, the other secrets are meant for other requests. So
        // there are notices only if no secret was sent.
        for (rule, mismatch) in withheld {
            let notice = self.describe_withheld(rule, Some(mismatch), target, method);
            tracing::warn!(target: "toolhold::egress", "{notice}");
            record.notice(notice);
        }
        Ok(())
    }

    /// Describes why a request was sent without a secret, and the remedy. Without a mismatch, the
    /// secret is for other hosts.
    pub(super) fn describe_withheld(
        &self,
        rule: &SecretRule,
        mismatch: Option<SecretMismatch>,
        target: &Target,
        method: &Method,
    ) -> String {
        let name = &rule.name;
        let table = format!("[{}.secrets.{name}]", self.settings.reach.table.name);
        let is_placeholder = matches!(rule.placement, Placement::Placeholder { .. });
        let (why, remedy) = match mismatch {
            None => (
                "`hosts` of the secret doesn't have the host".to_owned(),
                format!("add \"{}\" to `hosts` in {table}", target.authority()),
            ),
            Some(SecretMismatch::NoTls) if is_placeholder => {
                ("the request has no TLS".to_owned(), "use https".to_owned())
            }
            Some(SecretMismatch::Origin) => (
                "`hosts` of the secret has another port or scheme".to_owned(),
                format!("add \"{target}\" to `hosts` in {table}"),
            ),
            Some(SecretMismatch::NoTls) => (
                "the request has no TLS, and `allowed_private_hosts` doesn't have the \
                 host"
                    .to_owned(),
                format!(
                    "use https, or, for a server of this machine, add \"{}\" to \
                     `allowed_private_hosts` in [{}]",
                    target.host_and_port(),
                    self.settings.reach.table.name
                ),
            ),
            Some(SecretMismatch::Method) => (
                format!("`methods` of the secret doesn't have {method}"),
                format!("add the method to `methods` in {table}"),
            ),
            Some(SecretMismatch::Path) => (
                "`paths` of the secret doesn't have the path of the request".to_owned(),
                format!("add the start of the path to `paths` in {table}"),
            ),
        };
        let text =
            format!("The secret `{name}` was not sent to {target}: {why}. To send it, {remedy}.");
        neutral_line(cut(&text, MAX_NOTICE))
    }
}
