//! `ramport export`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use control::{Definitions, is_exposed};
use server::replace_private;

use super::Daemon;
use crate::cli::ExportArgs;
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;

pub(super) fn run(daemon: &Daemon, args: &ExportArgs) -> Result<(), Failure> {
    if args.with_secrets && args.output.is_none() {
        check_standard_output()?;
    }
    let query = if args.with_secrets {
        "?with_secrets=true"
    } else {
        ""
    };
    let definitions: Definitions = daemon.client.get(&format!("/v1/definitions{query}"))?;
    let text = if daemon.is_json() {
        serde_json::to_string_pretty(&definitions).map_err(anyhow::Error::from)?
    } else {
        definitions.to_toml()
    };
    let text = text.trim_end();
    match &args.output {
        None => output::line(text),
        // Definitions may hold secrets.
        Some(path) => replace_private(path, format!("{text}\n").as_bytes()).map_err(|source| {
            let path = path.clone();
            Mistake::WriteFile { path, source }.into()
        }),
    }
}

/// Refuses to write secrets to a file that other users may read.
fn check_standard_output() -> Result<(), Failure> {
    let descriptor = io::stdout().as_fd().try_clone_to_owned();
    let metadata = descriptor.and_then(|descriptor| File::from(descriptor).metadata());
    if metadata.is_ok_and(|metadata| is_exposed(&metadata)) {
        return Err(Mistake::ExposedOutput.into());
    }
    Ok(())
}
