//! `ramport bench`: arguments to printed report.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{Args, BenchError, Part, Stop, compare, consent, run, run_suite, svg, verify};

/// The outcome of a finished command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every I/O succeeded, every block held what it should (exit status 0).
    Good,
    /// Something failed, which the report names (exit status 1).
    Bad,
    /// A [`Stop`] was requested; the report has the figures so far (exit status 130).
    Interrupted,
}

/// Carries the command out and prints its report. `begin` is called when questions are answered and
/// measuring begins, with what ends it early. Exit status: 0 for [`Verdict::Good`], 130 for
/// [`Verdict::Interrupted`] and [`BenchError::Interrupted`], 2 for errors that [are a matter of
/// usage](BenchError::is_usage), 1 for everything else.
pub fn command(args: &Args, begin: impl FnOnce(&Stop)) -> Result<Verdict, BenchError> {
    let bar = progress_bar();
    let carried_out = agree(args, &bar, &asked).and_then(|()| {
        let stop = Stop::default();
        begin(&stop);
        let (verdict, text) = carry_out(args, &bar, &stop)?;
        Ok(if stop.is_requested() {
            (Verdict::Interrupted, text)
        } else {
            (verdict, text)
        })
    });
    bar.finish_and_clear();
    let (verdict, text) = carried_out?;
    say(&text);
    Ok(verdict)
}

/// Finds out whether the data that `args` would change may be changed; `ask` asks that.
fn agree(args: &Args, bar: &ProgressBar, ask: &dyn Fn(&str) -> bool) -> Result<(), BenchError> {
    let sources = args.compare.as_deref().unwrap_or(&args.sources);
    let plan = args.plan(sources, &Stop::default());
    let plan = match args.suite {
        Some(kind) => kind.plan_of_effects(&plan, args.shapes()),
        None => plan,
    };
    consent::obtain(&plan, |change| args.write || bar.suspend(|| ask(change)))
}

/// Measures until `stop` is requested; returns the verdict and the report's text.
fn carry_out(args: &Args, bar: &ProgressBar, stop: &Stop) -> Result<(Verdict, String), BenchError> {
    let plan = |sources| args.plan(sources, stop);
    if let Some([a, b]) = args.compare.as_deref() {
        let (a, b) = (std::slice::from_ref(a), std::slice::from_ref(b));
        let comparison = compare(&plan(a), &plan(b), args.runs, bar)?;
        let failures = comparison.errors + u64::from(comparison.failure.is_some());
        return Ok((verdict(failures), text(args, &comparison)));
    }
    let plan = plan(&args.sources);
    if let Some(kind) = args.suite {
        let report = run_suite(&plan, kind, args.shapes(), bar)?;
        let failures = report.errors() + u64::from(report.failure.is_some());
        return Ok((verdict(failures), text(args, &report)));
    }
    if args.verify {
        let report = verify(&plan, bar)?;
        let failures = report.errors + report.differing_blocks;
        return Ok((verdict(failures), text(args, &report)));
    }
    let mut report = run(&plan, bar)?;
    let mut failures = report.failures();
    if let Some(path) = &args.svg
        && let Err(error) = svg::draw(&report, path)
    {
        // The figures are not lost with the picture.
        report.notes.push(error.to_string());
        failures += 1;
    }
    let text = if args.part {
        serde_json::to_string(&Part::of(&report)).expect("a part has only plain figures")
    } else {
        text(args, &report)
    };
    Ok((verdict(failures), text))
}

fn verdict(failures: u64) -> Verdict {
    if failures == 0 {
        Verdict::Good
    } else {
        Verdict::Bad
    }
}

fn text<R: Serialize + Display>(args: &Args, report: &R) -> String {
    if args.json {
        serde_json::to_string_pretty(report).expect("a report has only plain figures")
    } else {
        report.to_string()
    }
}

/// Asks on the terminal whether the run may do what `change` says.
fn asked(change: &str) -> bool {
    ask(&format!("This run {change}"))
}

/// Says what is about to be done, and asks on the terminal whether to do it. The answer is no if
/// there is no terminal.
pub fn ask(what: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    eprint!("{what}. Continue? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")
}

/// Prints to standard output. If the reader has closed it (`| head`), that is not an error.
fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A bar on the terminal; hidden where standard error is none.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent}% {msg}")
        .expect("the template is well-formed");
    let bar = ProgressBar::no_length().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

#[cfg(test)]
mod tests;
