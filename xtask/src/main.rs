//! Developer tasks: `cargo xtask tidy` holds what the compiler does not, `cargo xtask bench` measures.

#![forbid(unsafe_code)]

mod bench;
mod documents;
mod imports;
mod sources;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("tidy") => tidy(),
        Some("bench") => measure(args),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy   (checks imports between crates, file lengths, leftovers, documents)"
            );
            eprintln!("       cargo xtask bench  (compares with the bare exchange and SPDK_DIR)");
            ExitCode::from(2)
        }
    }
}

fn measure(args: impl Iterator<Item = String>) -> ExitCode {
    let options = match bench::Options::parse(args) {
        Ok(options) => options,
        Err(mistake) => {
            eprintln!("bench: {mistake}");
            return ExitCode::from(2);
        }
    };
    match bench::run(&workspace_root(), &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> ExitCode {
    let root = workspace_root();
    let mut findings = imports::check(&root);
    findings.extend(sources::check(&root));
    findings.extend(documents::check(&root));
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
        findings.extend(documents::check(&root));
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
