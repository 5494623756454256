//! Estimates the tokens of a conversation. The provider's counts correct the estimate.

/// The tokens of a message in addition to its text.
const PER_MESSAGE: u64 = 4;

/// The limits of the correction factor, so that a provider with wrong counts can't disable a
/// budget.
const MIN_FACTOR: f64 = 0.5;
const MAX_FACTOR: f64 = 8.0;

/// Old results are pruned if more than this part of the window is full.
const SOFT_FILL: f64 = 0.6;

/// The context must become smaller before the next request if more than this part is full.
const HARD_FILL: f64 = 0.9;

pub(crate) fn estimate(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4).saturating_add(PER_MESSAGE)
}

/// Estimates the tokens of the next request. The provider's count of each request replaces the
/// estimate of the conversation. The ratio of count and estimate corrects later estimates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenMeter {
    /// The last count of the provider.
    counted: u64,
    /// The estimate of the messages after the last count.
    added: u64,
    /// The estimate of the whole conversation, for the next correction.
    whole: u64,
    factor: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    Fine,
    /// Above 60 percent: prune old results.
    Soft,
    /// Above 90 percent: make the context smaller before the next request.
    Hard,
}

impl TokenMeter {
    pub(crate) fn new() -> Self {
        Self { counted: 0, added: 0, whole: 0, factor: 1.0 }
    }

    /// Adds a message of `bytes` bytes. The list of tools is a message too.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.added = self.added.saturating_add(estimate(bytes));
        self.whole = self.whole.saturating_add(estimate(bytes));
    }

    /// Corrects the meter with the provider's count of the request, including the cached part. The
    /// model's answer must be added afterwards, because the count doesn't contain the answer. A
    /// count of zero is ignored.
    pub(crate) fn correct(&mut self, request_tokens: u64) {
        if request_tokens == 0 {
            return;
        }
        if self.whole > 0 {
            let factor = request_tokens as f64 / self.whole as f64;
            self.factor = factor.clamp(MIN_FACTOR, MAX_FACTOR);
        }
        self.counted = request_tokens;
        self.added = 0;
    }

    /// Restarts the meter with messages of these sizes. The correction factor stays.
    pub(crate) fn replace(&mut self, messages: impl IntoIterator<Item = usize>) {
        self.counted = 0;
        self.added = 0;
        self.whole = 0;
        messages.into_iter().for_each(|bytes| self.add(bytes));
    }

    /// Returns the tokens of the next request. The correction never lowers the estimate of new
    /// messages, so that the budget isn't exceeded.
    pub(crate) fn tokens(&self) -> u64 {
        let added = (self.added as f64 * self.factor.max(1.0)).ceil();
        self.counted.saturating_add(added as u64)
    }

    /// Returns how full a context of `window` tokens is, if `answer` of these tokens are reserved
    /// for the answer.
    pub(crate) fn fill(&self, window: u64, answer: u64) -> Fill {
        let used = self.tokens() as f64;
        let request_window = window.saturating_sub(answer) as f64;
        if used > request_window * HARD_FILL {
            Fill::Hard
        } else if used > request_window * SOFT_FILL {
            Fill::Soft
        } else {
            Fill::Fine
        }
    }
}

impl Default for TokenMeter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn estimate_is_a_quarter_of_the_bytes_and_four() {
        assert_eq!([0, 1, 4, 5, 4000].map(estimate), [4, 5, 5, 6, 1004]);
    }

    #[test]
    fn count_of_the_provider_replaces_the_estimate() {
        let mut meter = TokenMeter::new();
        meter.add(3984);
        assert_eq!(meter.tokens(), 1000);
        meter.correct(1500);
        assert_eq!(meter.tokens(), 1500);
        meter.add(3984);
        assert_eq!(meter.tokens(), 3000);
        // A provider that counts fewer makes nothing smaller that isn't counted yet.
        meter.correct(1000);
        meter.add(3984);
        assert_eq!(meter.tokens(), 2000);
        meter.correct(0);
        assert_eq!(meter.tokens(), 2000);
    }

    #[test]
    fn correction_outlives_pruning() {
        let mut meter = TokenMeter::new();
        meter.add(3984);
        meter.correct(2000);
        meter.add(3984);
        meter.replace([3984]);
        assert_eq!(meter.tokens(), 2000);
    }

    #[test]
    fn fill_leaves_room_for_the_answer() {
        let mut meter = TokenMeter::new();
        meter.add(3984);
        assert_eq!(meter.fill(2000, 0), Fill::Fine);
        assert_eq!(meter.fill(1600, 0), Fill::Soft);
        assert_eq!(meter.fill(2000, 400), Fill::Soft);
        assert_eq!(meter.fill(2000, 1000), Fill::Hard);
        assert_eq!(meter.fill(0, 0), Fill::Hard);
        assert_eq!(TokenMeter::new().fill(10, 20), Fill::Fine);
    }

    proptest! {
        #[test]
        fn nothing_added_makes_a_conversation_smaller(steps in prop::collection::vec((any::<bool>(), any::<u64>()), 0..30)) {
            let mut meter = TokenMeter::new();
            for (counts, value) in steps {
                let before = meter.tokens();
                if counts {
                    meter.correct(value);
                } else {
                    meter.add(usize::try_from(value).unwrap_or(usize::MAX));
                    prop_assert!(meter.tokens() >= before);
                }
            }
        }
    }
}
