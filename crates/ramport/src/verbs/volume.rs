//! `ramport volume`.

mod copy;
mod filter;
mod mirror;
mod replicas;
mod save;
mod snapshot;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use control::{
    BlockLen, CacheView, ClientError, Contents, Damage, Filters, Identity, KindFields, PathView,
    Size, Task, Text, Volume, VolumeKind, VolumePatch, VolumeState, VolumeView, path_part,
    readable,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::words::{noun, statistics};
use super::{Daemon, query};
use crate::cli::{AddMemberArgs, RemoveArgs, ResizeByArgs, VolumeCreateArgs, VolumeVerb};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};
use crate::units::{age, bytes};

/// How long an action may take before its progress is shown, and how often progress is queried.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

pub(super) fn run(daemon: &Daemon, verb: VolumeVerb) -> Result<(), Failure> {
    match verb {
        VolumeVerb::Create(args) => create(daemon, &args),
        VolumeVerb::List => list(daemon),
        VolumeVerb::Show(args) => show(daemon, &get(daemon, &args.name)?),
        VolumeVerb::Resize(args) => resize(daemon, &args.name, args.size, args.force),
        VolumeVerb::Grow(args) => {
            let size = get(daemon, &args.name)?
                .size_bytes
                .saturating_add(args.by.0);
            resize(daemon, &args.name, Size(size), args.force)
        }
        VolumeVerb::Shrink(args) => shrink(daemon, &args),
        VolumeVerb::Erase(args) => {
            let path = format!("{}/erase{}", path(&args.name), query(args.force));
            let _: VolumeView =
                with_progress(daemon, &args.name, || daemon.client.post(&path, &()))?;
            daemon.say(format_args!("volume {} is erased", args.name))
        }
        VolumeVerb::Lock(args) => lock(daemon, &args.name, true),
        VolumeVerb::Unlock(args) => lock(daemon, &args.name, false),
        VolumeVerb::Saves(verb) => save::run(daemon, &verb),
        VolumeVerb::AddMember(AddMemberArgs { name, member }) => {
            let path = format!("{}/members/{}", path(&name), path_part(&member));
            show(daemon, &daemon.client.post(&path, &())?)
        }
        VolumeVerb::Cache(args) => {
            let patch = VolumePatch {
                cache_mode: args.changes.mode.map(Text),
                cache_size: args.changes.size,
                sequential_bypass: args.changes.sequential_bypass,
                ..VolumePatch::default()
            };
            change(daemon, &args.name, &patch, false)
        }
        VolumeVerb::Mirror(args) => mirror::change(daemon, &args),
        VolumeVerb::Scrub(args) => mirror::scrub(daemon, &args),
        VolumeVerb::Snapshots(verb) => snapshot::run(daemon, &verb),
        VolumeVerb::Copy(args) => copy::run(daemon, &args),
        VolumeVerb::Filter(verb) => filter::run(daemon, &verb),
        VolumeVerb::Remove(args) => remove(daemon, &args),
    }
}

pub(super) fn path(name: &str) -> String {
    format!("/v1/volumes/{}", path_part(name))
}

pub(super) fn get(daemon: &Daemon, name: &str) -> Result<VolumeView, Failure> {
    Ok(daemon.client.get(&path(name))?)
}

/// Sends a patch and shows the volume as it is then.
pub(super) fn change(
    daemon: &Daemon,
    name: &str,
    patch: &VolumePatch,
    force: bool,
) -> Result<(), Failure> {
    let path = format!("{}{}", path(name), query(force));
    let view = with_progress(daemon, name, || daemon.client.patch(&path, patch))?;
    show(daemon, &view)
}

fn create(daemon: &Daemon, args: &VolumeCreateArgs) -> Result<(), Failure> {
    let save = args.saving.saving(None);
    if save.is_none() && !args.saving.is_empty() {
        let name = args.name.clone();
        return Err(Mistake::NoSaveFolder { name }.into());
    }
    let kind = args.kind().map_err(Failure::mistake)?;
    let block_size = match (args.block_size, kind.parents().first()) {
        (Some(block_size), _) => block_size.0,
        (None, Some(member)) => get(daemon, member)?.block_size,
        (None, None) => BlockLen::default().into(),
    };
    let definition = Volume {
        size: args.size.unwrap_or_default(),
        block_size: BlockLen::try_from(block_size).map_err(Failure::mistake)?,
        kind: KindFields(kind),
        identity: Identity::from(&args.identity),
        read_only: args.read_only,
        filters: Filters::default(),
        save,
    };
    let mut path = format!("{}{}", path(&args.name), query(args.members.force));
    if let Some(file) = &args.from {
        let file = save::on_daemon(file);
        path = format!("{path}?from={}", path_part(&file));
    }
    let view = with_progress(daemon, &args.name, || {
        daemon.client.post(&path, &definition)
    })?;
    show(daemon, &view)
}

fn remove(daemon: &Daemon, args: &RemoveArgs) -> Result<(), Failure> {
    let volume = get(daemon, &args.name)?;
    let path = format!("{}{}", path(&args.name), query(args.force));
    daemon.client.delete(&path)?;
    match volume.kind.0 {
        VolumeKind::File { path, .. } => daemon.say(format_args!(
            "volume {} is removed; {} stays with its contents",
            args.name,
            path.display()
        )),
        VolumeKind::Remote { urls, .. } => daemon.say(format_args!(
            "volume {} is removed; the disk at {} stays with its contents",
            args.name,
            urls.join(" ")
        )),
        VolumeKind::Replicated { .. } => daemon.say(format_args!(
            "volume {} is removed from all nodes of the cluster",
            args.name
        )),
        kind if kind.holds_members() => daemon.say(format_args!(
            "volume {} is removed; its members stay with their contents: {}",
            args.name,
            kind.parents().join(", ")
        )),
        _ => daemon.say(format_args!("volume {} is removed", args.name)),
    }
}

fn resize(daemon: &Daemon, name: &str, size: Size, force: bool) -> Result<(), Failure> {
    let patch = VolumePatch {
        size: Some(size),
        ..VolumePatch::default()
    };
    change(daemon, name, &patch, force)
}

fn shrink(daemon: &Daemon, args: &ResizeByArgs) -> Result<(), Failure> {
    let size_bytes = get(daemon, &args.name)?.size_bytes;
    match size_bytes.checked_sub(args.by.0) {
        Some(left) => resize(daemon, &args.name, Size(left), args.force),
        None => Err(Mistake::ShrinkBeyondSize {
            name: args.name.clone(),
            size_bytes,
            by_bytes: args.by.0,
        }
        .into()),
    }
}

fn lock(daemon: &Daemon, name: &str, read_only: bool) -> Result<(), Failure> {
    let patch = VolumePatch {
        read_only: Some(read_only),
        ..VolumePatch::default()
    };
    change(daemon, name, &patch, false)
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let volumes: Vec<VolumeView> = daemon.client.get("/v1/volumes")?;
    if daemon.is_json() {
        return output::json(&volumes);
    }
    if volumes.is_empty() {
        return output::line("no volumes; create one with `ramport volume create NAME --size 1G`");
    }
    list_of(&volumes)?;
    let capacity: control::CapacityView = daemon.client.get("/v1/capacity")?;
    output::line(format_args!(
        "{} of {} budget used",
        bytes(capacity.used_bytes),
        bytes(capacity.budget_bytes)
    ))
}

/// A line for each of `volumes`, with the targets and volumes that use it.
fn list_of(volumes: &[VolumeView]) -> Result<(), Failure> {
    let rows = volumes.iter().map(|volume| {
        let places = volume.attachments.iter();
        let users: Vec<_> = places
            .map(|place| format!("{}:{}", place.target, place.nsid))
            .chain(volume.children.iter().cloned())
            .collect();
        vec![
            volume.name.clone(),
            bytes(volume.size_bytes),
            bytes(volume.used_bytes),
            bytes(volume.block_size),
            remarks(volume),
            users.join(" "),
        ]
    });
    let head = ["NAME", "SIZE", "USED", "BLOCK", "STATE", "USED BY"];
    output::table(&head, &["SIZE", "USED", "BLOCK"], rows)
}

/// The kind and state of a volume, in words.
pub(super) fn remarks(volume: &VolumeView) -> String {
    let mut words = vec![volume.kind.0.to_string()];
    if matches!(volume.kind.0, VolumeKind::Snapshot { .. }) {
        words.push(format!("{} old", age(volume.created_unix_s)));
    }
    if volume.read_only {
        words.push("read-only".to_owned());
    }
    if !volume.filters.is_empty() {
        words.push("filtered".to_owned());
    }
    if !volume.paths.is_empty() {
        let up = volume.paths.iter().filter(|path| path.is_up).count();
        words.push(format!("{up} of {} paths up", volume.paths.len()));
    }
    words.extend(volume.replication.as_ref().and_then(replicas::remark));
    if volume.state == VolumeState::Offline {
        words.push("offline".to_owned());
    }
    match volume.contents {
        Contents::Present => {}
        Contents::Lost => words.push("contents lost".to_owned()),
        Contents::Restoring => words.push("being restored".to_owned()),
        Contents::Damaged => words.push("damaged".to_owned()),
    }
    if volume
        .save
        .as_ref()
        .is_some_and(|save| save.failure.is_some())
    {
        words.push("not saved".to_owned());
    }
    words.join(", ")
}

fn show(daemon: &Daemon, volume: &VolumeView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(volume);
    }
    let places = volume.attachments.iter();
    let places: Vec<_> = places
        .map(|place| format!("{} as {} {}", place.target, noun(&place.target), place.nsid))
        .collect();
    let mut fields = vec![
        ("volume", paint(TextRole::Name, &volume.name)),
        (
            "size",
            format!("{} ({} bytes)", bytes(volume.size_bytes), volume.size_bytes),
        ),
        ("block size", bytes(volume.block_size)),
        ("state", remarks(volume)),
        ("used", bytes(volume.used_bytes)),
        ("needed by", needed_by(volume)),
        ("filters", readable(&volume.filters)),
    ];
    if !volume.kind.0.outlives_program() {
        fields.push(("saved", save::saving(volume.save.as_ref())));
    }
    fields.extend([
        (
            "attached",
            if places.is_empty() {
                "nowhere".to_owned()
            } else {
                places.join("; ")
            },
        ),
        ("identity", identity(&volume.identity)),
    ]);
    fields.extend(paths_in_words(volume));
    if let Some(save) = &volume.save {
        fields.push(("last save", save::last_save(save)));
    }
    fields.extend(volume.attachments.iter().map(|place| {
        let seen = readable(&place.identifiers);
        ("seen as", format!("{}: {seen}", place.target))
    }));
    fields.extend([
        ("reads", statistics(&volume.statistics.read)),
        ("writes", statistics(&volume.statistics.write)),
    ]);
    fields.extend(volume.cache.as_ref().into_iter().flat_map(cache_fields));
    fields.extend(volume.mirror.as_ref().into_iter().flat_map(mirror::fields));
    fields.extend(
        volume
            .replication
            .as_ref()
            .into_iter()
            .flat_map(replicas::fields),
    );
    output::fields(&fields)?;
    warn(volume)
}

/// What hosts or saves of a volume suffer from.
fn warn(volume: &VolumeView) -> Result<(), Failure> {
    if let Some(problem) = &volume.problem {
        let text = format!("Commands of hosts fail: {problem}.");
        output::line(paint(TextRole::Warning, &text))?;
    }
    if let Some(damage) = &volume.damage {
        let text = format!(
            "Reads of {} fail, since the save that the volume was restored from is damaged there. Until they are written, or made zeros with `ramport volume acknowledge {}`, the volume is not saved, also not when the daemon stops.",
            Damage::from(damage),
            volume.name
        );
        output::line(paint(TextRole::Warning, &text))?;
    }
    let failure = volume.save.as_ref().and_then(|save| save.failure.as_ref());
    if let Some(failure) = failure {
        output::line(paint(TextRole::Warning, failure))?;
    }
    if volume.contents == Contents::Lost {
        let text = match volume.state {
            VolumeState::Offline => {
                "The daemon was restarted, so what was written is gone; commands of hosts fail until `ramport volume restore` or `acknowledge`."
            }
            VolumeState::Online => {
                "The daemon was restarted, so what was written is gone; `ramport volume acknowledge` ends this remark."
            }
        };
        output::line(paint(TextRole::Warning, text))?;
    }
    Ok(())
}

/// The ways to a disk on another machine, in words.
fn paths_in_words(volume: &VolumeView) -> impl Iterator<Item = (&'static str, String)> {
    volume
        .paths
        .iter()
        .map(|path| ("path", path_in_words(path)))
}

fn path_in_words(path: &PathView) -> String {
    let state = match (path.is_up, &path.problem) {
        (true, _) => "up".to_owned(),
        (false, Some(problem)) => format!("down: {problem}"),
        (false, None) => "connecting".to_owned(),
    };
    format!(
        "{}, {state}; {} connects, {} losses, {} errors",
        path.url, path.connects, path.losses, path.errors
    )
}

/// What a cache has done, in words.
fn cache_fields(of: &CacheView) -> [(&'static str, String); 5] {
    let hits = |hits, partial, misses, bypassed| {
        format!("{hits} hits, {partial} partial, {misses} misses; {bypassed} bypassed")
    };
    [
        (
            "cached",
            format!(
                "{}, {} of it dirty",
                bytes(of.resident_bytes),
                bytes(of.dirty_bytes)
            ),
        ),
        (
            "cache reads",
            hits(
                of.read_hits,
                of.read_partial_hits,
                of.read_misses,
                of.read_bypassed,
            ),
        ),
        (
            "cache writes",
            hits(
                of.write_hits,
                of.write_partial_hits,
                of.write_misses,
                of.write_bypassed,
            ),
        ),
        (
            "cache blocks",
            format!(
                "{} evicted, {} written back, {} failures",
                of.evictions, of.write_backs, of.failed_write_backs
            ),
        ),
        (
            "slower volume",
            format!(
                "{} read, {} written",
                bytes(of.slower_read_bytes),
                bytes(of.slower_written_bytes)
            ),
        ),
    ]
}

/// The volumes that are made of a volume, in words.
fn needed_by(volume: &VolumeView) -> String {
    if volume.children.is_empty() {
        return "nothing".to_owned();
    }
    volume.children.join(", ")
}

/// The identifiers that are set, in words.
fn identity(identity: &Identity) -> String {
    if identity.is_empty() {
        return "derived".to_owned();
    }
    readable(identity)
}

/// Sends a request that may take long, while another thread shows its progress.
fn with_progress<T>(
    daemon: &Daemon,
    name: &str,
    verb: impl FnOnce() -> Result<T, ClientError>,
) -> Result<T, Failure> {
    let client = daemon.another_client()?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let style = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}")
                .expect("the template is well-formed");
            let mut bar: Option<ProgressBar> = None;
            loop {
                thread::park_timeout(PROGRESS_INTERVAL);
                if is_done.load(Ordering::Acquire) {
                    break;
                }
                let tasks: Vec<Task> = client.get("/v1/tasks").unwrap_or_default();
                let Some(task) = tasks.into_iter().find(|task| task.volume == name) else {
                    continue;
                };
                let bar = bar.get_or_insert_with(|| {
                    ProgressBar::new(task.total_bytes)
                        .with_style(style.clone())
                        .with_message(task.action.clone())
                });
                bar.set_length(task.total_bytes);
                bar.set_position(task.done_bytes);
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        let answer = verb();
        is_done.store(true, Ordering::Release);
        watcher.thread().unpark();
        Ok(answer?)
    })
}
