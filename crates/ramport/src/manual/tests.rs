use std::collections::BTreeMap;
use std::process::Command as Process;

use super::*;

fn all() -> BTreeMap<String, String> {
    pages().into_iter().collect()
}

#[test]
fn every_verb_has_a_page_with_the_sections_of_manual_pages() {
    let pages = all();
    for name in [
        "ramport.1",
        "ramport-serve.1",
        "ramport-volume-filter-set.1",
        "ramport.toml.5",
    ] {
        assert!(pages.contains_key(name), "{name}");
    }
    for (name, page) in pages.iter().filter(|(name, _)| name.ends_with(".1")) {
        for section in [
            "NAME",
            "SYNOPSIS",
            "OPTIONS",
            "EXAMPLES",
            "\"EXIT STATUS\"",
            "ENVIRONMENT",
            "\"SEE ALSO\"",
        ] {
            assert!(
                page.contains(&format!(".SH {section}\n")),
                "{name} has no {section}"
            );
        }
    }
    // Commands that reach neither a daemon nor the system's files.
    let without_files = ["ramport-completions.1", "ramport-man.1"];
    for (name, page) in &pages {
        let has_files = page.contains(".SH FILES\n");
        assert_ne!(has_files, without_files.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn pages_refer_to_pages_that_exist() {
    let pages = all();
    for (name, page) in &pages {
        let (_, see_also) = page.split_once(".SH \"SEE ALSO\"\n").expect("a section");
        for reference in see_also.trim().replace("\\-", "-").split(", ") {
            let file = reference.replace('(', ".").replace(')', "");
            assert!(pages.contains_key(&file), "{name} refers to {reference}");
        }
    }
}

/// Runs a checker of manual pages on all pages; returns its output, or nothing if it is not
/// installed.
fn checked(folder: &Path, program: &str, options: &[&str]) -> Option<String> {
    let mut said = String::new();
    for name in all().keys() {
        let output = Process::new(program)
            .args(options)
            .arg(folder.join(name))
            .env("LC_ALL", "C.UTF-8")
            .env("MANROFFSEQ", "")
            .env("MANWIDTH", "80")
            .output();
        let Ok(output) = output else {
            assert!(
                std::env::var_os("CI").is_none_or(|ci| ci != "true"),
                "{program} is missing; install the packages listed in tests/docs/packages"
            );
            eprintln!("SKIPPED: {program} is missing");
            return None;
        };
        said.push_str(&String::from_utf8_lossy(&output.stdout));
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    Some(said)
}

/// Accepted findings of checkers: pages have no date, and crate `clap_mangen` puts a line break
/// beside the space around lists of values.
const KNOWN: [&str; 3] = ["missing date", "br before sp", "br after sp"];

#[test]
fn checkers_of_manual_pages_find_nothing() {
    let folder = std::env::temp_dir().join(format!("ramport-lint-{}", std::process::id()));
    write(&folder).expect("written");
    let warnings = checked(
        &folder,
        "groff",
        &["-K", "utf8", "-man", "-Tutf8", "-wall", "-z"],
    );
    let lint = checked(&folder, "mandoc", &["-T", "lint", "-W", "warning"]);
    std::fs::remove_dir_all(&folder).expect("removed");
    assert_eq!(warnings.unwrap_or_default(), "");
    let lint = lint.unwrap_or_default();
    let lint: Vec<&str> = lint
        .lines()
        .filter(|line| !KNOWN.iter().any(|known| line.contains(known)))
        .collect();
    assert_eq!(lint, Vec::<&str>::new());
}
