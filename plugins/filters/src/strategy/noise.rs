use berth_sdk::filter::Confidence;
use serde::Deserialize;

use super::{Outcome, Part, Patterns, Run, not_empty};
use crate::text::is_blank;

/// Parameters of `strip_noise`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StripNoise {
    patterns: Vec<String>,
}

impl StripNoise {
    pub(super) fn step(&self) -> Result<Box<dyn Run>, String> {
        not_empty("patterns", &self.patterns)?;
        Ok(Box::new(NoiseStripper(Patterns::new("patterns", &self.patterns)?)))
    }
}

struct NoiseStripper(Patterns);

impl Run for NoiseStripper {
    fn run(&self, part: &Part<'_>) -> Outcome {
        let keep: Vec<bool> = (0..part.lines.len())
            .map(|at| part.is_error(at) || !self.0.fit(part.lines[at]))
            .collect();
        if keep.iter().all(|keep| *keep) {
            Outcome::Unchanged
        } else {
            Outcome::Lines(keep, Confidence::Full)
        }
    }
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
