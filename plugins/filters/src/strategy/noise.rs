//! `strip_noise` and `keep_matching`: leave out lines that match an expression, or all others.

use serde::Deserialize;
use toolhold_sdk::filter::Confidence;

use super::{Outcome, Part, Patterns, Run, not_empty};
use crate::guard::Level;
use crate::text::{indent, is_blank};

/// Parameters of `strip_noise`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripNoise {
    patterns: Vec<String>,
    /// The indented lines below a line that matches stay.
    #[serde(default)]
    keep_below: Vec<String>,
}

impl StripNoise {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        not_empty("patterns", &self.patterns)?;
        let below = (!self.keep_below.is_empty())
            .then(|| Patterns::new("keep_below", &self.keep_below))
            .transpose()?;
        Ok(Box::new(NoiseStripper { noise: Patterns::new("patterns", &self.patterns)?, below }))
    }
}

struct NoiseStripper {
    noise: Patterns,
    below: Option<Patterns>,
}

impl Run for NoiseStripper {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let mut is_below = false;
        let keep: Vec<bool> = (0..part.lines.len())
            .map(|at| {
                let line = part.lines[at];
                is_below &= indent(line) > 0;
                let stays = is_below
                    || part.is_error(at)
                    || ends_context(part, at)
                    || !self.noise.fit(line);
                is_below |= self.below.as_ref().is_some_and(|below| below.fit(line));
                stays
            })
            .collect();
        if keep.iter().all(|keep| *keep) {
            Outcome::Unchanged
        } else {
            Outcome::Lines(keep, Confidence::Full)
        }
    }
}

/// Whether a line is blank and follows the context of an error. Without it, a later step would take
/// the next lines for a part of that context.
fn ends_context(part: &Part<'_>, at: usize) -> bool {
    at > 0 && part.levels[at - 1] == Level::ErrorContext && is_blank(part.lines[at])
}

/// Parameters of `keep_matching`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepMatching {
    patterns: Vec<String>,
}

impl KeepMatching {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        not_empty("patterns", &self.patterns)?;
        Ok(Box::new(MatchKeeper(Patterns::new("patterns", &self.patterns)?)))
    }
}

struct MatchKeeper(Patterns);

impl Run for MatchKeeper {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let fits: Vec<bool> =
            part.lines.iter().map(|line| !is_blank(line) && self.0.fit(line)).collect();
        if !fits.contains(&true) {
            return Outcome::Unknown;
        }
        let keep = fits.iter().enumerate().map(|(at, fits)| *fits || part.is_notable(at)).collect();
        Outcome::Lines(keep, Confidence::Full)
    }
}
