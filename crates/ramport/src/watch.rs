//! `ramport watch`: what each node of the cluster does, and all of them together; without a
//! cluster, this machine.

mod figures;
mod screen;

use std::ops::ControlFlow;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use control::{Client, ClientError, WatchView};

use crate::cli::WatchArgs;
use crate::failure::Failure;
use crate::form::Form;
use crate::live::{self, Update};
use crate::mistake::Mistake;
use crate::output;
use figures::{Document, NUMBERS, TITLES};
use screen::WatchScreen;

/// The route that has the counters of all nodes.
const PATH: &str = "/v1/watch";

/// Shows figures as they come, or those of one interval.
pub(crate) fn run(client: Client, form: Form, args: &WatchArgs) -> Result<(), Failure> {
    let interval = args.interval.length();
    if !args.once && form == Form::Text {
        if !live::has_terminal() {
            return Err(Mistake::NoTerminalForWatch.into());
        }
        return live::run(WatchScreen::default(), move |tell| {
            follow(&client, interval, tell);
        });
    }
    let mut printed = Ok(());
    each(&client, interval, |document| {
        printed = print(&document, form, args);
        if args.once || printed.is_err() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    printed
}

fn print(document: &Document, form: Form, args: &WatchArgs) -> Result<(), Failure> {
    match form {
        Form::Json if args.once => output::json(document),
        Form::Json => {
            let line = serde_json::to_string(document).map_err(anyhow::Error::from)?;
            output::line(line)
        }
        Form::Text => {
            output::table(&TITLES, &NUMBERS, document.rows())?;
            for remark in document.remarks() {
                output::line(remark)?;
            }
            Ok(())
        }
    }
}

/// Passes the figures of each interval to `take`, until that breaks.
fn each(
    client: &Client,
    interval: Duration,
    mut take: impl FnMut(Document) -> ControlFlow<()>,
) -> Result<(), ClientError> {
    let mut due = Instant::now() + interval;
    let mut before: WatchView = client.get(PATH)?;
    loop {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let now: WatchView = client.get(PATH)?;
        if take(Document::between(&before, &now)).is_break() {
            return Ok(());
        }
        before = now;
        // An answer that took longer than the interval is not made up for.
        due = (due + interval).max(Instant::now());
    }
}

/// Passes figures on until the screen is gone.
fn follow(client: &Client, interval: Duration, tell: &SyncSender<Update<Document>>) {
    loop {
        let ended = each(client, interval, |document| {
            match tell.send(Update::Figures(Box::new(document))) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        if tell.send(Update::Lost(ended.err())).is_err() {
            return;
        }
        thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests;
