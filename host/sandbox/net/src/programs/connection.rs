//! A connection that the gate has allowed, perhaps after a question.

use std::fmt;
use std::sync::Arc;

use toolhold_contract::Report;
use toolhold_policy::egress::{ProgramTarget, Scheme, Target, TargetHost};

use super::access::HostAccess;
use super::connection_record::{ConnectionRecord, LogEntries};
use super::failure_limit::FailureLimit;
use super::first_bytes::{Protocol, check_server_name, unknown_protocol};
use super::host_questions::HostQuestions;
use crate::Error;
use crate::record::Record;

/// A connection that the gate has allowed, or that a person can approve.
pub(super) struct AllowedConnection {
    pub(super) host: TargetHost,
    pub(super) port: u16,
    pub(super) program: String,
    pub(super) access: Arc<HostAccess>,
    /// Asks for approval of the connection. `None` if an entry grants it, or after the approval.
    pub(super) questions: Option<Arc<HostQuestions>>,
    /// The report of the call. `None` if the command continues after its call, so that the log of
    /// the network gets each record instead.
    pub(super) report: Option<Arc<Report>>,
    /// Limits the records of failures in the log of the network.
    pub(super) failures: Arc<FailureLimit>,
}

impl fmt::Debug for AllowedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} for {}", self.host, self.port, self.program)
    }
}

impl AllowedConnection {
    pub(super) fn target(&self, scheme: Scheme) -> Target {
        Target { scheme, host: self.host.clone(), port: self.port }
    }

    /// Begins the record of the connection, or of one request on it.
    pub(super) fn record(&self, scheme: Scheme, method: &str) -> ConnectionRecord {
        let report = self.report.clone().unwrap_or_default();
        let record = Record::begin(&report, &Arc::default(), method);
        record.set_program(&self.program);
        if let Ok(url) = url::Url::parse(&self.target(scheme).origin()) {
            let hop = 0;
            record.set_url(&url, hop);
        }
        let log = if self.report.is_none() { self.access.log() } else { None };
        let failures = Arc::clone(&self.failures);
        ConnectionRecord::new(record, log.map(|log| LogEntries::new(log, report, failures)))
    }

    /// Checks whether an entry grants this port of the host for any protocol. The ports of HTTP are
    /// only for HTTP.
    pub(super) fn is_plain_tcp(&self) -> bool {
        !self.has_http_port()
            && self.access.egress.settings().reach.grants_port(&self.host, self.port)
    }

    /// Checks whether the connection may have a protocol in which the server speaks first.
    pub(super) fn may_be_plain_tcp(&self) -> bool {
        self.is_plain_tcp() || (self.questions.is_some() && !self.has_http_port())
    }

    fn has_http_port(&self) -> bool {
        [Scheme::Http, Scheme::Https].iter().any(|scheme| scheme.port() == self.port)
    }

    /// Waits for the approval of the connection, unless an entry grants it. The protocol decides
    /// which entry a person approves.
    pub(super) async fn approve(&mut self, protocol: &Protocol) -> Result<(), Error> {
        let Some(questions) = &self.questions else { return Ok(()) };
        let host = self.host.clone();
        let wanted = match protocol {
            Protocol::Tls(name) => {
                check_server_name(&self.host, name.as_deref())?;
                ProgramTarget::new(Scheme::Https, host, self.port)
            }
            Protocol::Http => ProgramTarget::new(Scheme::Http, host, self.port),
            Protocol::Other if self.has_http_port() => return Err(unknown_protocol()),
            Protocol::Other => ProgramTarget::of_other_protocol(host, self.port),
        };
        self.access = questions.approve(&self.access, &wanted, &self.program).await?;
        self.questions = None;
        Ok(())
    }
}
