//! Lengths of files and functions, and leftovers in them.

use std::fs;
use std::path::{Path, PathBuf};

/// The longest file that is not only tests, in lines.
const FILE_LINES_MAX: usize = 900;
/// The longest file of tests, in lines.
const TEST_FILE_LINES_MAX: usize = 1500;
/// The longest function, in lines from its `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 80;

/// What must not stand in a source file, spelled so that this file itself is clean.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "open ends belong in an issue"),
    (concat!("FIX", "ME"), "open ends belong in an issue"),
    (concat!("un", "implemented!("), "a stub"),
    (concat!("to", "do!("), "a stub"),
    (concat!("dbg", "!("), "left from debugging"),
    (concat!("allow(dead", "_code)"), "dead code is removed"),
];

/// What in the sources breaks the rules.
pub fn check(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files(root) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let shown = file
            .strip_prefix(root)
            .unwrap_or(&file)
            .display()
            .to_string();
        check_file(&shown, &text, &mut findings);
    }
    findings
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

fn check_file(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines = text.lines().count();
    let is_tests = name.contains("/tests/") || name.ends_with("tests.rs");
    let max = if is_tests {
        TEST_FILE_LINES_MAX
    } else {
        FILE_LINES_MAX
    };
    if lines > max {
        findings.push(format!("{name}: {lines} lines, {max} are the most"));
    }
    for (number, line) in text.lines().enumerate() {
        for (word, why) in LEFTOVERS {
            if line.contains(word) {
                findings.push(format!("{name}:{}: {word}: {why}", number + 1));
            }
        }
    }
    if Path::new(name)
        .extension()
        .is_some_and(|ending| ending == "rs")
    {
        check_functions(name, text, findings);
    }
}

/// Finds functions by their indentation, which rustfmt guarantees: the closing brace of a function stands in
/// the column of its first line.
fn check_functions(name: &str, text: &str, findings: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().collect();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if !is_function_head(line.trim_start()) {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(indent));
        let Some(len) = lines[start..].iter().position(|l| {
            *l == closing || l.ends_with(';') && { l.len() - l.trim_start().len() == indent }
        }) else {
            continue;
        };
        if len + 1 > FUNCTION_LINES_MAX {
            findings.push(format!(
                "{name}:{}: a function of {} lines, {FUNCTION_LINES_MAX} are the most",
                start + 1,
                len + 1
            ));
        }
    }
}

fn is_function_head(line: &str) -> bool {
    let mut words = line.split_whitespace();
    loop {
        match words.next() {
            Some("fn") => return true,
            Some(word)
                if matches!(
                    word,
                    "pub" | "const" | "unsafe" | "async" | "extern" | "\"C\""
                ) || word.starts_with("pub(") => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check_file(name, text, &mut findings);
        findings
    }

    #[test]
    fn a_leftover_is_found_with_its_line() {
        let text = format!("fn f() {{\n    {}();\n}}\n", concat!("to", "do!"));
        assert_eq!(findings_of("a.rs", &text).len(), 1);
        assert!(findings_of("a.rs", &text)[0].starts_with("a.rs:2:"));
    }

    #[test]
    fn a_long_function_is_found_and_a_short_one_after_it_is_not() {
        let body = "    work();\n".repeat(FUNCTION_LINES_MAX);
        let text = format!("pub(crate) fn long() {{\n{body}}}\n\nfn short() {{\n    work();\n}}\n");
        let found = findings_of("a.rs", &text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a.rs:1:"));
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
        assert_eq!(findings_of("a.rs", &text).len(), 1);
        assert!(findings_of("a/tests/b.rs", &text).is_empty());
    }
}
