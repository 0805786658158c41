//! Definitions in words, for people: what JSON writes with braces and quotes.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::definitions::Secret;

/// A definition, or a part of one, in words: `delay (read 1ms), rate limit (iops 100)`. Secrets are
/// hidden.
pub fn readable(part: &impl Serialize) -> String {
    match serde_json::to_value(part) {
        Ok(value) => Readable(&value).to_string(),
        Err(error) => error.to_string(),
    }
}

/// A JSON value in words. Members of an object are written as name and value; those of an inner
/// object are in parentheses. Fields without a value are left out.
pub(crate) struct Readable<'a>(pub(crate) &'a Value);

impl fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("none"),
            Value::String(text) => f.write_str(text),
            Value::Array(values) if values.is_empty() => f.write_str("none"),
            Value::Array(values) => write_list(f, values.iter(), write_inner),
            Value::Object(fields) if fields.is_empty() => f.write_str("none"),
            Value::Object(fields) => {
                let given = fields.iter().filter(|(_, value)| !value.is_null());
                write_list(f, given, |f, (name, value)| {
                    write!(f, "{} ", name.replace('_', " "))?;
                    if is_secret(name) {
                        f.write_str(Secret::HIDDEN)
                    } else {
                        write_inner(f, value)
                    }
                })
            }
            other => other.fmt(f),
        }
    }
}

/// Whether a field of a definition holds a secret: `secret`, `ctrl_secret`, `psk`, `other_psk` and
/// so on.
fn is_secret(field: &str) -> bool {
    field.ends_with("secret") || field.ends_with("psk")
}

/// Values with several members are in parentheses.
fn write_inner(f: &mut fmt::Formatter<'_>, value: &Value) -> fmt::Result {
    let is_plain = match value {
        Value::Array(values) => values.len() < 2,
        Value::Object(fields) => fields.is_empty(),
        _ => true,
    };
    if is_plain {
        write!(f, "{}", Readable(value))
    } else {
        write!(f, "({})", Readable(value))
    }
}

fn write_list<T>(
    f: &mut fmt::Formatter<'_>,
    members: impl Iterator<Item = T>,
    write: impl Fn(&mut fmt::Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (at, member) in members.enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        write(f, member)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_are_read_without_braces_and_quotes() {
        for (value, words) in [
            (json!({"delay": {"read": "1ms"}}), "delay (read 1ms)"),
            (
                json!({"delay": {"read": "1ms"}, "rate_limit": {"iops": 100, "bandwidth": "1 MiB"}}),
                "delay (read 1ms), rate limit (bandwidth 1 MiB, iops 100)",
            ),
            (
                json!({"fault": {"rules": [{"on": "any"}, {"on": "read"}]}}),
                "fault (rules ((on any), (on read)))",
            ),
            (json!({"1": "a", "2": "b"}), "1 a, 2 b"),
            (
                json!({"user": "h", "secret": "open sesame", "mutual": null}),
                "secret (hidden), user h",
            ),
            (json!(["192.0.2.0/24"]), "192.0.2.0/24"),
            (json!([]), "none"),
            (json!({}), "none"),
        ] {
            assert_eq!(readable(&value), words);
        }
    }
}
