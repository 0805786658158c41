//! The report of a study: Markdown for people, JSON for programs, SVG.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use bench::BarChart;
use serde::{Serialize, Serializer};

use super::Machine;
use crate::failure::Failure;
use crate::form::Form;
use crate::mistake::Mistake;
use crate::output;

/// What a study found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StudyReport {
    /// The study's name, which its files have too: `rdma`.
    pub(crate) name: &'static str,
    /// What was compared.
    pub(crate) title: String,
    /// Where it was measured.
    pub(crate) machine: Machine,
    /// How it was measured, a sentence per entry.
    pub(crate) method: Vec<String>,
    /// The figures.
    pub(crate) sections: Vec<Section>,
    /// What the reader should know: goals that were missed, runs that failed.
    pub(crate) remarks: Vec<String>,
}

/// A table of a report.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Section {
    /// What it shows.
    pub(crate) title: String,
    /// The names of the columns, with units. The first one names the rows.
    pub(crate) columns: Vec<String>,
    /// The rows, each with a cell of each column.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// The columns that the picture shows side by side, by their positions; none: no picture.
    #[serde(skip)]
    pub(crate) drawn: Vec<usize>,
    /// What the drawn columns measure, with its unit.
    #[serde(skip)]
    pub(crate) measure: String,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A name or a remark.
    Text(String),
    /// A figure, which tables show with this many decimals.
    Number(f64, usize),
    /// A change in per cent, which tables show with its sign and two decimals.
    Change(f64),
    /// Nothing was measured.
    Missing,
}

impl Cell {
    /// The change from `before` to `after` in per cent; missing without a figure to compare with.
    pub(crate) fn change(before: f64, after: f64) -> Self {
        let change = (after / before - 1.0) * 100.0;
        if change.is_finite() {
            Self::Change(change)
        } else {
            Self::Missing
        }
    }

    /// Its figure, if it is one.
    fn figure(&self) -> Option<f64> {
        match self {
            Self::Number(figure, _) | Self::Change(figure) => Some(*figure),
            Self::Text(_) | Self::Missing => None,
        }
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(figure, _) | Self::Change(figure) => serializer.serialize_f64(*figure),
            Self::Missing => serializer.serialize_none(),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A bar would end the cell in Markdown.
            Self::Text(text) => f.write_str(&text.replace('|', "\\|")),
            Self::Number(figure, decimals) => write!(f, "{figure:.decimals$}"),
            Self::Change(change) => write!(f, "{change:+.2}"),
            Self::Missing => f.write_str("–"),
        }
    }
}

impl StudyReport {
    /// Prints the report, as Markdown or as JSON, and writes both and the picture to a folder, if
    /// one is given.
    pub(crate) fn publish(&self, form: Form, folder: Option<&Path>) -> Result<(), Failure> {
        if let Some(folder) = folder {
            self.write_files(folder)?;
        }
        match form {
            Form::Json => output::json(self),
            Form::Text => output::line(self.to_string().trim_end()),
        }
    }

    fn write_files(&self, folder: &Path) -> Result<(), Failure> {
        let path = |ending: &str| folder.join(format!("study-{}.{ending}", self.name));
        let json = serde_json::to_string_pretty(self).map_err(anyhow::Error::from)?;
        for (ending, text) in [("md", self.to_string()), ("json", json + "\n")] {
            let path = path(ending);
            fs::write(&path, text).map_err(|source| Mistake::WriteFile { path, source })?;
        }
        BarChart::draw_all(&self.charts(), &path("svg")).map_err(Failure::mistake)
    }

    /// The pictures of the sections that have one.
    fn charts(&self) -> Vec<BarChart> {
        let drawn = self.sections.iter();
        let drawn = drawn.filter(|section| !section.drawn.is_empty());
        drawn.map(Section::chart).collect()
    }
}

impl fmt::Display for StudyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# {}\n", self.title)?;
        for (name, value) in self.machine.fields() {
            writeln!(f, "- {name}: {value}")?;
        }
        if !self.method.is_empty() {
            writeln!(f, "\n{}", self.method.join(" "))?;
        }
        for section in &self.sections {
            write!(f, "\n{section}")?;
        }
        if !self.remarks.is_empty() {
            writeln!(f, "\n## Remarks\n")?;
            for remark in &self.remarks {
                writeln!(f, "- {remark}")?;
            }
        }
        Ok(())
    }
}

impl Section {
    fn chart(&self) -> BarChart {
        let series = self.drawn.iter();
        let series = series.filter_map(|&column| self.columns.get(column).cloned());
        let groups = self.rows.iter().map(|row| {
            let name = row.first().map_or_else(String::new, ToString::to_string);
            let figures = self.drawn.iter();
            let figures = figures.map(|&column| row.get(column).and_then(Cell::figure));
            (name, figures.collect())
        });
        BarChart {
            title: self.title.clone(),
            measure: self.measure.clone(),
            series: series.collect(),
            groups: groups.collect(),
        }
    }
}

impl fmt::Display for Section {
    /// As Markdown: columns are padded, so that the text is readable as it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![self.columns.clone()];
        let texts = self.rows.iter();
        lines.extend(texts.map(|row| row.iter().map(ToString::to_string).collect()));
        let widths: Vec<_> = (0..self.columns.len())
            .map(|column| {
                let cells = lines.iter().filter_map(|line| line.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        writeln!(f, "## {}\n", self.title)?;
        for (at, line) in lines.iter().enumerate() {
            let mut text = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(text, "| {cell:width$} |")?,
                    _ => write!(text, " {cell:>width$} |")?,
                }
            }
            writeln!(f, "{text}")?;
            if at == 0 {
                let rule = widths
                    .iter()
                    .enumerate()
                    .map(|(column, width)| match column {
                        0 => "-".repeat(width + 2),
                        _ => "-".repeat(width + 1) + ":",
                    });
                writeln!(f, "|{}|", rule.collect::<Vec<_>>().join("|"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
