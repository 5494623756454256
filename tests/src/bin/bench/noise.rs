//! Whether two sets of figures differ by more than the machine does by itself.

use crate::measure::median_ratio;

/// How a figure has changed, as the ratio of what it is to what it was, and between what the machine's own noise leaves it open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub(crate) ratio: f64,
    /// Nothing where there are too few figures to tell.
    pub(crate) noise: Option<(f64, f64)>,
}

impl Change {
    /// Of figures that were taken in pairs, one program right after the other: what slows the machine down for a while slows both.
    ///
    /// The noise is the interval between two of the sorted ratios in which the true median lies in 95 of 100 cases, whatever the noise is
    /// like. It takes six pairs.
    pub(crate) fn of_pairs(pairs: &[(f64, f64)]) -> Change {
        let mut ratios: Vec<f64> = pairs.iter().map(|(before, after)| ratio(*before, *after)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let noise = left_out(ratios.len()).map(|left_out| (ratios[left_out], ratios[ratios.len() - 1 - left_out]));
        Change { ratio: median_ratio(ratios), noise }
    }

    /// Of the rounds of two runs that have nothing to do with each other.
    ///
    /// The noise goes from where the middle halves of the rounds are closest to where they are farthest apart. The middle of many rounds is
    /// known better than that; but from one run to the next it changes by more than the rounds of one run tell.
    pub(crate) fn of_runs(before: &[f64], after: &[f64]) -> Change {
        const LEAST: usize = 5;
        let noise = (before.len() >= LEAST && after.len() >= LEAST).then(|| {
            let ((low_before, high_before), (low_after, high_after)) = (middle_half(before), middle_half(after));
            (ratio(high_before, low_after), ratio(low_before, high_after))
        });
        Change { ratio: ratio(median_ratio(before.to_vec()), median_ratio(after.to_vec())), noise }
    }

    /// Whether it is more than noise. Nothing where nobody can tell.
    pub(crate) fn is_more_than_noise(&self) -> Option<bool> {
        self.noise.map(|(low, high)| low > 1.0 || high < 1.0)
    }
}

fn ratio(before: f64, after: f64) -> f64 {
    after / before.max(1e-9)
}

/// How many of so many sorted values can be left out at either end, so that the true median still lies between those that are left in
/// 95 of 100 cases: it lies below all of `n` values in one of 2ⁿ cases.
fn left_out(count: usize) -> Option<usize> {
    let all = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    // The cases in which at most so many values lie on one side of it, which are a row of Pascal's triangle.
    let (mut cases, mut outside) = (all, 0.0);
    let mut found = None;
    for number in 0..count / 2 {
        outside += 2.0 * cases;
        if outside > 0.05 {
            break;
        }
        found = Some(number);
        cases *= (count - number) as f64 / (number + 1) as f64;
    }
    found
}

/// The values between which the middle half of all lie.
fn middle_half(values: &[f64]) -> (f64, f64) {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let quarter = values.len() / 4;
    (values[quarter], values[values.len() - 1 - quarter])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pairs_tell_nothing_and_more_bound_the_median() {
        // Two-sided, of a fair coin: 1/32 for six of six, 8/128 for at least six of seven, 20/512 for at least eight of nine.
        let expected = [(5, None), (6, Some(0)), (7, Some(0)), (8, Some(0)), (9, Some(1)), (12, Some(2)), (15, Some(3)), (20, Some(5))];
        for (count, left) in expected {
            assert_eq!(left_out(count), left, "{count}");
        }
        assert_eq!((left_out(0), left_out(1)), (None, None));
    }

    #[test]
    fn pairs_are_compared_pair_by_pair() {
        // The machine gets slower and slower, and the second program takes a tenth more each time.
        let pairs: Vec<(f64, f64)> = (1..=7).map(|mood| (f64::from(mood) * 10.0, f64::from(mood) * 11.0)).collect();
        let change = Change::of_pairs(&pairs);
        assert!((change.ratio - 1.1).abs() < 1e-9 && change.is_more_than_noise() == Some(true), "{change:?}");
        // As runs of their own they tell nothing.
        let (before, after): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        assert_eq!(Change::of_runs(&before, &after).is_more_than_noise(), Some(false));
    }

    #[test]
    fn one_pair_that_goes_the_other_way_leaves_it_open() {
        let mut pairs = vec![(10.0, 12.0); 6];
        pairs.push((10.0, 9.0));
        let change = Change::of_pairs(&pairs);
        assert_eq!((change.ratio, change.noise), (1.2, Some((0.9, 1.2))));
        assert_eq!(change.is_more_than_noise(), Some(false));
        assert_eq!(Change::of_pairs(&pairs[..5]).is_more_than_noise(), None);
    }

    #[test]
    fn runs_differ_when_their_middle_halves_do() {
        let before = [10.0, 11.0, 12.0, 13.0, 14.0, 90.0, 10.5, 12.5];
        let faster = before.map(|value| value / 2.0);
        let change = Change::of_runs(&before, &faster);
        assert!(change.ratio < 0.51 && change.is_more_than_noise() == Some(true), "{change:?}");
        let (low, high) = change.noise.expect("there are enough");
        assert!(low < 0.5 && 0.5 < high && high < 1.0, "{change:?}");
        let a_little = before.map(|value| value * 1.03);
        assert_eq!(Change::of_runs(&before, &a_little).is_more_than_noise(), Some(false));
        assert_eq!(Change::of_runs(&before, &before[..4]).is_more_than_noise(), None);
        assert_eq!(Change::of_runs(&[5.0], &[7.0]).ratio, 1.4);
    }
}
