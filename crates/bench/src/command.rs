//! `ramport bench`: arguments to printed report.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{Args, BenchError, compare, consent, run, run_suite, svg, verify};

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
    let carried_out = carry_out(args, &bar, &asked_to_overwrite);
    bar.finish_and_clear();
    let (verdict, text) = carried_out?;
    say(&text);
    Ok(verdict)
}

/// Measures; returns the verdict and the report's text. `ask` asks whether the data on the sources named may be
/// overwritten.
fn carry_out(
    args: &Args,
    bar: &ProgressBar,
    ask: &dyn Fn(&str) -> bool,
) -> Result<(Verdict, String), BenchError> {
    let may_overwrite = |names: &str| args.write || bar.suspend(|| ask(names));
    if let Some([a, b]) = args.compare.as_deref() {
        consent::obtain(&args.plan(&[a.clone(), b.clone()]), may_overwrite)?;
        let (a, b) = (std::slice::from_ref(a), std::slice::from_ref(b));
        let comparison = compare(&args.plan(a), &args.plan(b), args.runs, bar)?;
        return Ok((verdict(comparison.errors), text(args, &comparison)));
    }
    let plan = args.plan(&args.sources);
    if let Some(kind) = args.suite {
        let selection = args.rw.map(|pattern| pattern.kind);
        consent::obtain(&kind.plan_of_effects(&plan, selection), may_overwrite)?;
        let report = run_suite(&plan, kind, selection, bar)?;
        return Ok((verdict(report.errors()), text(args, &report)));
    }
    consent::obtain(&plan, may_overwrite)?;
    if args.verify {
        let report = verify(&plan, bar)?;
        let failures = report.errors + report.differing_blocks;
        return Ok((verdict(failures), text(args, &report)));
    }
    let report = run(&plan, bar)?;
    if let Some(path) = &args.svg {
        svg::draw(&report, path)?;
    }
    Ok((verdict(report.failures()), text(args, &report)))
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

/// Asks on the terminal whether the data on `names` may be overwritten. The answer is no if there is no terminal.
fn asked_to_overwrite(names: &str) -> bool {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return false;
    }
    eprint!("This run overwrites the data on {names}. Continue? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes")
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

#[cfg(test)]
mod tests;
