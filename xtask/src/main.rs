//! Developer tasks: `cargo xtask tidy` checks rules that the compiler does not, `cargo xtask bench`
//! measures.

#![forbid(unsafe_code)]

mod architecture;
mod bench;
mod circles;
mod dependencies;
mod documents;
mod exceptions;
mod imports;
mod sources;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use architecture::Architecture;
use exceptions::Exceptions;

const USAGE: &str = "\
usage: cargo xtask tidy [--shrink]  checks imports between crates and between modules, dependencies
                                    and their licences, lengths of files and functions, leftovers,
                                    documents;
                                    --shrink first lowers or removes exceptions that got shorter
       cargo xtask bench [--tls on] compares with the bare exchange and SPDK_DIR; --tls: TLS with plain
                                    and SPDK_DIR's TLS";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("tidy") => match args.next().as_deref() {
            None => tidy(),
            Some("--shrink") => shrink(),
            Some(other) => {
                eprintln!("tidy: unknown option {other}; the only option is --shrink");
                ExitCode::from(2)
            }
        },
        Some("bench") => measure(args),
        _ => {
            eprintln!("{USAGE}");
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

/// All findings of `tidy`.
fn findings(root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let architecture = Architecture::read(root, &mut findings);
    let exceptions = Exceptions::read(root, &mut findings);
    findings.extend(imports::check(root, &architecture));
    findings.extend(dependencies::check(root, &architecture));
    findings.extend(circles::check(root));
    let (leftovers, excesses) = sources::survey(root);
    findings.extend(leftovers);
    findings.extend(exceptions.apply(excesses));
    findings.extend(documents::check(root));
    findings
}

/// Lowers the exceptions to the present sizes, then checks.
fn shrink() -> ExitCode {
    let root = workspace_root();
    let exceptions = Exceptions::read(&root, &mut Vec::new());
    let (_, excesses) = sources::survey(&root);
    match exceptions.shrunk(&excesses).write(&root) {
        Ok(()) => tidy(),
        Err(error) => {
            eprintln!("tidy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> ExitCode {
    let findings = findings(&workspace_root());
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
        let findings = findings(&workspace_root());
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
