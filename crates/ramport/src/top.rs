//! `ramport top`: the daemon at work, on a screen or, with `--once`, as a table or a document.

mod rows;
mod screen;

use std::ops::ControlFlow;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use control::{Client, TopView};

use crate::cli::{Column, TopArgs};
use crate::failure::Failure;
use crate::form::Form;
use crate::live::{self, Update};
use crate::mistake::{Mistake, SystemFailure};
use crate::output;
use rows::summary;
use screen::Screen;

/// How long to wait after an interval for its figures.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long to wait before asking again a daemon that does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Shows figures as they come, or those of one interval.
pub(crate) fn run(client: Client, form: Form, args: &TopArgs) -> Result<(), Failure> {
    if !args.view.columns().contains(&args.sort) {
        return Err(Mistake::NoSuchColumn {
            view: word(&args.view),
            column: word(&args.sort),
            columns: words(&args.view.columns()),
        }
        .into());
    }
    let client = client.with_time_limit(args.interval.length() + ANSWER_TIME);
    let path = format!("/v1/top?interval={}", args.interval);
    if args.once {
        return once(&client, &path, form, args);
    }
    if form == Form::Json || !live::has_terminal() {
        return Err(Mistake::NoTerminal.into());
    }
    let screen = Screen::new(args.view, args.sort, args.filter.clone());
    live::run(screen, move |tell| follow(&client, &path, tell))
}

/// The figures of one interval.
fn once(client: &Client, path: &str, form: Form, args: &TopArgs) -> Result<(), Failure> {
    let mut document = None;
    client.follow(path, |view: TopView| {
        document = Some(view);
        ControlFlow::Break(())
    })?;
    let document = document.ok_or(SystemFailure::FiguresEnded)?;
    if form == Form::Json {
        return output::json(&document);
    }
    for line in summary(&document) {
        output::line(line)?;
    }
    output::line("")?;
    let columns = args.view.columns();
    let mut rows = args.view.rows(&document, &args.filter);
    args.sort.sort(&mut rows);
    let head: Vec<_> = columns.iter().map(|column| column.title()).collect();
    let numbers = columns.iter().filter(|column| column.width().is_some());
    let numbers: Vec<_> = numbers.map(|column| column.title()).collect();
    let rows = rows.iter().map(|row| {
        let cells = columns.iter().map(|column| column.text(row));
        cells.collect()
    });
    output::table(&head, &numbers, rows)
}

/// Passes figures on until the screen is gone.
fn follow(client: &Client, path: &str, tell: &SyncSender<Update<TopView>>) {
    loop {
        let ended = client.follow(path, |view| {
            match tell.send(Update::Figures(Box::new(view))) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        if tell.send(Update::Lost(ended.err())).is_err() {
            return;
        }
        thread::sleep(RETRY);
    }
}

/// A value of an option as it is written.
fn word(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn words(values: &[Column]) -> String {
    let words: Vec<_> = values.iter().map(word).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests;
