//! Whether two sets of figures differ by more than the machine does by itself.

use crate::measure::median_ratio;

/// The change of a figure as the ratio of new to old, and the interval that the machine's noise
/// allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub(crate) ratio: f64,
    /// Nothing if there are too few figures.
    pub(crate) noise: Option<(f64, f64)>,
}

impl Change {
    /// For figures in pairs, one program right after the other: slow phases of the machine affect
    /// both.
    ///
    /// The noise is the interval between two of the sorted ratios that contains the true median in
    /// 95 of 100 cases, for any kind of noise. It needs six pairs.
    pub(crate) fn of_pairs(pairs: &[(f64, f64)]) -> Change {
        let mut ratios: Vec<f64> =
            pairs.iter().map(|(before, after)| ratio(*before, *after)).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let noise = left_out(ratios.len())
            .map(|left_out| (ratios[left_out], ratios[ratios.len() - 1 - left_out]));
        Change { ratio: median_ratio(ratios), noise }
    }

    /// For runs of two programs at different times.
    ///
    /// Compares each with each. The noise is the interval between two of the sorted ratios that
    /// contains the true one in 95 of 100 cases, as in the test of Mann and Whitney. It needs four
    /// runs of each.
    pub(crate) fn of_runs(before: &[f64], after: &[f64]) -> Change {
        let mut ratios: Vec<f64> = before
            .iter()
            .flat_map(|before| after.iter().map(|after| ratio(*before, *after)))
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let noise = left_out_of_all(before.len(), after.len())
            .map(|left_out| (ratios[left_out], ratios[ratios.len() - 1 - left_out]));
        Change { ratio: median_ratio(ratios), noise }
    }

    /// Whether it is more than noise. Nothing if that isn't known.
    pub(crate) fn is_more_than_noise(&self) -> Option<bool> {
        self.noise.map(|(low, high)| low > 1.0 || high < 1.0)
    }
}

fn ratio(before: f64, after: f64) -> f64 {
    after / before.max(1e-9)
}

/// The number of sorted values that can be left out at either end so that the true median is
/// between the others in 95 of 100 cases: it is below all of `n` values in one of 2ⁿ cases.
fn left_out(count: usize) -> Option<usize> {
    let all = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    // The cases with at most this number of values on one side, a row of Pascal's triangle.
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

/// The same for the ratios of each value to each of the others: if both are alike, all orders are
/// equally likely.
fn left_out_of_all(one: usize, other: usize) -> Option<usize> {
    // The number of orders with this number of ratios below 1, by the values used so far.
    let mut orders = vec![vec![vec![0.0_f64; one * other + 1]; other + 1]; one + 1];
    for ones in 0..=one {
        for others in 0..=other {
            for below in 0..=one * other {
                // The largest value is one of either: one of the first is above all of the others.
                let of_one = if ones > 0 && below >= others {
                    orders[ones - 1][others][below - others]
                } else {
                    0.0
                };
                let of_other = if others > 0 { orders[ones][others - 1][below] } else { 0.0 };
                orders[ones][others][below] =
                    if ones + others == 0 { f64::from(below == 0) } else { of_one + of_other };
            }
        }
    }
    let orders = &orders[one][other];
    let all: f64 = orders.iter().sum();
    let mut outside = 0.0;
    (0..one * other / 2)
        .take_while(|below| {
            outside += 2.0 * orders[*below] / all;
            outside <= 0.05
        })
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_pairs_tell_nothing_and_more_bound_the_median() {
        // Two-sided, of a fair coin: 1/32 for six of six, 8/128 for at least six of seven, 20/512
        // for at least eight of nine.
        let expected = [
            (5, None),
            (6, Some(0)),
            (7, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (12, Some(2)),
            (15, Some(3)),
            (20, Some(5)),
        ];
        for (count, left) in expected {
            assert_eq!(left_out(count), left, "{count}");
        }
        assert_eq!((left_out(0), left_out(1)), (None, None));
    }

    #[test]
    fn pairs_are_compared_pair_by_pair() {
        // The machine gets slower and slower, and the second program takes a tenth more each time.
        let pairs: Vec<(f64, f64)> =
            (1..=7).map(|mood| (f64::from(mood) * 10.0, f64::from(mood) * 11.0)).collect();
        let change = Change::of_pairs(&pairs);
        assert!(
            (change.ratio - 1.1).abs() < 1e-9 && change.is_more_than_noise() == Some(true),
            "{change:?}"
        );
        // As separate runs they show nothing.
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
    fn few_runs_tell_nothing_and_more_bound_the_ratio() {
        // The critical values of the tables of Mann and Whitney, two-sided at 5 %.
        let expected = [
            (3, 3, None),
            (3, 5, Some(0)),
            (4, 4, Some(0)),
            (5, 5, Some(2)),
            (7, 7, Some(8)),
            (8, 6, Some(8)),
            (10, 10, Some(23)),
        ];
        for (one, other, left) in expected {
            assert_eq!(left_out_of_all(one, other), left, "{one}, {other}");
            assert_eq!(left_out_of_all(other, one), left, "{other}, {one}");
        }
        assert_eq!((left_out_of_all(0, 5), left_out_of_all(1, 1)), (None, None));
    }

    #[test]
    fn runs_differ_when_they_do_not_mix() {
        let before = [10.0, 10.4, 10.1, 9.9, 10.2, 10.3, 9.8];
        let change = Change::of_runs(&before, &before.map(|value| value * 1.1));
        assert!(
            (change.ratio - 1.1).abs() < 0.01 && change.is_more_than_noise() == Some(true),
            "{change:?}"
        );
        let (low, high) = change.noise.expect("there are enough");
        assert!(
            1.05 < low && low < change.ratio && change.ratio < high && high < 1.15,
            "{change:?}"
        );
        assert_eq!(
            Change::of_runs(&before, &before.map(|value| value * 1.01)).is_more_than_noise(),
            Some(false)
        );
        assert_eq!(Change::of_runs(&before, &before).is_more_than_noise(), Some(false));
        assert_eq!(Change::of_runs(&before[..3], &before[..3]).is_more_than_noise(), None);
        assert_eq!(Change::of_runs(&[5.0], &[7.0]), Change { ratio: 1.4, noise: None });
    }
}
