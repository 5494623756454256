//! Asks the person a source's own question during a call, and records it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use toolhold_answers::holds_secret;
use toolhold_audit::InquiryRecord;
use toolhold_catalogue::{CallContext, Tool};
use toolhold_contract::{BoxFuture, Failure, Inquirer, Inquiry, InquiryAnswer, Wanted};

use crate::approvals::{Approver, QuestionSlots, SlotError};
use crate::audit::Audit;
use crate::host::Host;

#[derive(Debug, thiserror::Error)]
enum InquiryError {
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("{}", .0.message)]
    Unrecorded(Box<Failure>),
}

pub(crate) struct CallInquirer {
    approver: Arc<dyn Approver>,
    audit: Arc<Audit>,
    question_slots: Arc<QuestionSlots>,
    call: String,
    tool: String,
    provider: String,
    session: String,
    /// Whether answers with a secret are refused.
    redacts: bool,
    /// How long a question stays open.
    lasting: Duration,
    waited: Mutex<Duration>,
}

impl CallInquirer {
    /// Creates the inquirer for the questions of a call's tool. Returns `None` for tools of
    /// plugins, because plugins ask no questions, and if no person can be asked.
    pub(crate) fn for_call(
        host: &Host,
        context: &CallContext,
        tool: &Tool,
        approver: Option<Arc<dyn Approver>>,
    ) -> Option<Self> {
        if tool.plugin.is_some() {
            return None;
        }
        let approver = approver?;
        let lasting = host.asking.config().values.approvals.expire_secs.get();
        Some(Self {
            approver,
            audit: Arc::clone(&host.audit),
            question_slots: Arc::clone(&host.asking.question_slots),
            call: context.id.to_string(),
            tool: tool.definition.name.clone(),
            provider: tool.provider.name().to_owned(),
            session: context.session.to_string(),
            redacts: host.shaping.redacts(context),
            lasting: Duration::from_secs(lasting),
            waited: Mutex::default(),
        })
    }

    /// Takes the time that the call has waited for a person since the last call of this function.
    pub(crate) fn take_waited(&self) -> Duration {
        std::mem::take(&mut *self.waited.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a question. `answer` is the kind of the answer, and the person or reason.
    async fn record(
        &self,
        wanted: &Wanted,
        answer: Option<(&str, &str)>,
    ) -> Result<(), InquiryError> {
        let wanted_kind = match wanted {
            Wanted::Form(_) => "form",
            Wanted::Visit(_) => "address",
        };
        let record = InquiryRecord {
            call: &self.call,
            tool: &self.tool,
            provider: &self.provider,
            wanted: wanted_kind,
            answer,
            session: &self.session,
        };
        let recorded = self.audit.inquiry(&record).await;
        recorded.map_err(|failure| InquiryError::Unrecorded(Box::new(failure)))
    }

    async fn ask(&self, inquiry: Inquiry) -> Result<InquiryAnswer, InquiryError> {
        let _slot = self.question_slots.take(&self.session)?;
        let wanted = inquiry.wanted.clone();
        self.record(&wanted, None).await?;
        let answer = self.wait_for_answer(inquiry).await;
        let kind_and_detail = match &answer {
            InquiryAnswer::Accepted { by, .. } => ("accepted", by.as_str()),
            InquiryAnswer::Declined { by } => ("declined", by.as_str()),
            InquiryAnswer::Unanswered(reason) => ("unanswered", reason.as_str()),
        };
        self.record(&wanted, Some(kind_and_detail)).await?;
        Ok(answer)
    }

    /// Asks the person and measures the waiting time. Discards an answer with a secret, because the
    /// tool must not get secrets.
    async fn wait_for_answer(&self, inquiry: Inquiry) -> InquiryAnswer {
        let asked_at = Instant::now();
        let result = tokio::time::timeout(self.lasting, self.approver.inquire(inquiry)).await;
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner) += asked_at.elapsed();
        let Ok(answer) = result else {
            let seconds = self.lasting.as_secs();
            return InquiryAnswer::Unanswered(format!("no answer within {seconds} s"));
        };
        if self.redacts
            && let InquiryAnswer::Accepted { content, .. } = &answer
            && content.values().any(holds_secret)
        {
            return InquiryAnswer::Unanswered("the answer contains a secret".to_owned());
        }
        answer
    }
}

impl Inquirer for CallInquirer {
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async move {
            self.ask(inquiry)
                .await
                .unwrap_or_else(|error| InquiryAnswer::Unanswered(error.to_string()))
        })
    }
}
