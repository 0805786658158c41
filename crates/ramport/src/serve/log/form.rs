//! The form of lines: values are quoted, so that text from peers cannot forge fields or lines, and
//! lines for systemd's journal begin with their syslog(3) priority.

use std::ffi::OsStr;
use std::fmt::{self, Debug, Write as _};
use std::os::fd::AsFd;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes fields as `name=value`. Strings are quoted. Other values are quoted if they contain a
/// space, a quote or another character that could be mistaken for the end of the value. Control
/// characters are escaped everywhere.
pub(super) struct QuotedFields;

impl<'writer> FormatFields<'writer> for QuotedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = FieldWriter {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct FieldWriter<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: fmt::Result,
}

impl FieldWriter<'_> {
    fn put(&mut self, field: &Field, value: &str) {
        if self.result.is_err() {
            return;
        }
        let space = if std::mem::take(&mut self.is_first) {
            ""
        } else {
            " "
        };
        self.result = match field.name() {
            "message" => write!(self.writer, "{space}{}", Escaped(value)),
            name => write!(self.writer, "{space}{name}={value}"),
        };
    }
}

impl Visit for FieldWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.put(field, value),
            _ => self.put(field, &format!("{value:?}")),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'=' | b'\\');
        if field.name() == "message" || (!text.is_empty() && text.bytes().all(is_plain)) {
            self.put(field, &text);
        } else {
            self.put(field, &format!("{text:?}"));
        }
    }
}

/// Text with its control characters escaped.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '"' | '\'' | '\\' => f.write_char(character)?,
                other => write!(f, "{}", other.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// Writes the priority before each line if the journal reads it.
pub(super) struct Prioritized<F> {
    pub(super) form: F,
    pub(super) is_journal: bool,
}

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.is_journal {
            write!(writer, "<{}>", priority(*event.metadata().level()))?;
        }
        self.form.format_event(context, writer, event)
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> u8 {
    const ERR: u8 = 3;
    const WARNING: u8 = 4;
    const INFO: u8 = 6;
    const DEBUG: u8 = 7;
    match level {
        Level::ERROR => ERR,
        Level::WARN => WARNING,
        Level::INFO => INFO,
        _ => DEBUG,
    }
}

/// Whether `stream` is the one that systemd connected to the journal. `JOURNAL_STREAM`, if set,
/// holds the device and inode of that stream.
pub(super) fn is_journal(stream: impl AsFd, journal_stream: Option<&OsStr>) -> bool {
    let journal = journal_stream.and_then(OsStr::to_str);
    let Some((device, inode)) = journal.and_then(|text| text.split_once(':')) else {
        return false;
    };
    rustix::fs::fstat(stream)
        .is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::super::tests::lines_of;
    use super::*;

    #[test]
    fn text_from_peers_forges_neither_fields_nor_lines() {
        let evil = "x\" host=other\n2026-01-01 ERROR forged\u{1b}[2J\u{202e}";
        let lines = lines_of(|| {
            tracing::info!(host = evil, "a \"plain\" message: {evil}");
            tracing::info!(host = %evil, port = 3260, peer = %"192.0.2.7:1", empty = %"", "another");
        });
        let [first, second] = &lines[..] else {
            panic!("{lines:?}");
        };
        let quoted = r#"host="x\" host=other\n2026-01-01 ERROR forged\u{1b}[2J\u{202e}""#;
        assert!(
            first.contains(r#"a "plain" message: x" host=other\n2026"#),
            "{first}"
        );
        assert!(first.ends_with(quoted), "{first}");
        let rest = format!("another {quoted} port=3260 peer=192.0.2.7:1 empty=\"\"");
        assert!(second.ends_with(&rest), "{second}");
    }

    #[test]
    fn the_journal_is_recognized_by_device_and_inode() {
        let file = std::fs::File::open("/dev/null").expect("it exists");
        let data = file.metadata().expect("it has metadata");
        let is = |text: String| is_journal(&file, Some(OsStr::new(&text)));
        assert!(is(format!("{}:{}", data.dev(), data.ino())));
        assert!(!is(format!("{}:{}", data.dev(), data.ino() + 1)));
        assert!(!is(String::new()) && !is_journal(&file, None));
    }

    #[test]
    fn levels_have_the_priorities_of_syslog() {
        let levels = [
            Level::ERROR,
            Level::WARN,
            Level::INFO,
            Level::DEBUG,
            Level::TRACE,
        ];
        assert_eq!(levels.map(priority), [3, 4, 6, 7, 7]);
    }
}
