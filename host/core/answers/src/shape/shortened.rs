//! Shortens a structured answer that is too long for a model, if it has a field `truncated`.

use serde_json::Value;
use toolhold_contract::Outcome;

use super::clean::is_longer;
use super::cut;

/// Maximum length of the notice in a shortened text.
const MAX_NOTICE: usize = 100;

const FLAG: &str = "truncated";

pub(super) fn is_truncated(outcome: &Outcome) -> bool {
    let structured = match outcome {
        Ok(output) => &output.structured,
        Err(failure) => &failure.structured,
    };
    structured.as_ref().is_some_and(|value| value[FLAG] == Value::Bool(true))
}

/// Cuts the strings of an object with the field `truncated`, and sets the field.
///
/// The object then has about `threshold` characters and still matches its schema. Returns the
/// length of the shortest remaining beginning of a string, as the offset for `read_overflow`.
/// Returns `None` if the field is missing, or if values other than strings are long.
pub(super) fn shorten(value: &mut Value, threshold: usize) -> Option<usize> {
    let fields = value.as_object()?;
    if !fields.get(FLAG)?.is_boolean() {
        return None;
    }
    let text_count = fields.values().filter(|field| field.is_string()).count();
    // Each string also needs room for the notice about its omitted middle.
    let share = (threshold / text_count.max(1)).checked_sub(MAX_NOTICE)?;

    let mut shorter_fields = fields.clone();
    let mut shortest_head: Option<usize> = None;
    for field in shorter_fields.values_mut() {
        let Value::String(text) = field else { continue };
        let Some(ends) = cut::ends(text, share) else { continue };
        shortest_head = match shortest_head {
            Some(length) => Some(length.min(ends.offset)),
            None => Some(ends.offset),
        };
        *text = format!(
            "{}\n[{} of {} characters are left out here.]\n{}",
            ends.head, ends.left_out, ends.total, ends.tail
        );
    }
    shorter_fields.insert(FLAG.to_owned(), Value::Bool(true));

    let shorter = Value::Object(shorter_fields);
    if is_longer(&shorter, threshold) {
        return None;
    }
    *value = shorter;
    Some(shortest_head.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn structured_answer_with_a_truncated_field_is_cut() {
        let long: String = (0..10_000).map(|number| format!("line {number}\n")).collect();
        let mut value =
            json!({ "stdout": long, "stderr": "oh\n", "exit_code": 0, "truncated": false });
        let shown = shorten(&mut value, 2000).expect("it can say so");
        assert!(!is_longer(&value, 2000));
        let stdout = value["stdout"].as_str().expect("it is still a text");
        assert_eq!(Some(shown), stdout.find("\n["), "all that comes before is there");
        assert!(
            stdout.starts_with("line 0\n")
                && stdout.contains(" characters are left out here.]\n")
                && stdout.ends_with("line 9999\n")
        );
        assert_eq!(
            (&value["stderr"], &value["exit_code"], &value["truncated"]),
            (&json!("oh\n"), &json!(0), &json!(true))
        );
    }

    #[test]
    fn other_structured_answers_are_not_cut() {
        let long = "x".repeat(5000);
        for whole in [
            json!({ "stdout": long }),
            json!({ "truncated": "no", "a": long }),
            json!([long]),
            json!({ "truncated": false, "a": [long] }),
        ] {
            let mut value = whole.clone();
            assert_eq!(shorten(&mut value, 2000), None, "{value}");
            assert_eq!(value, whole);
        }
        assert_eq!(
            shorten(&mut json!({ "truncated": false, "a": long }), 50),
            None,
            "there is no room"
        );
    }
}
