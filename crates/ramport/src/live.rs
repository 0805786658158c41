//! Verbs that draw figures on a terminal until a key or a signal ends them.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use control::ClientError;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::mistake::SystemFailure;

/// How long the screen may take to end after a signal.
const END_WAIT: Duration = Duration::from_secs(1);
/// How long to wait for a key before looking for new figures.
const KEY_WAIT: Duration = Duration::from_millis(50);

/// What is drawn. It knows no terminal.
pub(crate) trait LiveScreen {
    /// What it shows.
    type Document: Send + 'static;

    /// Draws itself.
    fn draw(&mut self, frame: &mut Frame<'_>);
    /// Whether anything was shown yet.
    fn is_empty(&self) -> bool;
    /// Shows new figures.
    fn update(&mut self, document: Self::Document);
    /// Says why there are no new figures.
    fn lose(&mut self, reason: String);
    /// Handles a key; breaks if the program is to end.
    fn handle_key(&mut self, key: KeyEvent) -> ControlFlow<()>;
}

/// Input of the screen.
pub(crate) enum Update<D> {
    Figures(Box<D>),
    /// Figures stop coming: the reason, if it is an error.
    Lost(Option<ClientError>),
}

/// Whether there is a terminal to draw on and to read keys from.
pub(crate) fn has_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Shows what `follow` sends, which runs on a thread of its own until its updates are no longer
/// taken.
pub(crate) fn run<S: LiveScreen>(
    mut screen: S,
    follow: impl FnOnce(&SyncSender<Update<S::Document>>) + Send + 'static,
) -> Result<(), Failure> {
    let (tell, told) = sync_channel(1);
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    thread::Builder::new()
        .name("figures".to_owned())
        .spawn(move || follow(&tell))?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || end_on_signal(&end))?;
    on_terminal(|terminal| show(terminal, &mut screen, &told, &is_over))
}

/// Restores the terminal, however the scope is left. The hook of [`ratatui::try_init`] does so
/// before the message of a panic is printed.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Runs `then` with the terminal as its screen.
pub(crate) fn on_terminal(
    then: impl FnOnce(&mut DefaultTerminal) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let terminal = ratatui::try_init();
    let _restore = Restore;
    then(&mut terminal?)
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

fn show<S: LiveScreen>(
    terminal: &mut DefaultTerminal,
    screen: &mut S,
    told: &Receiver<Update<S::Document>>,
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
