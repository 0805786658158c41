//! `ramport volume snapshot`, `clone` and `rollback`.

use control::{
    BlockLen, Filters, Identity, KindFields, NewSnapshots, Size, Text, Volume, VolumeKind,
    VolumeView, parse, path_part,
};

use super::{get, list_of, path, show, with_progress};
use crate::cli::{CloneArgs, RollbackArgs, SnapshotArgs, SnapshotVerb};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;
use crate::verbs::{Daemon, query};

pub(super) fn run(daemon: &Daemon, verb: &SnapshotVerb) -> Result<(), Failure> {
    match verb {
        SnapshotVerb::Snapshot(args) => snapshot(daemon, args),
        SnapshotVerb::Clone(args) => clone(daemon, args),
        SnapshotVerb::Rollback(args) => roll_back(daemon, args),
    }
}

fn snapshot(daemon: &Daemon, args: &SnapshotArgs) -> Result<(), Failure> {
    let mut new = NewSnapshots::default();
    if let (Some(name), [_, _, ..]) = (&args.name, args.volumes.as_slice()) {
        return Err(Failure::mistake(Mistake::OneName {
            name: name.clone(),
            volumes: args.volumes.len(),
        }));
    }
    for volume in &args.volumes {
        let name = match (&args.name, &args.suffix) {
            (Some(name), _) => name.clone(),
            (None, suffix) => format!("{volume}{}", suffix.as_deref().unwrap_or_default()),
        };
        let name = Text(parse(&name).map_err(Failure::mistake)?);
        let of = Text(parse(volume).map_err(Failure::mistake)?);
        new.snapshots.insert(name, of);
    }
    let views: Vec<VolumeView> = daemon.client.post("/v1/snapshots", &new)?;
    if daemon.is_json() {
        return output::json(&views);
    }
    list_of(&views)
}

fn clone(daemon: &Daemon, args: &CloneArgs) -> Result<(), Failure> {
    let snapshot = get(daemon, &args.snapshot)?;
    let definition = Volume {
        size: Size(snapshot.size_bytes),
        block_size: BlockLen::try_from(snapshot.block_size).map_err(Failure::mistake)?,
        kind: KindFields(VolumeKind::Clone {
            of: args.snapshot.clone(),
        }),
        identity: Identity::default(),
        read_only: false,
        filters: Filters::default(),
        save: None,
    };
    show(daemon, &daemon.client.post(&path(&args.name), &definition)?)
}

fn roll_back(daemon: &Daemon, args: &RollbackArgs) -> Result<(), Failure> {
    let (volume, snapshot) = (path(&args.name), path_part(&args.to));
    let path = format!("{volume}/rollback/{snapshot}{}", query(args.force));
    let view = with_progress(daemon, &args.name, || daemon.client.post(&path, &()))?;
    show(daemon, &view)
}
