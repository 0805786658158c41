//! Lines as statements: words, quoted as shells quote them, with `;` between statements and `#`
//! before remarks.

/// Why a line has no statements.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a quote or a backslash is not closed in {0:?}")]
pub(super) struct StatementFault(String);

/// The statements of a line, each as words.
pub(super) fn statements(line: &str) -> Result<Vec<Vec<String>>, StatementFault> {
    let parts = parts(line).into_iter();
    parts
        .map(|part| shlex::split(part).ok_or_else(|| StatementFault(part.trim().to_owned())))
        .collect()
}

/// The words of the last statement of a line that is being typed, and where its last word, which
/// may be empty, begins in the line. None if that word is quoted.
pub(super) fn typed(line: &str) -> Option<(Vec<String>, usize)> {
    let part = parts(line).pop()?;
    let word = part.rsplit(char::is_whitespace).next()?;
    let before = &part[..part.len() - word.len()];
    let mut words = shlex::split(before)?;
    words.push(word.to_owned());
    (!word.contains(['\'', '"', '\\'])).then_some((words, line.len() - word.len()))
}

/// The parts of a line between those `;` that no quotes enclose, without the remark at its end.
fn parts(line: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut quote, mut is_escaped, mut is_in_word) = (None, false, false);
    for (at, character) in line.char_indices() {
        match (quote, character) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, ';') => {
                parts.push(&line[begin..at]);
                begin = at + 1;
            }
            (None, '#') if !is_in_word => {
                parts.push(&line[begin..at]);
                return parts;
            }
            _ => {}
        }
        is_in_word = quote.is_some() || !(character.is_whitespace() || character == ';');
    }
    parts.push(&line[begin..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_at_semicolons_outside_quotes() {
        let split = |line: &str| -> Vec<String> {
            let statements = statements(line).expect("statements");
            statements.iter().map(|words| words.join("|")).collect()
        };
        assert_eq!(split("cd /volumes; ls"), ["cd|/volumes", "ls"]);
        assert_eq!(split("a 'b;c' \"d; e\" f\\;g"), ["a|b;c|d; e|f;g"]);
        assert_eq!(split("a #b; c"), ["a"]);
        assert_eq!(split("a b#c"), ["a|b#c"]);
        assert_eq!(split(" ; "), ["", ""]);
        assert!(statements("a 'b").is_err());
        assert!(statements("a \\").is_err());
    }

    #[test]
    fn the_word_that_is_typed_is_the_last_one() {
        let typed = |line| typed(line).map(|(words, at)| (words.join("|"), at));
        assert_eq!(typed("cd /vol"), Some(("cd|/vol".to_owned(), 3)));
        assert_eq!(typed("ls; show "), Some(("show|".to_owned(), 9)));
        assert_eq!(typed(""), Some((String::new(), 0)));
        assert_eq!(typed("show 'a"), None);
    }
}
