//! The output of answers: tables and fields for people, JSON for programs.

use std::io::{self, IsTerminal, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use ratatui::crossterm::terminal;
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

/// Writes a table without lines; columns named in `numbers` are aligned to the right. On a terminal
/// it is no wider than the terminal.
pub(crate) fn table(
    head: &[&str],
    numbers: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), Failure> {
    let columns = io::stdout().is_terminal().then(terminal::size);
    let width = columns.and_then(Result::ok).map(|(columns, _)| columns);
    for row in layout(head, numbers, rows, width) {
        line(row)?;
    }
    Ok(())
}

/// The lines of a table. Without a width each row is a line, for programs that read lines;
/// otherwise cells that are too wide continue below.
pub(crate) fn layout(
    head: &[&str],
    numbers: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    width: Option<u16>,
) -> Vec<String> {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(head.to_vec());
    if let Some(width) = width {
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
    }
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
    table.lines().map(|row| row.trim_end().to_owned()).collect()
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
pub(crate) enum TextRole {
    /// A name.
    Name,
    /// A problem.
    Warning,
    /// A detail.
    Quiet,
}

/// Colours a text if standard output is a terminal and NO_COLOR is not set.
pub(crate) fn paint(role: TextRole, text: &str) -> String {
    let wants_colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if !wants_colour {
        return text.to_owned();
    }
    let code = match role {
        TextRole::Name => 1,
        TextRole::Warning => 33,
        TextRole::Quiet => 2,
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [&str; 4] = ["NAME", "VOLUMES", "HOSTS", "SESSIONS"];

    /// Two targets, of which one has long names.
    fn drawn(width: Option<u16>) -> Vec<String> {
        let row = |cells: [&str; 4]| cells.map(str::to_owned).to_vec();
        let target = format!("nqn.2014-08.com.example:{}", "a".repeat(199));
        let host = "nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6";
        let rows = [
            row([&target, "rd0=1 rd1=2", host, "3"]),
            row(["iqn.2025-01.io.ramport:b", "rd0=0", "any", "0"]),
        ];
        layout(&HEAD, &["SESSIONS"], rows, width)
    }

    #[test]
    fn a_table_is_no_wider_than_its_terminal_and_keeps_every_character() {
        let letters = |lines: &[String]| {
            let mut all: Vec<char> = lines.concat().chars().collect();
            all.retain(|letter| *letter != ' ');
            all.sort_unstable();
            all
        };
        let whole = drawn(None);
        assert_eq!(whole.len(), 3, "one line per row");
        for width in [60, 80, 100, 400] {
            let lines = drawn(Some(width));
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(usize::from(width)), "{width}: {lines:#?}");
            assert_eq!(letters(&lines), letters(&whole), "{width}");
        }
        assert_eq!(drawn(Some(400)), whole);
    }
}
