//! The audit log: who asked for which change, when, and with what result, as JSON in a file per
//! day.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tracing::{Metadata, Subscriber};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, fmt};

use crate::failure::Failure;
use crate::mistake::Mistake;

/// Files that are kept.
const FILES_MAX: usize = 31;
/// Lines that may wait to be written. Further requests wait: no line is lost.
const LINES_MAX: usize = 1000;
/// Directives of the log's filter without which the audit log would miss lines.
pub(super) const DIRECTIVES: [&str; 2] = ["audit=info", "control::api::caller=info"];

/// Opens the log in `folder`, which is created if it does not exist.
pub(super) fn start(folder: &Path) -> Result<(NonBlocking, WorkerGuard), Failure> {
    // If this fails, the next step says why.
    let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let appender = RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("audit")
        .filename_suffix("json")
        .max_log_files(FILES_MAX)
        .build(folder)
        .map_err(|source| Mistake::AuditLog {
            folder: folder.to_owned(),
            source,
        })?;
    Ok(NonBlockingBuilder::default()
        .lossy(false)
        .buffered_lines_limit(LINES_MAX)
        .finish(appender))
}

/// Writes the lines of the audit, with what is known of the sender of each request.
pub(super) fn layer<S>(writer: NonBlocking) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let lines = fmt::layer().json().with_writer(writer).with_ansi(false);
    lines.with_filter(filter_fn(is_audit))
}

fn is_audit(metadata: &Metadata<'_>) -> bool {
    metadata.target() == "audit" || (metadata.is_span() && metadata.name() == "request")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_per_day_is_kept_for_a_month_in_a_private_folder() {
        let folder = std::env::temp_dir().join(format!("ramport-rotation-{}", std::process::id()));
        drop(start(&folder).expect("it can be written"));
        let mode = fs::metadata(&folder)
            .expect("a folder")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        // Those of earlier days.
        for day in 1..=28 {
            for month in 1..=2 {
                let name = format!("audit.2020-{month:02}-{day:02}.json");
                fs::write(folder.join(name), "{}").expect("written");
            }
        }
        let (mut writer, guard) = start(&folder).expect("it can be written");
        writeln!(writer, "today").expect("written");
        drop(guard);
        let names = fs::read_dir(&folder).expect("a folder");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        // One less if today's was there already, which is not removed to make room for itself.
        assert!(
            (FILES_MAX - 1..=FILES_MAX).contains(&names.len()),
            "{names:?}"
        );
        let today = folder.join(names.last().expect("some"));
        assert_eq!(fs::read_to_string(today).expect("text"), "today\n");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
