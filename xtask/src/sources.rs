//! Lengths of files and functions, and leftovers in sources (STYLE.md, "Shape").

use std::fs;
use std::path::{Path, PathBuf};

use crate::exceptions::Excess;

/// The longest file, in lines.
const FILE_LINES_MAX: usize = 800;
/// The longest function, in lines from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 60;

/// The longest line of a comment, in characters: `max_width` of rustfmt.toml, which rustfmt applies
/// to code alone. Diagrams, tables, examples and commands may be wider.
const COMMENT_CHARS_MAX: usize = 100;

/// Names that no type may have: metaphors, in whose place a name states the role (STYLE.md,
/// "Names").
const METAPHORS: &[&str] = &[
    "Books", "Carrier", "Guest", "Keeper", "Letter", "Outlook", "Poster", "Proof", "Seat", "Shown",
];

/// What a source file must not contain, spelled so that this file itself is clean.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "open ends belong in an issue"),
    (concat!("FIX", "ME"), "open ends belong in an issue"),
    (concat!("un", "implemented!("), "a stub"),
    (concat!("to", "do!("), "a stub"),
    (concat!("dbg", "!("), "left from debugging"),
    (concat!("allow(dead", "_code)"), "dead code is removed"),
];

/// Returns the leftovers as findings, and the files and functions that exceed their limits.
pub fn survey(root: &Path) -> (Vec<String>, Vec<Excess>) {
    let mut findings = Vec::new();
    let mut excesses = Vec::new();
    for file in files(root) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let shown = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        find_leftovers(&shown, &text, &mut findings);
        find_metaphors(&shown, &text, &mut findings);
        find_wide_comments(&shown, &text, &mut findings);
        measure_file(&shown, &text, &mut excesses);
    }
    (findings, excesses)
}

/// The source files, in order.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask", "tests", "scripts", "fuzz"] {
        collect(&root.join(folder), &mut files);
    }
    files.sort();
    files
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            // Cargo marks its folders of outputs; a folder of sources may be called target, too.
            let is_output = path.join("CACHEDIR.TAG").exists();
            if !is_output && !matches!(name.as_str(), "corpus" | "artifacts") {
                collect(&path, files);
            }
        } else if matches!(path.extension().and_then(|e| e.to_str()), Some("rs" | "sh")) {
            files.push(path);
        }
    }
}

fn find_leftovers(name: &str, text: &str, findings: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        for (word, why) in LEFTOVERS {
            if line.contains(word) {
                findings.push(format!("{name}:{}: {word}: {why}", number + 1));
            }
        }
    }
}

fn find_metaphors(name: &str, text: &str, findings: &mut Vec<String>) {
    for (number, line) in text.lines().enumerate() {
        if let Some(metaphor) = type_name(line).filter(|name| METAPHORS.contains(name)) {
            findings.push(format!("{name}:{}: {metaphor}: name its role", number + 1));
        }
    }
}

/// The name of the type or trait that is defined in `line`.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    // `pub(in path)` is two words.
    while words
        .next_if(|word| word.starts_with("pub") || word.ends_with(')'))
        .is_some()
    {}
    match words.next()? {
        "struct" | "enum" | "trait" | "type" | "union" => {
            words.next()?.split(['<', '(', ';', ':']).next()
        }
        _ => None,
    }
}

fn find_wide_comments(name: &str, text: &str, findings: &mut Vec<String>) {
    let mut is_example = false;
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_example = false;
            continue;
        };
        let comment = comment.trim_start_matches(['/', '!']).trim();
        is_example ^= comment.starts_with("```");
        let is_drawing = comment.starts_with('|') || comment.contains(|c| matches!(c, '─'..='╿'));
        let is_command =
            comment.starts_with('`') && comment.trim_end_matches([',', '.']).ends_with('`');
        let width = line.chars().count();
        if width > COMMENT_CHARS_MAX && !(is_example || is_drawing || is_command) {
            findings.push(format!(
                "{name}:{}: a comment of {width} characters exceeds the limit of {COMMENT_CHARS_MAX}",
                number + 1
            ));
        }
    }
}

fn measure_file(name: &str, text: &str, excesses: &mut Vec<Excess>) {
    let size = text.lines().count();
    if size > FILE_LINES_MAX {
        excesses.push(Excess {
            place: name.to_owned(),
            size,
            finding: format!("{name}: {size} lines exceed the limit of {FILE_LINES_MAX}"),
        });
    }
    let is_rust = Path::new(name)
        .extension()
        .is_some_and(|ending| ending == "rs");
    if is_rust {
        measure_functions(name, text, excesses);
    }
}

/// Finds functions by their indentation, which rustfmt guarantees: the closing brace of a function
/// stands in the column of its first line. Of functions with one name in one file only the longest
/// counts.
fn measure_functions(name: &str, text: &str, excesses: &mut Vec<Excess>) {
    let lines: Vec<&str> = text.lines().collect();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(function) = function_name(line.trim_start()) else {
            continue;
        };
        let closing = format!("{}}}", " ".repeat(indent));
        let end = lines[start..].iter().position(|l| {
            *l == closing || l.ends_with(';') && { l.len() - l.trim_start().len() == indent }
        });
        let size = end.map_or(0, |end| end + 1);
        if size <= FUNCTION_LINES_MAX {
            continue;
        }
        let excess = Excess {
            place: format!("{name}:{function}"),
            size,
            finding: format!(
                "{name}:{}: the {size} lines of {function} exceed the limit of {FUNCTION_LINES_MAX}",
                start + 1
            ),
        };
        match excesses.iter_mut().find(|e| e.place == excess.place) {
            Some(other) if other.size < size => *other = excess,
            Some(_) => {}
            None => excesses.push(excess),
        }
    }
}

/// The name of the function that begins in `line`.
fn function_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    loop {
        match words.next()? {
            "fn" => return words.next()?.split(['(', '<']).next(),
            "pub" | "const" | "unsafe" | "async" | "extern" | "\"C\"" => {}
            word if word.starts_with("pub(") => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excesses_of(text: &str) -> Vec<Excess> {
        let mut excesses = Vec::new();
        measure_file("a.rs", text, &mut excesses);
        excesses
    }

    #[test]
    fn a_leftover_is_found_with_its_line() {
        let text = format!("fn f() {{\n    {}();\n}}\n", concat!("to", "do!"));
        let mut findings = Vec::new();
        find_leftovers("a.rs", &text, &mut findings);
        let [finding] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert!(finding.starts_with("a.rs:2:"), "{finding}");
    }

    #[test]
    fn a_metaphor_is_found_as_a_name_of_a_type_alone() {
        let mut findings = Vec::new();
        let text = "pub(crate) struct Seat<'a> {\n}\n\
                    use x::Guest;\nstruct Seats;\npub(in crate::x) enum Books {\n";
        find_metaphors("a.rs", text, &mut findings);
        let expected = [
            "a.rs:1: Seat: name its role",
            "a.rs:5: Books: name its role",
        ];
        assert_eq!(findings, expected);
    }

    #[test]
    fn a_wide_comment_is_found_unless_it_is_a_diagram_a_table_or_an_example() {
        let wide = "word ".repeat(COMMENT_CHARS_MAX / 5);
        let text = format!(
            "    // {wide}\n//! a ─► {wide}\n/// | {wide}|\n/// ```text\n/// {wide}\n/// ```\nlet a = \"{wide}\";\n"
        );
        let mut findings = Vec::new();
        find_wide_comments("a.rs", &text, &mut findings);
        let [finding] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert!(
            finding.starts_with("a.rs:1: a comment of 107 characters"),
            "{finding}"
        );
    }

    #[test]
    fn a_long_function_is_found_and_a_short_one_after_it_is_not() {
        let body = "    work();\n".repeat(FUNCTION_LINES_MAX);
        let text =
            format!("pub(crate) fn long<T>() {{\n{body}}}\n\nfn short() {{\n    work();\n}}\n");
        let found = excesses_of(&text);
        let [long] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(long.place, "a.rs:long");
        assert_eq!(long.size, FUNCTION_LINES_MAX + 2);
        assert!(long.finding.contains("a.rs:1:"), "{}", long.finding);
    }

    #[test]
    fn of_functions_with_one_name_the_longest_counts() {
        let function = |lines| format!("fn f() {{\n{}}}\n", "    work();\n".repeat(lines));
        let text = function(FUNCTION_LINES_MAX) + &function(FUNCTION_LINES_MAX + 5);
        let found = excesses_of(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].size, FUNCTION_LINES_MAX + 7);
    }

    #[test]
    fn sources_in_folders_called_target_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = files(&root);
        for expected in [
            "crates/server/src/lib.rs",
            "crates/nvme/src/controller/queue.rs",
        ] {
            assert!(files.contains(&root.join(expected)), "{expected}");
        }
    }

    #[test]
    fn a_long_file_is_found() {
        let text = "// line\n".repeat(FILE_LINES_MAX + 1);
        let found = excesses_of(&text);
        let [long] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(
            (long.place.as_str(), long.size),
            ("a.rs", FILE_LINES_MAX + 1)
        );
    }
}
