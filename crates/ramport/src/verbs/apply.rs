//! `ramport apply`.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use control::{Applied, ClientError, Definitions, ErrorDetail};

use super::Daemon;
use crate::cli::ApplyArgs;
use crate::failure::Failure;
use crate::mistake::{Mistake, SystemFailure};
use crate::output;

/// The exit status of `--diff` if something would change.
const WOULD_CHANGE: u8 = 3;

pub(super) fn run(daemon: &Daemon, args: &ApplyArgs) -> Result<ExitCode, Failure> {
    let text = read(args)?;
    let invalid = |error: &dyn std::error::Error| {
        let detail = ErrorDetail {
            kind: "invalid".to_owned(),
            message: error.to_string(),
            needs_force: false,
        };
        refused(args, &detail)
    };
    let mut definitions = Definitions::from_text(&text).map_err(|error| invalid(&error))?;
    let folder = args.file.parent().unwrap_or(Path::new(""));
    definitions
        .read_secret_files(folder)
        .map_err(|error| invalid(&error))?;
    let force = if args.force { "&force=true" } else { "" };
    let path = format!("/v1/definitions?dry_run=true{force}");
    let compared = put(daemon, args, &path, &definitions)?;
    let is_same = compared.changes.is_empty();
    if args.diff || is_same || !daemon.is_json() {
        show_changes(daemon, &compared)?;
    }
    if let Some(error) = &compared.refused {
        return Err(refused(args, error));
    }
    if args.diff && !is_same {
        if !daemon.is_json() {
            output::line(format_args!("{} would change", count(&compared)))?;
        }
        return Ok(ExitCode::from(WOULD_CHANGE));
    }
    if is_same {
        return Ok(ExitCode::SUCCESS);
    }
    let path = format!("/v1/definitions{}", super::query(args.force));
    let applied = put(daemon, args, &path, &definitions)?;
    if daemon.is_json() {
        output::json(&applied)?;
    } else {
        output::line(format_args!("{} changed", count(&applied)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(args: &ApplyArgs) -> Result<String, Failure> {
    let mut text = String::new();
    if args.file.as_os_str() == "-" {
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(SystemFailure::StandardInput)?;
        return Ok(text);
    }
    std::fs::read_to_string(&args.file).map_err(|source| {
        let path = args.file.clone();
        Mistake::ReadFile { path, source }.into()
    })
}

fn put(
    daemon: &Daemon,
    args: &ApplyArgs,
    path: &str,
    definitions: &Definitions,
) -> Result<Applied, Failure> {
    let answer = daemon.client.put(path, definitions);
    answer.map_err(|error| match error {
        // The file was applied.
        ClientError::Refused { ref kind, .. } if kind == "unfinished" => error.into(),
        ClientError::Refused {
            kind,
            message,
            needs_force,
        } => refused(
            args,
            &ErrorDetail {
                kind,
                message,
                needs_force,
            },
        ),
        other => other.into(),
    })
}

/// A rejection of the whole file.
fn refused(args: &ApplyArgs, error: &ErrorDetail) -> Failure {
    let shown = args.file.display();
    Failure::Refused(ErrorDetail {
        kind: error.kind.clone(),
        message: format!(
            "{shown} was refused and nothing was changed: {}",
            error.reason()
        ),
        needs_force: error.needs_force,
    })
}

fn show_changes(daemon: &Daemon, compared: &Applied) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(compared);
    }
    for change in &compared.changes {
        output::line(change)?;
    }
    if compared.changes.is_empty() {
        return output::line("nothing to change");
    }
    Ok(())
}

fn count(applied: &Applied) -> String {
    match applied.changes.len() {
        1 => "1 definition".to_owned(),
        many => format!("{many} definitions"),
    }
}
