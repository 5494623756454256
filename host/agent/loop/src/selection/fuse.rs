//! Joins several rankings of tools into one order, and compares vectors.

/// The constant of reciprocal rank fusion. Larger numbers make the first ranks more equal.
const RANK_CONSTANT: f64 = 60.0;

/// Returns the cosine of two vectors. Returns `None` if their lengths differ, or if a vector is
/// zero or has invalid numbers.
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

/// Ranks the tools by `scores`, and adds to `fused` the value of each rank in reciprocal rank
/// fusion. Tools without a score get no value.
pub(crate) fn add_ranks(fused: &mut [f64], scores: &[Option<f64>]) {
    let mut ranked: Vec<(usize, f64)> = Vec::new();
    for (tool, score) in scores.iter().enumerate() {
        if let Some(score) = score {
            ranked.push((tool, *score));
        }
    }
    // Tools with equal scores stay in their order.
    ranked.sort_by(|(_, one_score), (_, other_score)| other_score.total_cmp(one_score));
    for (rank, (tool, _)) in ranked.into_iter().enumerate() {
        fused[tool] += 1.0 / (RANK_CONSTANT + rank as f64);
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
