//! `ramport volume save`, `restore`, `set` and `acknowledge`.

use std::path::absolute;
use std::time::Duration;

use control::{
    Client, Damage, LastSaveView, RestoreRequest, RestoredView, SaveRequest, SaveView, SavedView,
    VolumePatch, VolumeView,
};

use super::{change, get, path, with_progress};
use crate::cli::{AcknowledgeArgs, RestoreArgs, SaveArgs, SaveVerb, VolumeSetArgs};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};
use crate::units::{age, bytes};
use crate::verbs::{Daemon, query};

pub(super) fn run(daemon: &Daemon, verb: &SaveVerb) -> Result<(), Failure> {
    match verb {
        SaveVerb::Set(args) => set(daemon, args),
        SaveVerb::Save(args) => save(daemon, args),
        SaveVerb::Restore(args) => restore(daemon, args),
        SaveVerb::Acknowledge(args) => acknowledge(daemon, args),
    }
}

fn set(daemon: &Daemon, args: &VolumeSetArgs) -> Result<(), Failure> {
    let save = if args.no_save {
        Some(None)
    } else if args.saving.is_empty() {
        None
    } else {
        let before = get(daemon, &args.name)?.save;
        let before = before.as_ref().map(SaveView::saving);
        let Some(saving) = args.saving.saving(before.as_ref()) else {
            let name = args.name.clone();
            return Err(Mistake::NoSaveFolder { name }.into());
        };
        Some(Some(saving))
    };
    let patch = VolumePatch {
        size: args.size,
        save,
        ..VolumePatch::default()
    };
    change(daemon, &args.name, &patch, args.force)
}

fn save(daemon: &Daemon, args: &SaveArgs) -> Result<(), Failure> {
    let request = SaveRequest {
        file: args.file.as_deref().map(on_daemon),
    };
    let path = format!("{}/save{}", path(&args.name), query(args.force));
    let post = |client: &Client| client.post(&path, &request);
    let saved: SavedView = with_progress(daemon, &args.name, || post(&daemon.client))?;
    if daemon.is_json() {
        return output::json(&saved);
    }
    let SavedView { file, save } = saved;
    output::line(format_args!(
        "volume {} is saved to {file}: {} of data in {}, {:.1?}",
        args.name,
        bytes(save.held_bytes),
        bytes(save.file_bytes),
        Duration::from_millis(save.duration_ms.unwrap_or_default())
    ))
}

fn restore(daemon: &Daemon, args: &RestoreArgs) -> Result<(), Failure> {
    let request = RestoreRequest {
        file: args.file.as_deref().map(on_daemon),
        zero_damaged: args.zero_damaged,
    };
    let path = format!("{}/restore{}", path(&args.name), query(args.force));
    let post = |client: &Client| client.post(&path, &request);
    let restored: RestoredView = with_progress(daemon, &args.name, || post(&daemon.client))?;
    if daemon.is_json() {
        return output::json(&restored);
    }
    output::line(format_args!(
        "volume {} is what it was {} ago: {} of data from {}",
        args.name,
        age(restored.save.moment_unix_s),
        bytes(restored.save.held_bytes),
        restored.file
    ))?;
    let damage = Damage::from(&restored.damage);
    if damage.is_empty() {
        return Ok(());
    }
    let text = format!("{damage} were damaged and are zeros");
    output::line(paint(TextRole::Warning, &text))
}

/// The path of a file as the daemon needs it, which refuses an empty one.
pub(super) fn on_daemon(file: &str) -> String {
    absolute(file).unwrap_or_default().display().to_string()
}

/// Acknowledges the loss of one volume's contents, or of all.
fn acknowledge(daemon: &Daemon, args: &AcknowledgeArgs) -> Result<(), Failure> {
    let Some(name) = &args.name else {
        let names: Vec<String> = daemon.client.post("/v1/acknowledge", &())?;
        if daemon.is_json() {
            return output::json(&names);
        }
        return match names.as_slice() {
            [] => output::line("no volume has lost its contents"),
            names => output::line(format_args!("served empty now: {}", names.join(" "))),
        };
    };
    let view: VolumeView = daemon
        .client
        .post(&format!("{}/acknowledge", path(name)), &())?;
    if daemon.is_json() {
        return output::json(&view);
    }
    output::line(format_args!("volume {name} is served empty now"))
}

/// When and where a volume is saved, in words.
pub(super) fn saving(save: Option<&SaveView>) -> String {
    let Some(save) = save else {
        return "on request".to_owned();
    };
    let every = save.every.map(|every| format!("every {every}, "));
    let after_crash = match save.after_crash {
        control::AfterCrash::Offline => "offline",
        control::AfterCrash::Restore => "restored",
    };
    format!(
        "{}at shutdown and on request to {}; {after_crash} after a crash",
        every.unwrap_or_default(),
        save.file
    )
}

/// The last save, in words.
pub(super) fn last_save(save: &SaveView) -> String {
    let Some(last) = &save.last else {
        return "none since the daemon started".to_owned();
    };
    let LastSaveView {
        moment_unix_s,
        duration_ms,
        file_bytes,
        increments,
        held_bytes,
        sequence,
    } = last;
    let increments = match increments {
        0 => String::new(),
        count => format!(" with {count} increments"),
    };
    let took = duration_ms.map(|ms| format!(", took {:.1?}", Duration::from_millis(ms)));
    format!(
        "number {sequence}, {} ago: {} of data in {}{increments}{}",
        age(*moment_unix_s),
        bytes(*held_bytes),
        bytes(*file_bytes),
        took.unwrap_or_default()
    )
}
