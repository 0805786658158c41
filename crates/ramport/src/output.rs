//! The output of answers: tables and fields for people, JSON for programs.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;

/// Writes a line to standard output. If the reader has closed it, the program ends without an
/// error.
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

/// The meaning of a text, which determines its colour.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tone {
    /// A name.
    Name,
    /// A problem.
    Warning,
    /// A detail.
    Quiet,
}

/// Colours a text if standard output is a terminal and NO_COLOR is not set.
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
