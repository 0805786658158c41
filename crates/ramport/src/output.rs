//! How answers look: tables and trees for people, JSON for programs.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;

/// The form of answers and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

impl Form {
    /// JSON where it is asked for.
    pub(crate) fn when(is_json: bool) -> Self {
        if is_json { Self::Json } else { Self::Text }
    }
}

/// Writes a line to standard output. Where its reader has gone away, everything ends in order.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        other => Ok(other?),
    }
}

/// Writes a value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?;
    line(text)
}

/// Writes a table without lines; columns named in `numbers` are aligned to the right.
pub(crate) fn table(
    head: &[&str],
    numbers: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), Failure> {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for (at, name) in head.iter().enumerate() {
        if let Some(column) = table.column_mut(at) {
            column.set_padding((0, 2));
            if numbers.contains(name) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    for row in table.lines() {
        line(row.trim_end())?;
    }
    Ok(())
}

/// Writes names and values below each other.
pub(crate) fn fields(rows: &[(&str, String)]) -> Result<(), Failure> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in rows {
        line(format_args!("{name:width$}  {value}"))?;
    }
    Ok(())
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A size for people: three figures and a unit of 1024.
#[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value.fract() == 0.0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// A span of time for people, from seconds.
pub(crate) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// What a text stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// A name.
    Name,
    /// Something to look at.
    Warning,
    /// Beside the point.
    Quiet,
}

/// Colours a text, where standard output is a terminal and NO_COLOR is not set.
pub(crate) fn paint(tone: Tone, text: &str) -> String {
    let wants_colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if !wants_colour {
        return text.to_owned();
    }
    let code = match tone {
        Tone::Name => 1,
        Tone::Warning => 33,
        Tone::Quiet => 2,
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_figures() {
        for (count, shown) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "0.98 KiB"),
            (1536, "1.50 KiB"),
            (1 << 30, "1 GiB"),
            (50 << 30, "50 GiB"),
            (123_456_789, "118 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        let shown = [7, 119, 120, 7_200, 200_000].map(span);
        assert_eq!(shown, ["7 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
