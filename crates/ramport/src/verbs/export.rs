//! `ramport export`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use control::{Definitions, is_exposed};

use super::Daemon;
use crate::cli::ExportArgs;
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;

/// The mode of a file with definitions: they may hold secrets.
const MODE: u32 = 0o600;

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
        Some(path) => write(path, text).map_err(|source| {
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

/// Writes a file for its owner alone. A file of that name is replaced once the new one is complete.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    // A file that an earlier run left may be readable by others.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&temporary)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}
