//! External dependencies: each has a reason in ARCHITECTURE.md, and a permissive licence.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::architecture::Architecture;

/// The licences that may be used, by SPDX identifier.
const PERMITTED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The exceptions that may follow `WITH`: each grants more than its licence.
const EXCEPTIONS: &[&str] = &["LLVM-exception"];

/// Checks reasons and licences.
pub fn check(root: &Path, architecture: &Architecture) -> Vec<String> {
    match metadata(root) {
        Ok(metadata) => {
            let mut findings = check_reasons(&external(&metadata), &architecture.dependencies);
            findings.extend(check_licences(&metadata));
            findings
        }
        Err(error) => vec![format!("cargo metadata: {error}")],
    }
}

/// Compares the workspace's external dependencies with those that have a reason.
fn check_reasons(used: &BTreeSet<String>, reasoned: &BTreeSet<String>) -> Vec<String> {
    let missing = used
        .difference(reasoned)
        .map(|name| format!("{name}: ARCHITECTURE.md states no reason for this dependency"));
    let stale = reasoned.difference(used).map(|name| {
        format!("{name}: ARCHITECTURE.md has a reason, but the workspace does not depend on it")
    });
    missing.chain(stale).collect()
}

/// The external crates that the workspace's own packages depend on, tests and build scripts
/// included.
fn external(metadata: &Value) -> BTreeSet<String> {
    packages(metadata)
        .iter()
        .filter(|package| package["source"].is_null())
        .filter_map(|package| package["dependencies"].as_array())
        .flatten()
        .filter(|dependency| !dependency["source"].is_null())
        .map(|dependency| text(dependency, "name").to_owned())
        .collect()
}

/// The packages of the workspace as built on this platform, with their licences.
fn metadata(root: &Path) -> Result<Value, String> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", &platform])
        .current_dir(root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

/// Finds packages whose licence is missing, unknown or not permitted.
fn check_licences(metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    if packages(metadata).is_empty() {
        findings.push("cargo metadata lists no package".to_owned());
    }
    for package in packages(metadata) {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        match package["license"].as_str() {
            None => findings.push(format!("{name}: states no licence expression")),
            Some(expression) => match is_permitted(expression) {
                Some(true) => {}
                Some(false) => {
                    findings.push(format!("{name}: licence {expression} is not permitted"));
                }
                None => findings.push(format!("{name}: {expression} is not a licence expression")),
            },
        }
    }
    findings
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or("?")
}

/// Whether an SPDX licence expression can be met by permitted licences alone; `None` if it is
/// malformed. The old form `A/B` means `A OR B`.
fn is_permitted(expression: &str) -> Option<bool> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut tokens = spaced.split_whitespace().peekable();
    let permitted = any_of(&mut tokens, 0)?;
    tokens.next().is_none().then_some(permitted)
}

type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// The deepest nesting of parentheses in a licence expression.
const DEPTH_MAX: usize = 8;

/// `all_of (OR all_of)*`
fn any_of(tokens: &mut Tokens<'_>, depth: usize) -> Option<bool> {
    let mut permitted = all_of(tokens, depth)?;
    while tokens.next_if_eq(&"OR").is_some() {
        permitted |= all_of(tokens, depth)?;
    }
    Some(permitted)
}

/// `one (AND one)*`
fn all_of(tokens: &mut Tokens<'_>, depth: usize) -> Option<bool> {
    let mut permitted = one(tokens, depth)?;
    while tokens.next_if_eq(&"AND").is_some() {
        permitted &= one(tokens, depth)?;
    }
    Some(permitted)
}

/// `( any_of )` or `licence (WITH exception)?`
fn one(tokens: &mut Tokens<'_>, depth: usize) -> Option<bool> {
    match tokens.next()? {
        "(" if depth < DEPTH_MAX => {
            let permitted = any_of(tokens, depth + 1)?;
            tokens.next_if_eq(&")").map(|_| permitted)
        }
        "(" | ")" | "OR" | "AND" | "WITH" => None,
        licence => {
            let mut permitted = PERMITTED.contains(&licence);
            if tokens.next_if_eq(&"WITH").is_some() {
                permitted &= EXCEPTIONS.contains(&tokens.next()?);
            }
            Some(permitted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_without_a_reason_and_a_reason_without_a_dependency_are_found() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "ours", "source": null, "dependencies": [
                { "name": "block", "source": null },
                { "name": "rand", "source": "registry" },
                { "name": "serde", "source": "registry" },
            ]},
            { "name": "rand", "source": "registry", "dependencies": [
                { "name": "libc", "source": "registry" },
            ]},
        ]});
        let reasoned = BTreeSet::from(["serde".to_owned(), "uuid".to_owned()]);
        assert_eq!(
            check_reasons(&external(&metadata), &reasoned),
            [
                "rand: ARCHITECTURE.md states no reason for this dependency",
                "uuid: ARCHITECTURE.md has a reason, but the workspace does not depend on it"
            ]
        );
    }

    #[test]
    fn expressions_are_evaluated_as_spdx_defines_them() {
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("MIT/Apache-2.0", Some(true)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", Some(true)),
            ("GPL-3.0-or-later", Some(false)),
            ("MIT OR GPL-2.0-only", Some(true)),
            ("MIT AND MPL-2.0", Some(false)),
            ("MIT OR AGPL-3.0-only AND MPL-2.0", Some(true)),
            ("(MIT OR AGPL-3.0-only) AND MPL-2.0", Some(false)),
            ("MIT WITH Some-exception", Some(false)),
            ("LicenseRef-ours", Some(false)),
            ("", None),
            ("MIT Apache-2.0", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT WITH", None),
        ] {
            assert_eq!(is_permitted(expression), expected, "{expression}");
        }
        assert_eq!(is_permitted(&"(".repeat(DEPTH_MAX * 2)), None);
    }

    #[test]
    fn packages_without_a_permitted_licence_are_found() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "a", "version": "1.0.0", "license": "MIT" },
            { "name": "b", "version": "1.0.0", "license": "AGPL-3.0-only" },
            { "name": "c", "version": "1.0.0", "license": null },
            { "name": "d", "version": "1.0.0", "license": "MIT or so" },
        ]});
        assert_eq!(
            check_licences(&metadata),
            [
                "b 1.0.0: licence AGPL-3.0-only is not permitted",
                "c 1.0.0: states no licence expression",
                "d 1.0.0: MIT or so is not a licence expression",
            ]
        );
        let empty = check_licences(&Value::Null);
        assert_eq!(empty, ["cargo metadata lists no package"]);
    }
}
