//! Joins several rankings of tools into one order, and compares vectors.

/// The constant of rank fusion. A larger number makes the difference between the first places
/// smaller.
const RANKS: f64 = 60.0;

/// Returns the cosine of two vectors, or `None` if the vectors can't be compared.
pub fn cosine(one: &[f32], other: &[f32]) -> Option<f64> {
    if one.len() != other.len() || one.is_empty() {
        return None;
    }
    let lengths = dot(one, one).sqrt() * dot(other, other).sqrt();
    let cosine = dot(one, other) / lengths;
    if cosine.is_finite() { Some(cosine.clamp(-1.0, 1.0)) } else { None }
}

fn dot(one: &[f32], other: &[f32]) -> f64 {
    one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Ranks the tools by `scores`, and adds the value of each rank to `fused`. A tool without a score
/// has no rank.
pub(crate) fn add_ranks(fused: &mut [f64], scores: &[Option<f64>]) {
    let mut order: Vec<(usize, f64)> = Vec::new();
    for (at, score) in scores.iter().enumerate() {
        order.extend(score.map(|score| (at, score)));
    }
    order.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    for (rank, (at, _)) in order.into_iter().enumerate() {
        fused[at] += 1.0 / (RANKS + rank as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_compared_by_their_direction() {
        assert_eq!(cosine(&[1.0, 0.0], &[2.0, 0.0]), Some(1.0));
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), Some(0.0));
        assert_eq!(cosine(&[1.0], &[-1.0]), Some(-1.0));
        for (one, other) in [(&[][..], &[][..]), (&[1.0][..], &[1.0, 1.0][..]), (&[0.0], &[1.0])] {
            assert_eq!(cosine(one, other), None);
        }
        assert_eq!(cosine(&[f32::NAN], &[1.0]), None);
    }

    #[test]
    fn what_is_good_in_both_orders_is_first() {
        let mut fused = [0.0; 3];
        add_ranks(&mut fused, &[Some(3.0), Some(2.0), None]);
        add_ranks(&mut fused, &[None, Some(0.9), Some(0.8)]);
        assert!(fused[1] > fused[0] && fused[1] > fused[2], "{fused:?}");
    }
}
