//! Puts the secrets into a request after it was checked, so that no guest has them.

use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use toolhold_policy::egress::{Placement, Target};
use url::Url;

use super::record::Record;
use super::{Egress, Error};

impl Egress {
    /// Puts the secrets for a request into its headers and its URL.
    ///
    /// # Errors
    ///
    /// A secret can't be read, or isn't valid in a header.
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
        for (index, secret) in self.settings.secrets.iter().enumerate() {
            if !secret.rule.applies_to(target, method.as_str(), &path, &private) {
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
        }
        Ok(())
    }
}
