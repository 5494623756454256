//! A structured answer that is too long for a model, and has a place to say that it was cut.

use serde_json::Value;

use super::{cut, is_longer};

/// Characters of what is said in the place of what is left out, at most, and of a key with what
/// parts it from its value.
const AROUND: usize = 100;

/// The field that says whether something is missing.
const FLAG: &str = "truncated";

/// Cuts the texts of an object that has a field `truncated`, and sets that, so that all of it has
/// about `threshold` characters and still fits its schema: a client that was promised a structured
/// answer gets one. The fewest characters that a text still begins with: the text beside it, which
/// is kept whole, is to be read from there on. None where it has no such field, or is long by
/// something else.
pub(super) fn shorten(value: &mut Value, threshold: usize) -> Option<usize> {
    let fields =
        value.as_object_mut().filter(|fields| fields.get(FLAG).is_some_and(Value::is_boolean))?;
    let texts = fields.values().filter(|field| field.is_string()).count();
    let share = (threshold / texts.max(1)).checked_sub(AROUND)?;
    let mut shorter = fields.clone();
    let mut shown = None;
    for field in shorter.values_mut() {
        if let Value::String(text) = field
            && let Some(ends) = cut::ends(text, share)
        {
            shown = Some(shown.map_or(ends.offset, |least: usize| least.min(ends.offset)));
            *text = format!(
                "{}\n[{} of {} characters are left out here.]\n{}",
                ends.head, ends.left_out, ends.total, ends.tail
            );
        }
    }
    shorter.insert(FLAG.to_owned(), Value::Bool(true));
    let shorter = Value::Object(shorter);
    if is_longer(&shorter, threshold) {
        return None;
    }
    *value = shorter;
    Some(shown.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_that_can_say_so_is_cut() {
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
    fn no_other_answer_is() {
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
