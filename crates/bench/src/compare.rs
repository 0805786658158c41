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
    /// The requested number of runs of each source.
    pub runs: u32,
    /// The number of finished runs of the first and of the second source.
    pub measured: [usize; 2],
    /// Figure by figure.
    pub differences: Vec<Difference>,
    /// I/Os that failed in all runs.
    pub errors: u64,
    /// Whether a [`Stop`](crate::Stop) ended the series.
    pub interrupted: bool,
    /// Why the series ended early, if a run failed.
    pub failure: Option<String>,
}

/// One figure of both sources. A source without a run has no values.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Which figure.
    pub figure: String,
    /// The first source's median.
    pub a: Option<f64>,
    /// The second source's median.
    pub b: Option<f64>,
    /// How much the second is above the first, in per cent; none if the first is 0.
    pub percent: Option<f64>,
    /// The lowest and the highest of the first source's runs.
    pub a_range: Option<[f64; 2]>,
    /// The lowest and the highest of the second source's runs.
    pub b_range: Option<[f64; 2]>,
}

/// Runs both plans `runs` times in the order A B B A A B …, so that a drift of the machine affects
/// both equally, and compares the medians of their figures. If the series ends early, because of a
/// [`Stop`](crate::Stop) or because a run fails, the finished runs are compared.
///
/// # Errors
/// If `runs` is 0 or no run was finished.
pub fn compare(a: &Plan, b: &Plan, runs: u32, bar: &ProgressBar) -> Result<Comparison, BenchError> {
    if runs == 0 {
        return Err(BenchError::Option {
            option: "runs",
            value: 0,
            expected: "at least 1",
        });
    }
    let rounds = (0..runs).flat_map(|round| {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        order.map(|which| (round, which))
    });
    let (mut reports, mut failure) = ([Vec::new(), Vec::new()], None);
    for (round, which) in rounds {
        let name = ["A", "B"][which];
        bar.set_prefix(format!("{name}, run {} of {runs}", round + 1));
        match run([a, b][which], bar) {
            // An interrupted run counts only if its source has no other.
            Ok(report) if report.interrupted && !reports[which].is_empty() => {}
            Ok(report) if report.interrupted && report.measured_nothing() => {}
            Ok(report) => reports[which].push(report),
            Err(error) => failure = Some(error),
        }
        if failure.is_some() || a.stop.is_requested() {
            break;
        }
    }
    if reports.iter().all(Vec::is_empty) {
        return Err(failure.unwrap_or(BenchError::Interrupted));
    }
    Ok(Comparison {
        a: names(a),
        b: names(b),
        runs,
        measured: reports.each_ref().map(Vec::len),
        differences: differences(reports.each_ref().map(|of_one| figures(of_one))),
        errors: reports.iter().flatten().map(Report::failures).sum(),
        interrupted: a.stop.is_requested(),
        failure: failure.map(|error| error.to_string()),
    })
}

fn names(plan: &Plan) -> String {
    let names: Vec<String> = plan.sources.iter().map(ToString::to_string).collect();
    names.join(" ")
}

/// Figures by name, each with its values in all runs.
type Figures = Vec<(String, Vec<f64>)>;

/// The figures of both sources side by side. If a source has no run, the other's figures stand
/// alone.
fn differences([a, b]: [Figures; 2]) -> Vec<Difference> {
    let names = if a.is_empty() { &b } else { &a };
    let values = |side: &Figures, at: usize| {
        let values = side.get(at).map(|(_, values)| values.clone());
        values.unwrap_or_default()
    };
    let names = names.iter().enumerate();
    names
        .map(|(at, (name, _))| difference(name.clone(), values(&a, at), values(&b, at)))
        .collect()
}

/// The figures that are compared.
fn figures(reports: &[Report]) -> Figures {
    let mut figures = Figures::new();
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
    let percent = match (a_median, b_median) {
        (Some(a), Some(b)) if a > 0.0 => Some((b / a - 1.0) * 100.0),
        _ => None,
    };
    let range = |sorted: &[f64]| Some([*sorted.first()?, *sorted.last()?]);
    Difference {
        figure,
        a: a_median,
        b: b_median,
        percent,
        a_range: range(&a),
        b_range: range(&b),
    }
}

/// The median of `values`, which are sorted afterwards; `None` if there are no values.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        Some(values[middle])
    } else {
        let below = values.get(middle.checked_sub(1)?)?;
        Some(below.midpoint(values[middle]))
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A: {}\nB: {}", self.a, self.b)?;
        let [a_runs, b_runs] = self.measured;
        if a_runs == b_runs {
            writeln!(f, "medians of {a_runs} runs each, in turn")?;
        } else {
            writeln!(
                f,
                "medians of {a_runs} runs of A and {b_runs} of B, in turn"
            )?;
        }
        let mut table = plain_table(&["", "A", "B", "B to A", "A from-to", "B from-to"]);
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        for difference in &self.differences {
            let figure = |value: f64| match value {
                value if value < 1000.0 => format!("{value:.2}"),
                value if value < 1e6 => thousands(value),
                value => format!("{value:.0}"),
            };
            let range = |[low, high]: [f64; 2]| format!("{}-{}", figure(low), figure(high));
            table.add_row([
                difference.figure.clone(),
                or_dash(difference.a.map(figure)),
                or_dash(difference.b.map(figure)),
                or_dash(difference.percent.map(|percent| format!("{percent:+.1} %"))),
                or_dash(difference.a_range.map(range)),
                or_dash(difference.b_range.map(range)),
            ]);
        }
        write!(f, "{table}")?;
        if let Some(failure) = &self.failure {
            write!(f, "\nfailed: {failure}; these are the figures until then")?;
        }
        if self.interrupted {
            write!(f, "\ninterrupted: these are the figures so far")?;
        }
        Ok(())
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
            measured: [3, 3],
            interrupted: false,
            failure: None,
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
        let [a, b] = [it.a, it.b].map(|median| median.expect("there are runs"));
        assert!((a - 100.0).abs() < 1e-9 && (b - 125.0).abs() < 1e-9);
        assert!((it.percent.expect("a is not 0") - 25.0).abs() < 1e-9);
        assert_eq!(format!("{:?}", it.a_range), "Some([90.0, 110.0])");
        let it = difference("IOPS".to_owned(), vec![90.0], Vec::new());
        assert_eq!((it.b, it.percent, it.b_range), (None, None, None));
        let it = difference("daemon".to_owned(), vec![0.0], vec![1.0]);
        assert_eq!(it.percent, None);
    }
}
