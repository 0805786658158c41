//! The log: lines on standard error, written by a thread of their own, so that no other thread
//! waits for output.

mod audit;
mod form;
mod limit;

use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;

use tracing::Subscriber;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{self, JsonFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use crate::cli::LogForm;
use crate::failure::Failure;
use crate::mistake::Mistake;
use form::{Prioritized, QuotedFields};
use limit::PeerLimit;

/// Lines that may wait to be written; further ones are dropped rather than waited for.
const LINES_MAX: usize = 10_000;

/// A word alone has to be a level: the filter would take another one for a module, and show nothing
/// else.
fn check_levels(filter: &str) -> Result<(), Failure> {
    let words = filter.split(',').map(str::trim);
    let mut alone = words.filter(|word| !word.contains(['=', '[']));
    // An empty word would parse as a level.
    match alone.find(|word| word.is_empty() || word.parse::<LevelFilter>().is_err()) {
        None => Ok(()),
        Some(word) => Err(Mistake::LogLevel {
            filter: filter.to_owned(),
            word: word.to_owned(),
        }
        .into()),
    }
}

/// The running log. Lines are written until it is dropped.
pub(super) struct Log {
    limit: PeerLimit,
    _writer: WorkerGuard,
    _audit: Option<WorkerGuard>,
}

/// The form of lines.
#[derive(Clone, Copy)]
struct Style {
    form: LogForm,
    is_terminal: bool,
    is_journal: bool,
}

/// Starts logging; with a folder for them, requests for changes to files there, too.
pub(super) fn start(form: LogForm, filter: &str, audit: Option<&Path>) -> Result<Log, Failure> {
    check_levels(filter)?;
    let mut filter = EnvFilter::try_new(filter).map_err(|source| Mistake::LogFilter {
        filter: filter.to_owned(),
        source,
    })?;
    if audit.is_some() {
        let needed = audit::DIRECTIVES.into_iter();
        for directive in needed.filter_map(|text| text.parse().ok()) {
            filter = filter.add_directive(directive);
        }
    }
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LINES_MAX)
        .finish(io::stderr());
    let style = Style {
        form,
        is_terminal: io::stderr().is_terminal(),
        is_journal: form::is_journal(io::stderr(), env::var_os("JOURNAL_STREAM").as_deref()),
    };
    let limit = PeerLimit::default();
    let (audit, audit_guard) = audit.map(audit::start).transpose()?.unzip();
    let audit = audit.map(audit::layer);
    subscriber(style, filter, limit.clone(), writer)
        .with(audit)
        .init();
    Ok(Log {
        limit,
        _writer: guard,
        _audit: audit_guard,
    })
}

impl Log {
    /// At the end of each window, logs how many lines about peers were suppressed. Never returns.
    pub(super) async fn report_suppressed(&self) {
        let mut windows = tokio::time::interval(limit::WINDOW);
        loop {
            windows.tick().await;
            self.limit.end_window();
        }
    }
}

impl Drop for Log {
    /// Ends the last window.
    fn drop(&mut self) {
        self.limit.end_window();
    }
}

fn subscriber<W>(
    style: Style,
    filter: EnvFilter,
    limit: PeerLimit,
    writer: W,
) -> impl Subscriber + for<'a> LookupSpan<'a> + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let is_journal = style.is_journal;
    let lines = fmt::layer()
        .with_writer(writer)
        .with_ansi(style.is_terminal);
    let lines = match style.form {
        LogForm::Text => lines
            .fmt_fields(QuotedFields)
            .event_format(Prioritized {
                form: format::format(),
                is_journal,
            })
            .boxed(),
        LogForm::Json => lines
            .fmt_fields(JsonFields::new())
            .event_format(Prioritized {
                form: format::format().json(),
                is_journal,
            })
            .boxed(),
    };
    tracing_subscriber::registry()
        .with(lines)
        .with(limit)
        .with(filter)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A writer whose output tests read.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn styled_lines_of(style: Style, limit: &PeerLimit, log: impl FnOnce()) -> Vec<String> {
        let lines = Lines::default();
        let writer = {
            let lines = lines.clone();
            move || lines.clone()
        };
        let subscriber = subscriber(style, EnvFilter::new("debug"), limit.clone(), writer);
        tracing::subscriber::with_default(subscriber, log);
        let bytes = lines.0.lock().expect("no panic").clone();
        let text = String::from_utf8(bytes).expect("text");
        text.lines().map(str::to_owned).collect()
    }

    /// The lines of text that `log` writes.
    pub(super) fn limited_lines_of(limit: &PeerLimit, log: impl FnOnce()) -> Vec<String> {
        let style = Style {
            form: LogForm::Text,
            is_terminal: false,
            is_journal: false,
        };
        styled_lines_of(style, limit, log)
    }

    pub(super) fn lines_of(log: impl FnOnce()) -> Vec<String> {
        limited_lines_of(&PeerLimit::default(), log)
    }

    #[test]
    fn lines_for_the_journal_begin_with_their_priority() {
        for form in [LogForm::Text, LogForm::Json] {
            let style = Style {
                form,
                is_terminal: false,
                is_journal: true,
            };
            let lines = styled_lines_of(style, &PeerLimit::default(), || {
                tracing::error!("first");
                tracing::warn!("second\nline");
                tracing::info!(name = "x", "third");
                tracing::debug!("fourth");
            });
            let priorities: Vec<_> = lines.iter().map(|line| &line[..3]).collect();
            assert_eq!(priorities, ["<3>", "<4>", "<6>", "<7>"], "{lines:?}");
            if form == LogForm::Json {
                let third = lines[2].strip_prefix("<6>").expect("a priority");
                let third: serde_json::Value = serde_json::from_str(third).expect("JSON");
                assert_eq!(third["fields"]["name"], "x");
            }
        }
    }

    #[test]
    fn a_line_names_its_span_with_quoted_fields() {
        let lines = lines_of(|| {
            let span = tracing::info_span!("request", user = "a b", uid = 7, token = None::<&str>);
            span.in_scope(|| tracing::info!("changed"));
        });
        assert!(
            lines[0].contains(r#"request{user="a b" uid=7}: "#),
            "{lines:?}"
        );
    }

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
