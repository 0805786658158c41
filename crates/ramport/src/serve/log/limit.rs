//! Limits the lines that remote peers can cause: one line per window for each cause and source.
//! Further lines are counted, and the counts are logged when the window ends.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The length of a window.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// The maximum number of sources that are distinguished in a window.
const SOURCES_MAX: usize = 256;
/// The maximum number of causes per source that are distinguished in a window.
const CAUSES_MAX: usize = 8;
/// The maximum number of bytes of a text that are compared to distinguish causes.
const TEXT_MAX_BYTES: usize = 256;

/// Fields that name the source of an event. Events without them are not limited.
const SOURCES: [&str; 2] = ["peer", "listener"];
/// Fields that hold the cause of an event with a source. Peers can choose the values of other
/// fields.
const CAUSES: [&str; 3] = ["error", "reason", "status"];

/// Drops events whose cause and source were logged in this window already. All clones share one
/// window.
#[derive(Clone, Default)]
pub(super) struct PeerLimit(Arc<Mutex<Window>>);

#[derive(Default)]
struct Window {
    sources: HashMap<String, Vec<Dropped>>,
    /// Lines that were dropped because there were too many sources or causes to distinguish.
    others: u64,
}

/// A cause whose first line was logged.
struct Dropped {
    cause: Cause,
    count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cause {
    message: String,
    reason: String,
}

impl PeerLimit {
    /// Logs how many lines were dropped since the last call, and starts another window.
    pub(super) fn end_window(&self) {
        let Window { sources, others } = std::mem::take(&mut *self.lock());
        for (source, causes) in sources {
            for Dropped { cause, count } in causes.into_iter().filter(|it| it.count > 0) {
                let Cause { message, reason } = cause;
                tracing::warn!(source, reason, count, "suppressed lines: {message}");
            }
        }
        if others > 0 {
            tracing::warn!(
                count = others,
                "suppressed lines from other sources or with other reasons"
            );
        }
    }

    /// A panic under this lock leaves whole values, so a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, Window> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for PeerLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let mut fields = event.fields();
        let is_loud = *event.metadata().level() <= Level::INFO;
        if !is_loud || !fields.any(|field| SOURCES.contains(&field.name())) {
            return true;
        }
        let mut origin = Origin::default();
        event.record(&mut origin);
        self.lock().admit(origin.source, origin.cause)
    }
}

impl Window {
    /// Whether this is the first line of its cause and source.
    fn admit(&mut self, source: String, cause: Cause) -> bool {
        let is_full = self.sources.len() >= SOURCES_MAX;
        if is_full && !self.sources.contains_key(&source) {
            self.others += 1;
            return false;
        }
        let causes = self.sources.entry(source).or_default();
        if let Some(dropped) = causes.iter_mut().find(|known| known.cause == cause) {
            dropped.count += 1;
            return false;
        }
        if causes.len() >= CAUSES_MAX {
            self.others += 1;
            return false;
        }
        causes.push(Dropped { cause, count: 0 });
        true
    }
}

/// The source and cause of an event.
#[derive(Default)]
struct Origin {
    source: String,
    cause: Cause,
}

impl Visit for Origin {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.cause.message.push_str(cut(value)),
            name if SOURCES.contains(&name) => self.source = source(value),
            name if CAUSES.contains(&name) => self.cause.reason.push_str(cut(value)),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

/// An address without its port. For IPv6 it is the /64 network, within which a host chooses its
/// addresses.
fn source(text: &str) -> String {
    let with_port = text.parse::<SocketAddr>().map(|address| address.ip());
    match with_port
        .or_else(|_| text.parse())
        .map(|ip| ip.to_canonical())
    {
        Ok(IpAddr::V6(ip)) if !ip.is_loopback() => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        Ok(ip) => ip.to_string(),
        Err(_) => cut(text).to_owned(),
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=TEXT_MAX_BYTES.min(text.len())).rev();
    let end = end.into_iter().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{limited_lines_of, lines_of};
    use super::*;

    fn refuse(peer: &str, error: &str, host: &str) {
        tracing::warn!(host, peer = %peer, %error, "rejected a connection");
    }

    #[test]
    fn one_line_per_cause_and_source_is_logged_and_the_others_are_counted() {
        let limit = PeerLimit::default();
        let lines = limited_lines_of(&limit, || {
            for port in 0..100 {
                // Values that the peer chooses do not cause another line.
                refuse(&format!("192.0.2.7:{port}"), "full", &format!("host{port}"));
            }
            refuse("192.0.2.7:1", "too many half open", "h");
            refuse("192.0.2.8:1", "full", "h");
            refuse("[2001:db8::1]:1", "full", "h");
            refuse("[2001:db8::2]:1", "full", "h");
            tracing::debug!(peer = %"192.0.2.7:1", "lines for debugging are not limited");
            tracing::debug!(peer = %"192.0.2.7:1", "lines for debugging are not limited");
            limit.end_window();
            refuse("192.0.2.7:1", "full", "h");
        });
        let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
        assert_eq!(
            count(" WARN ramport::serve::log::limit::tests: rejected"),
            5,
            "{lines:?}"
        );
        assert_eq!(count("for debugging"), 2);
        assert_eq!(count("suppressed lines"), 2, "{lines:?}");
        let told =
            r#"suppressed lines: rejected a connection source="192.0.2.7" reason="full" count=99"#;
        assert_eq!(count(told), 1, "{lines:?}");
        assert_eq!(
            count(r#"source="2001:db8:0:0::/64" reason="full" count=1"#),
            1,
            "{lines:?}"
        );
    }

    #[test]
    fn many_sources_and_causes_take_bounded_memory_and_lines() {
        let limit = PeerLimit::default();
        let lines = limited_lines_of(&limit, || {
            for number in 0..1000 {
                refuse(
                    &format!("10.0.{}.{}:1", number / 256, number % 256),
                    "full",
                    "h",
                );
                refuse("192.0.2.7:1", &format!("length {number}"), "h");
            }
            assert!(limit.lock().sources.len() <= SOURCES_MAX);
            limit.end_window();
        });
        assert_eq!(lines.len(), SOURCES_MAX - 1 + CAUSES_MAX + 1, "{lines:?}");
        let others = 1000 - (SOURCES_MAX - 1) + 1000 - CAUSES_MAX;
        assert!(
            lines
                .last()
                .expect("lines")
                .ends_with(&format!("count={others}")),
            "{lines:?}"
        );
    }

    #[test]
    fn lines_without_a_source_are_not_limited() {
        let lines = lines_of(|| {
            for _ in 0..3 {
                tracing::warn!("the same");
            }
        });
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let text = "é".repeat(TEXT_MAX_BYTES);
        assert_eq!(cut(&text), "é".repeat(TEXT_MAX_BYTES / 2));
        assert_eq!(cut("short"), "short");
    }
}
