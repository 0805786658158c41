//! The log: lines on standard error, written by a thread of their own, so that nobody waits for
//! them.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::cli::LogForm;
use crate::failure::Failure;

/// Lines that may wait to be written; further ones are dropped rather than waited for.
const LINES_MAX: usize = 10_000;

/// Starts logging. Lines are written as long as what is returned lives.
pub(super) fn start(form: LogForm, filter: &str) -> Result<WorkerGuard, Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::Mistake(anyhow::anyhow!(
            "--log-level {filter}: {error}; write info, debug, or info,server=debug"
        ))
    })?;
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .finish(io::stderr());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(io::stderr().is_terminal());
    match form {
        LogForm::Text => builder.init(),
        LogForm::Json => builder.json().init(),
    }
    Ok(guard)
}
