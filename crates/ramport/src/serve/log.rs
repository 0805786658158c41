//! The log: lines on standard error, written by a thread of their own, so that nobody waits for
//! them.

use std::io::{self, IsTerminal};

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::LogForm;
use crate::failure::Failure;

/// Lines that may wait to be written; further ones are dropped rather than waited for.
const LINES_MAX: usize = 10_000;

/// A word alone has to be a level: the filter would take another one for a module, and show nothing else.
fn check_levels(filter: &str) -> Result<(), Failure> {
    let words = filter.split(',').map(str::trim);
    let mut alone = words.filter(|word| !word.contains(['=', '[']));
    // An empty word would parse as a level.
    match alone.find(|word| word.is_empty() || word.parse::<LevelFilter>().is_err()) {
        None => Ok(()),
        Some(word) => Err(Failure::Mistake(anyhow::anyhow!(
            "--log-level {filter}: {word:?} is not a level; write error, warn, info, debug, trace or off, or a filter such as info,server=debug"
        ))),
    }
}

/// Starts logging. Lines are written as long as what is returned lives.
pub(super) fn start(form: LogForm, filter: &str) -> Result<WorkerGuard, Failure> {
    check_levels(filter)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_word_has_to_be_a_level() {
        for filter in ["error", "WARN", "off", "info,server=debug", "server=trace"] {
            assert!(check_levels(filter).is_ok(), "{filter}");
        }
        for filter in ["warning", "info,verbose", "", "info,"] {
            assert!(check_levels(filter).is_err(), "{filter}");
        }
    }
}
