//! `ramport top`: the daemon at work, on a screen or, with `--once`, as a table or a document.

mod rows;
mod screen;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use control::{Client, ClientError, TopView};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Column, TopArgs};
use crate::failure::Failure;
use crate::form::Form;
use crate::mistake::{Mistake, SystemFailure};
use crate::output;
use rows::summary;
use screen::Screen;

/// How long to wait after an interval for its figures.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long to wait before asking again a daemon that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// How long the screen may take to end after a signal.
const END_WAIT: Duration = Duration::from_secs(1);
/// How long to wait for a key before looking for new figures.
const KEY_WAIT: Duration = Duration::from_millis(50);

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
    if form == Form::Json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Mistake::NoTerminal.into());
    }
    watch(client, path, args)
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

/// Input of the screen.
enum Update {
    Figures(Box<TopView>),
    /// Figures stop coming: the reason, if it is an error.
    Lost(Option<ClientError>),
}

/// Restores the terminal, however the scope is left. The hook of [`ratatui::try_init`] does so
/// before the message of a panic is printed.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn watch(client: Client, path: String, args: &TopArgs) -> Result<(), Failure> {
    let (tell, told) = sync_channel(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    thread::Builder::new()
        .name("figures".to_owned())
        .spawn(move || follow(&client, &path, &tell))?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || end_on_signal(&end))?;
    let mut screen = Screen::new(args.view, args.sort, args.filter.clone());
    on_terminal(|terminal| show(terminal, &mut screen, &told, &is_over))
}

/// Runs `then` with the terminal as its screen.
fn on_terminal(
    then: impl FnOnce(&mut DefaultTerminal) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let terminal = ratatui::try_init();
    let _restore = Restore;
    then(&mut terminal?)
}

/// Passes figures on until the screen is gone.
fn follow(client: &Client, path: &str, tell: &SyncSender<Update>) {
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

/// SIGTERM, SIGHUP and the loss of the terminal end the screen as `q` does, so that the terminal is
/// restored, and then the program. If the terminal is gone, crossterm reads from it for ever, and
/// the program ends without the screen. If the signals cannot be caught, they keep their meaning.
fn end_on_signal(is_over: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        let (terminate, hangup) = (SignalKind::terminate(), SignalKind::hangup());
        let (Ok(mut terminated), Ok(mut hung_up)) = (signal(terminate), signal(hangup)) else {
            return;
        };
        // Shells that ignore SIGHUP keep it from their programs.
        let closed = tokio::task::spawn_blocking(await_hangup);
        let kind = tokio::select! {
            _ = terminated.recv() => terminate,
            _ = hung_up.recv() => hangup,
            _ = closed => hangup,
        };
        is_over.store(true, Ordering::Relaxed);
        tokio::time::sleep(END_WAIT).await;
        ratatui::restore();
        // The exit status of a program that a signal ended, as shells count.
        std::process::exit(128 + kind.as_raw_value());
    });
}

/// Waits until the terminal is gone.
fn await_hangup() {
    let screen = io::stdout();
    // A hangup is reported whatever events are asked for.
    let mut polled = [PollFd::new(&screen, PollFlags::empty())];
    while let Err(Errno::INTR) = poll(&mut polled, None) {}
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    told: &Receiver<Update>,
    is_over: &AtomicBool,
) -> Result<(), Failure> {
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        // Drawing is worth it only after a change.
        while !event::poll(KEY_WAIT)? {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            match told.try_recv() {
                Ok(Update::Figures(document)) => screen.update(*document),
                // A daemon that never answered is a mistake of the command line.
                Ok(Update::Lost(Some(error))) if screen.is_empty() => return Err(error.into()),
                Ok(Update::Lost(reason)) => {
                    let ended = || SystemFailure::FiguresEnded.to_string();
                    screen.lose(reason.map_or_else(ended, |error| error.to_string()));
                }
                Err(TryRecvError::Empty) => continue,
                // The thread panicked, which has restored the terminal.
                Err(TryRecvError::Disconnected) => return Err(SystemFailure::FiguresEnded.into()),
            }
            terminal.draw(|frame| screen.draw(frame))?;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && screen.handle_key(key).is_break()
        {
            return Ok(());
        }
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
