//! Figures and tables as text.

use comfy_table::{CellAlignment, Table, presets};

/// A latency in microseconds, in at most 8 characters up to 100 s, above that in seconds.
pub(crate) fn microseconds(us: f64) -> String {
    match us {
        us if us < 1e5 => format!("{us:.1}"),
        us if us < 1e8 - 0.5 => format!("{us:.0}"),
        us => format!("{:.0} s", us / 1e6),
    }
}

/// A table without borders whose figures are aligned to the right.
pub(crate) fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A figure without a fraction, with separators between thousands.
pub(crate) fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        for (figure, text) in [
            (0.2, "0"),
            (999.6, "1,000"),
            (65_000.0, "65,000"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(thousands(figure), text);
        }
    }

    #[test]
    fn latencies_have_at_most_eight_characters() {
        for (us, text) in [
            (7.25, "7.2"),
            (99_999.94, "99999.9"),
            (1_234_567.8, "1234568"),
            (99_999_999.4, "99999999"),
            (99_999_999.6, "100 s"),
            (3.6e9, "3600 s"),
        ] {
            assert_eq!(microseconds(us), text);
            assert!(text.len() <= 8);
        }
    }
}
