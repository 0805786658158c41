//! Two sources measured in turn.

use std::fmt;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::{
    BenchError, Plan, Report,
    format::{plain_table, thousands},
    run,
};

/// Medians of two sources' figures.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The first source.
    pub a: String,
    /// The second source.
    pub b: String,
    /// Runs of each.
    pub runs: u32,
    /// Figure by figure.
    pub differences: Vec<Difference>,
    /// I/Os that failed in all runs.
    pub errors: u64,
}

/// One figure of both.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Which figure.
    pub figure: String,
    /// The first source's median.
    pub a: f64,
    /// The second source's median.
    pub b: f64,
    /// How much the second is above the first, in per cent; none if the first is 0.
    pub percent: Option<f64>,
    /// The lowest and the highest of the first source's runs.
    pub a_range: [f64; 2],
    /// The lowest and the highest of the second source's runs.
    pub b_range: [f64; 2],
}

/// Runs both plans `runs` times in the order A B B A A B …, so that a drift of the machine meets
/// both alike, and compares the medians of their figures.
pub fn compare(a: &Plan, b: &Plan, runs: u32, bar: &ProgressBar) -> Result<Comparison, BenchError> {
    if runs == 0 {
        return Err(BenchError::Option {
            option: "runs",
            value: 0,
            expected: "at least 1",
        });
    }
    let mut reports = [Vec::new(), Vec::new()];
    for round in 0..runs {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            let name = ["A", "B"][which];
            bar.set_prefix(format!("{name}, run {} of {runs}", round + 1));
            reports[which].push(run([a, b][which], bar)?);
            if a.stop.is_requested() {
                return Err(BenchError::Interrupted);
            }
        }
    }
    let [a_figures, b_figures] = reports.each_ref().map(|of_one| figures(of_one));
    let differences = a_figures
        .into_iter()
        .zip(b_figures)
        .map(|((figure, a), (_, b))| difference(figure, a, b))
        .collect();
    Ok(Comparison {
        a: names(a),
        b: names(b),
        runs,
        differences,
        errors: reports.iter().flatten().map(Report::failures).sum(),
    })
}

fn names(plan: &Plan) -> String {
    let names: Vec<String> = plan.sources.iter().map(ToString::to_string).collect();
    names.join(" ")
}

/// The figures that are compared, each with its values in all runs.
fn figures(reports: &[Report]) -> Vec<(String, Vec<f64>)> {
    let mut figures: Vec<(String, Vec<f64>)> = Vec::new();
    let mut put =
        |name: String, value: f64| match figures.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => figures.push((name, vec![value])),
        };
    for report in reports {
        put("IOPS".to_owned(), report.iops);
        put("MiB/s".to_owned(), report.mib_per_s);
        for (name, side) in report.sides() {
            let latency = &side.latency_us;
            put(format!("{name} mean us"), latency.mean);
            put(format!("{name} stddev us"), latency.stddev);
            put(format!("{name} p50 us"), latency.p50);
            put(format!("{name} p99 us"), latency.p99);
            put(format!("{name} p99.9 us"), latency.p99_9);
            put(format!("{name} max us"), latency.max);
        }
        put("own CPU us per I/O".to_owned(), report.cpu.us_per_io);
        let daemon = report.daemon.as_ref().map_or(0.0, |it| it.cpu.us_per_io);
        put("daemon CPU us per I/O".to_owned(), daemon);
    }
    figures
}

fn difference(figure: String, mut a: Vec<f64>, mut b: Vec<f64>) -> Difference {
    let (a_median, b_median) = (median(&mut a), median(&mut b));
    Difference {
        figure,
        a: a_median,
        b: b_median,
        percent: (a_median > 0.0).then(|| (b_median / a_median - 1.0) * 100.0),
        a_range: [a[0], a[a.len() - 1]],
        b_range: [b[0], b[b.len() - 1]],
    }
}

/// The median of `values`, which are not empty and are sorted afterwards.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        values[middle - 1].midpoint(values[middle])
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A: {}\nB: {}", self.a, self.b)?;
        writeln!(f, "medians of {} runs each, in turn", self.runs)?;
        let mut table = plain_table(&["", "A", "B", "B to A", "A from-to", "B from-to"]);
        for difference in &self.differences {
            let figure = |value: f64| match value {
                value if value < 1000.0 => format!("{value:.2}"),
                value if value < 1e6 => thousands(value),
                value => format!("{value:.0}"),
            };
            let range = |[low, high]: [f64; 2]| format!("{}-{}", figure(low), figure(high));
            table.add_row([
                difference.figure.clone(),
                figure(difference.a),
                figure(difference.b),
                difference
                    .percent
                    .map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.1} %")),
                range(difference.a_range),
                range(difference.b_range),
            ]);
        }
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_large_figures_fits_100_columns() {
        let difference = |figure: &str| {
            let values = || vec![99_999_999.0, 99_999_998.0, 1.0];
            difference(figure.to_owned(), values(), values())
        };
        let comparison = Comparison {
            a: "a".to_owned(),
            b: "b".to_owned(),
            runs: 3,
            differences: vec![difference("IOPS"), difference("daemon CPU us per I/O")],
            errors: 0,
        };
        let text = comparison.to_string();
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    #[test]
    fn medians_and_percentages() {
        let it = difference(
            "IOPS".to_owned(),
            vec![90.0, 110.0, 100.0],
            vec![120.0, 130.0],
        );
        assert!((it.a - 100.0).abs() < 1e-9 && (it.b - 125.0).abs() < 1e-9);
        assert!((it.percent.expect("a is not 0") - 25.0).abs() < 1e-9);
        assert_eq!(format!("{:?}", it.a_range), "[90.0, 110.0]");
        let it = difference("daemon".to_owned(), vec![0.0], vec![1.0]);
        assert_eq!(it.percent, None);
    }
}
