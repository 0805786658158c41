//! Tests and source files that documents name: each has to exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::sources;

/// The documents that name the tests of what they promise.
const DOCUMENTS: [&str; 2] = ["docs/nvme.md", "docs/tests.md"];
/// A word between back quotes with at least this many parts joined by `_` is a test's name; shorter
/// ones are fields and files.
const WORDS_MIN: usize = 3;

/// Which names in the documents no test has.
pub fn check(root: &Path) -> Vec<String> {
    let tests = sources::files(root)
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .flat_map(|text| tests_in(&text))
        .collect();
    let mut findings = Vec::new();
    for document in DOCUMENTS {
        match fs::read_to_string(root.join(document)) {
            Ok(text) => {
                findings.extend(check_document(document, &text, &tests));
                findings.extend(check_files(document, &text, root));
            }
            Err(error) => findings.push(format!("{document}: {error}")),
        }
    }
    findings
}

fn check_document(name: &str, text: &str, tests: &BTreeSet<String>) -> Vec<String> {
    names_in(text)
        .filter(|said| !tests.contains(*said))
        .map(|said| format!("{name}: test {said} does not exist"))
        .collect()
}

/// Finds Rust files that the document names by a path and that do not exist.
fn check_files(name: &str, text: &str, root: &Path) -> Vec<String> {
    let is_path = |word: &&str| {
        let is_rust = Path::new(word).extension().is_some_and(|e| e == "rs");
        is_rust && word.contains('/') && !word.contains('*')
    };
    let exists = |path: &str| root.join(path).exists() || root.join("crates").join(path).exists();
    quoted(text)
        .filter(is_path)
        .filter(|path| !exists(path))
        .map(|path| format!("{name}: file {path} does not exist"))
        .collect()
}

/// Tests in a source file: functions in Rust, `test_…` in shell.
fn tests_in(text: &str) -> Vec<String> {
    let name_of = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("async ").unwrap_or(line);
        let rust = line
            .strip_prefix("fn ")
            .and_then(|rest| rest.split_once('('));
        let shell = line
            .split_once("()")
            .filter(|(name, _)| name.starts_with("test_"));
        rust.or(shell).map(|(name, _)| name.to_owned())
    };
    text.lines().filter_map(name_of).collect()
}

/// What looks like a test's name.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    quoted(text).filter(|word| {
        word.split('_').count() >= WORDS_MIN
            && word
                .chars()
                .all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    })
}

/// What stands between back quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_test_has_is_found() {
        let mut tests = tests_in("    fn what_is_there_passes() {\n");
        tests.extend(tests_in("test_in_a_guest() {\n  true\n}\n"));
        let tests = tests.into_iter().collect();
        let text = "`what_is_there_passes`, `test_in_a_guest` and `--flag`\n`what_is_gone_is_told`";
        let found = check_document("a.md", text, &tests);
        assert_eq!(found, ["a.md: test what_is_gone_is_told does not exist"]);
    }

    #[test]
    fn a_file_that_does_not_exist_is_found() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = "`block/src/lib.rs`, `xtask/src/main.rs`, `block/src/*.rs`, `harm.rs`\n`block/src/gone.rs`";
        let found = check_files("a.md", text, &root);
        assert_eq!(found, ["a.md: file block/src/gone.rs does not exist"]);
    }
}
