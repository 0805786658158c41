//! The imports between crates, and the crates that may contain unsafe code (ARCHITECTURE.md,
//! "Crates").

use std::fs;
use std::path::Path;

use crate::architecture::{Architecture, Rule, Unsafe};

/// What in the manifests and crate roots breaks the rules.
pub fn check(root: &Path, architecture: &Architecture) -> Vec<String> {
    let mut findings = Vec::new();
    let mut folders: Vec<_> = fs::read_dir(root.join("crates"))
        .expect("the workspace has crates/")
        .map(|entry| entry.expect("crates/ can be listed").path())
        .collect();
    folders.push(root.join("xtask"));
    folders.sort();
    for folder in &folders {
        let name = folder
            .file_name()
            .expect("a crate has a name")
            .to_string_lossy();
        match architecture.rule(&name) {
            None => findings.push(format!("{name}: ARCHITECTURE.md has no row for this crate")),
            Some(rule) => check_crate(folder, rule, architecture, &mut findings),
        }
    }
    for rule in &architecture.crates {
        if !folders.iter().any(|folder| folder.ends_with(&rule.name)) {
            findings.push(format!(
                "{}: ARCHITECTURE.md has a row for this crate, which does not exist",
                rule.name
            ));
        }
    }
    findings
}

fn check_crate(
    folder: &Path,
    rule: &Rule,
    architecture: &Architecture,
    findings: &mut Vec<String>,
) {
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    for name in dependencies(&manifest) {
        if architecture.rule(&name).is_some() && !rule.imports.contains(&name) {
            findings.push(format!("{} must not depend on {name}", rule.name));
        }
    }
    let crate_root = ["src/lib.rs", "src/main.rs"]
        .iter()
        .find_map(|file| fs::read_to_string(folder.join(file)).ok())
        .unwrap_or_default();
    let (wanted, module) = match &rule.unsafe_code {
        Unsafe::Forbidden => ("#![forbid(unsafe_code)]", None),
        Unsafe::ArguedIn(module) => ("#![deny(unsafe_code)]", Some(module)),
        Unsafe::Argued => return,
    };
    if !crate_root.contains(wanted) {
        findings.push(format!("{}: its root lacks {wanted}", rule.name));
    }
    if let Some(module) = module {
        check_unsafe_outside(&folder.join("src"), module, &rule.name, findings);
    }
}

/// Finds unsafe code outside of the module that may contain it, whatever attributes allow it.
fn check_unsafe_outside(folder: &Path, module: &str, name: &str, findings: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.file_stem().is_some_and(|stem| stem == module) {
            continue;
        }
        if path.is_dir() {
            check_unsafe_outside(&path, module, name, findings);
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let is_unsafe = |line: &str| {
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|form| line.contains(form))
        };
        if text.lines().any(is_unsafe) {
            let file = path.display();
            findings.push(format!(
                "{name}: {file} has unsafe code, which is for its module {module} only"
            ));
        }
    }
}

/// The names in a manifest's `[dependencies]` (tests may depend on anything).
fn dependencies(manifest: &str) -> Vec<String> {
    let table: toml::Table = manifest.parse().unwrap_or_default();
    match table.get("dependencies").and_then(toml::Value::as_table) {
        Some(dependencies) => dependencies.keys().cloned().collect(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, imports: &[&str], unsafe_code: Unsafe) -> Rule {
        Rule {
            name: name.to_owned(),
            imports: imports.iter().map(|&name| name.to_owned()).collect(),
            unsafe_code,
        }
    }

    /// A workspace of two crates.
    fn workspace() -> Architecture {
        Architecture {
            crates: ["block", "net"]
                .map(|name| rule(name, &[], Unsafe::Forbidden))
                .into(),
            ..Architecture::default()
        }
    }

    #[test]
    fn crates_and_rows_that_do_not_match_are_found() {
        let root = std::env::temp_dir().join(format!("tidy-crates-{}", std::process::id()));
        fs::create_dir_all(root.join("crates/volume")).expect("temp folder");
        let architecture = Architecture {
            crates: vec![
                rule("xtask", &[], Unsafe::Argued),
                rule("gone", &[], Unsafe::Argued),
            ],
            ..Architecture::default()
        };
        let findings = check(&root, &architecture);
        fs::remove_dir_all(&root).expect("clean up");
        assert_eq!(
            findings,
            [
                "volume: ARCHITECTURE.md has no row for this crate",
                "gone: ARCHITECTURE.md has a row for this crate, which does not exist"
            ]
        );
    }

    #[test]
    fn a_protocol_core_that_imports_net_is_found() {
        let folder = std::env::temp_dir().join(format!("tidy-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).expect("temp folder");
        fs::write(
            folder.join("Cargo.toml"),
            "[dependencies]\nblock = \"1\"\nnet = \"1\"\n",
        )
        .expect("manifest");
        fs::write(folder.join("src/lib.rs"), "//! A core.\n").expect("root");
        let mut findings = Vec::new();
        let nvme = rule("nvme", &["block"], Unsafe::Forbidden);
        check_crate(&folder, &nvme, &workspace(), &mut findings);
        fs::remove_dir_all(&folder).expect("clean up");
        assert_eq!(
            findings,
            [
                "nvme must not depend on net",
                "nvme: its root lacks #![forbid(unsafe_code)]"
            ]
        );
    }

    #[test]
    fn unsafe_code_beside_its_module_is_found() {
        let folder = std::env::temp_dir().join(format!("tidy-unsafe-{}", std::process::id()));
        fs::create_dir_all(folder.join("src/hw")).expect("temp folder");
        let write = |file: &str, text: &str| fs::write(folder.join(file), text).expect("a file");
        write("src/lib.rs", "#![deny(unsafe_code)]\nmod hw;\n");
        write("src/hw.rs", "fn f() { unsafe { g() } }\n");
        write("src/hw/verbs.rs", "unsafe impl Send for X {}\n");
        let mut findings = Vec::new();
        let fabric = rule("fabric", &[], Unsafe::ArguedIn("hw".to_owned()));
        check_crate(&folder, &fabric, &workspace(), &mut findings);
        assert_eq!(findings, [""; 0]);
        write("src/soft.rs", "fn f() { unsafe { g() } }\n");
        check_crate(&folder, &fabric, &workspace(), &mut findings);
        fs::remove_dir_all(&folder).expect("clean up");
        let [finding] = &findings[..] else {
            panic!("{findings:?}");
        };
        assert!(finding.contains("soft.rs"), "{finding}");
    }
}
