//! `ramport volume copy`: through the daemon if one of the places is a volume of it, otherwise in
//! this process.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bench::Stop;
use control::{ClientError, CopyFailure, CopyPlace, CopyView, Force, NewCopy, Task, copy_outside};
use indicatif::{ProgressBar, ProgressStyle};

use super::PROGRESS_INTERVAL;
use crate::cli::CopyArgs;
use crate::failure::Failure;
use crate::output;
use crate::units::bytes;
use crate::verbs::{Daemon, INTERRUPTED_STATUS, query, stop_on_interrupt};

pub(super) fn run(daemon: &Daemon, args: &CopyArgs) -> Result<(), Failure> {
    let new = NewCopy {
        source: as_the_daemon_sees(&args.source),
        destination: as_the_daemon_sees(&args.destination),
        verify: args.verify,
    };
    let places = new.places().map_err(Failure::mistake)?;
    let is_outside = |place: &CopyPlace| !matches!(place, CopyPlace::Volume(_));
    let copied = if places.iter().all(is_outside) {
        in_this_process(&new, &places, args.force)?
    } else {
        by_the_daemon(daemon, &new, args.force)?
    };
    if daemon.is_json() {
        return output::json(&copied);
    }
    let verified = if copied.verified {
        "; read back and compared"
    } else {
        ""
    };
    output::line(format_args!(
        "copied {} to {}: {}, of which {} are zeros that were not written{verified}",
        args.source,
        args.destination,
        bytes(copied.total_bytes),
        bytes(copied.zero_bytes),
    ))
}

/// A path from / on; names and URLs stay.
fn as_the_daemon_sees(text: &str) -> String {
    if text.contains("://") || !text.contains('/') {
        return text.to_owned();
    }
    let path = std::path::absolute(text);
    path.map_or_else(
        |_| text.to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}

fn in_this_process(
    new: &NewCopy,
    places: &[CopyPlace; 2],
    force: bool,
) -> Result<CopyView, Failure> {
    let stop = Stop::default();
    stop_on_interrupt(&stop);
    let attempt = |force| {
        let bar = progress_bar();
        let copied = copy_outside(
            &places[0],
            &places[1],
            new.options(force),
            &mut |progress| {
                bar.set_length(progress.total_bytes);
                bar.set_position(progress.done_bytes);
                if stop.is_requested() {
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            },
        );
        bar.finish_and_clear();
        copied
    };
    let copied = match attempt(force_of(force)) {
        Err(error @ CopyFailure::HoldsData(_)) if bench::ask(&error.to_string()) => {
            attempt(Force::Yes)
        }
        copied => copied,
    };
    if stop.is_requested()
        && let Err(error) = &copied
    {
        eprintln!("ramport: {error}");
        std::process::exit(INTERRUPTED_STATUS.into());
    }
    let error = match copied {
        Ok(copied) => return Ok(new.view(copied)),
        Err(error) => error,
    };
    match &error {
        CopyFailure::HoldsData(_) => Err(Failure::mistake(anyhow::anyhow!(
            "{error}; to do it anyway, use --force"
        ))),
        CopyFailure::Copy { error: cause, .. } if cause.is_failure() => {
            Err(Failure::Broken(error.into()))
        }
        _ => Err(Failure::mistake(error)),
    }
}

fn by_the_daemon(daemon: &Daemon, new: &NewCopy, force: bool) -> Result<CopyView, Failure> {
    let stop = Stop::default();
    stop_on_interrupt(&stop);
    let attempt = |force| {
        with_bar(daemon, new, &stop, || {
            let path = format!("/v1/copies{}", query(force));
            daemon.client.post(&path, new)
        })
    };
    match attempt(force)? {
        Err(ClientError::Refused {
            needs_force: true,
            ref message,
            ..
        }) if !force && bench::ask(message) => Ok(attempt(true)?.map_err(Failure::from)?),
        copied => Ok(copied?),
    }
}

/// Sends a request, while another thread shows its progress. If `stop` is requested, the process
/// ends, and the daemon stops the copy of a client that is gone.
fn with_bar<T>(
    daemon: &Daemon,
    new: &NewCopy,
    stop: &Stop,
    verb: impl FnOnce() -> Result<T, ClientError>,
) -> Result<Result<T, ClientError>, Failure> {
    let client = daemon.another_client()?;
    let is_done = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let bar = progress_bar();
            loop {
                thread::park_timeout(PROGRESS_INTERVAL);
                if is_done.load(Ordering::Acquire) {
                    break bar.finish_and_clear();
                }
                // Before the figures, so that these are not older.
                let is_stopped = stop.is_requested();
                let tasks: Vec<Task> = client.get("/v1/tasks").unwrap_or_default();
                let is_ours = |task: &Task| {
                    task.action == "copy"
                        && (task.volume == new.destination || task.volume == new.source)
                };
                if let Some(task) = tasks.into_iter().find(is_ours) {
                    bar.set_length(task.total_bytes);
                    bar.set_position(task.done_bytes);
                }
                if is_stopped {
                    let (done, total) = (bar.position(), bar.length().unwrap_or(0));
                    bar.finish_and_clear();
                    eprintln!(
                        "ramport: the copy was stopped after {} of {}; the destination holds a part of the source, and its old contents behind it",
                        bytes(done),
                        bytes(total)
                    );
                    std::process::exit(INTERRUPTED_STATUS.into());
                }
            }
        });
        let answer = verb();
        is_done.store(true, Ordering::Release);
        watcher.thread().unpark();
        answer
    }))
}

fn force_of(force: bool) -> Force {
    if force { Force::Yes } else { Force::No }
}

/// A bar on the terminal; hidden where standard error is none.
fn progress_bar() -> ProgressBar {
    let template = "copying {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::new(0).with_style(style)
}
