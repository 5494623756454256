//! Estimates the tokens of a conversation without the model's tokenizer. The provider's counts
//! correct the estimate.

/// The tokens of a message in addition to its text.
const PER_MESSAGE: u64 = 4;

/// The least and the greatest correction factor of estimates. With these limits, a provider that
/// reports wrong counts can't disable a budget.
const FACTORS: (f64, f64) = (0.5, 8.0);

/// The part of the window above which old results are pruned.
const SOFT: f64 = 0.6;

/// The fill level of the window above which no request is sent until the context is smaller.
const HARD: f64 = 0.9;

/// Estimates the tokens of one message from its bytes.
pub(crate) fn estimate(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4).saturating_add(PER_MESSAGE)
}

/// The tokens of the next request.
///
/// The meter starts with estimates. After each answer, the provider's count replaces the estimate
/// of the conversation so far. The ratio of count and estimate corrects later estimates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenMeter {
    /// The last count of the provider.
    counted: u64,
    /// The estimate of what was added since.
    added: u64,
    /// The estimate of the whole conversation. The next correction is made from it.
    whole: u64,
    factor: f64,
}

/// The fill level of the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fill {
    /// Nothing has to be done.
    Fine,
    /// Above 60 percent: prune old results.
    Soft,
    /// Above 90 percent: make the context smaller before the next request.
    Hard,
}

impl TokenMeter {
    /// The meter of an empty conversation.
    pub(crate) fn new() -> Self {
        Self { counted: 0, added: 0, whole: 0, factor: 1.0 }
    }

    /// Adds a message of this many bytes. The list of tools is also added as a message.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.added = self.added.saturating_add(estimate(bytes));
        self.whole = self.whole.saturating_add(estimate(bytes));
    }

    /// Corrects the meter with the provider's count of the request, including the cached part. Call
    /// this before you add the model's answer. A count of zero is ignored.
    pub(crate) fn correct(&mut self, request: u64) {
        if request == 0 {
            return;
        }
        if self.whole > 0 {
            let factor = request as f64 / self.whole as f64;
            self.factor = factor.clamp(FACTORS.0, FACTORS.1);
        }
        self.counted = request;
        self.added = 0;
    }

    /// Restarts the meter with messages of these sizes, after the conversation was pruned or
    /// compressed. The correction stays.
    pub(crate) fn replace(&mut self, messages: impl IntoIterator<Item = usize>) {
        self.counted = 0;
        self.added = 0;
        self.whole = 0;
        messages.into_iter().for_each(|bytes| self.add(bytes));
    }

    /// Returns the tokens of the next request. The correction never makes the estimate of new
    /// messages smaller, so that a budget isn't exceeded.
    pub(crate) fn tokens(&self) -> u64 {
        let added = (self.added as f64 * self.factor.max(1.0)).ceil();
        self.counted.saturating_add(added as u64)
    }

    /// Returns the fill level of a window of this many tokens, if the answer may take `answer` of
    /// these.
    pub(crate) fn fill(&self, window: u64, answer: u64) -> Fill {
        let used = self.tokens() as f64;
        let window = window.saturating_sub(answer) as f64;
        if used > window * HARD {
            Fill::Hard
        } else if used > window * SOFT {
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
