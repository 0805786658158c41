//! `ramport bench`: arguments to printed report.

use std::{
    fmt::Display,
    io::{self, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{Args, BenchError, compare, run, run_suite, svg, verify};

/// What a finished command says of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every I/O succeeded, every block held what it should (exit status 0).
    Good,
    /// Not so; the report has said what (exit status 1).
    Bad,
}

/// Carries the command out and prints its report. Exit status: 0 for [`Verdict::Good`], 2 for errors that
/// [are a matter of usage](BenchError::is_usage), 1 for everything else.
pub fn command(args: &Args) -> Result<Verdict, BenchError> {
    let bar = progress_bar();
    if let Some([a, b]) = args.compare.as_deref() {
        let (a, b) = (std::slice::from_ref(a), std::slice::from_ref(b));
        let comparison = compare(&args.plan(a)?, &args.plan(b)?, args.runs, &bar)?;
        print(args, &bar, &comparison);
        return Ok(verdict(comparison.errors));
    }
    let plan = args.plan(&args.sources)?;
    if let Some(kind) = args.suite {
        let report = run_suite(&plan, kind, &bar)?;
        print(args, &bar, &report);
        return Ok(verdict(report.errors()));
    }
    if args.verify {
        let report = verify(&plan, &bar)?;
        print(args, &bar, &report);
        return Ok(verdict(report.errors + report.differing_blocks));
    }
    let report = run(&plan, &bar)?;
    print(args, &bar, &report);
    if let Some(path) = &args.svg {
        svg::draw(&report, path)?;
    }
    Ok(verdict(report.errors))
}

fn verdict(failures: u64) -> Verdict {
    if failures == 0 {
        Verdict::Good
    } else {
        Verdict::Bad
    }
}

fn print<R: Serialize + Display>(args: &Args, bar: &ProgressBar, report: &R) {
    bar.finish_and_clear();
    if args.json {
        let text = serde_json::to_string_pretty(report).expect("a report has only plain figures");
        say(&text);
    } else {
        say(&report.to_string());
    }
}

/// Prints to standard output. A reader that has gone away (`| head`) has seen what it wanted.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A bar on the terminal; hidden where standard error is none.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {percent}% {msg}")
        .expect("the template is well-formed");
    let bar = ProgressBar::new(0).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
