//! Developer tasks: `cargo xtask tidy` holds what the compiler does not.

#![forbid(unsafe_code)]

mod imports;
mod sources;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("tidy") {
        return tidy();
    }
    eprintln!("usage: cargo xtask tidy   (checks imports between crates, file lengths, leftovers)");
    ExitCode::from(2)
}

fn tidy() -> ExitCode {
    let root = workspace_root();
    let mut findings = imports::check(&root);
    findings.extend(sources::check(&root));
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if findings.is_empty() {
        println!("tidy: nothing found");
        ExitCode::SUCCESS
    } else {
        eprintln!("tidy: {} found", findings.len());
        ExitCode::FAILURE
    }
}

fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = workspace_root();
        let mut findings = imports::check(&root);
        findings.extend(sources::check(&root));
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
