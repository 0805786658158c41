//! `ramport volume mirror`.

use control::{MemberState, MemberView, MirrorView, ScrubView, VolumePatch, VolumeView, path_part};

use super::super::{Daemon, query};
use super::{get, path, show, with_progress};
use crate::cli::{MirrorArgs, Replacement, ScrubArgs};
use crate::failure::Failure;
use crate::output;
use crate::units::bytes;

pub(super) fn change(daemon: &Daemon, args: &MirrorArgs) -> Result<(), Failure> {
    let changes = &args.changes;
    if changes.resync_rate.is_some() {
        let patch = VolumePatch {
            resync_rate: changes.resync_rate,
            ..VolumePatch::default()
        };
        let _: VolumeView = daemon.client.patch(&path(&args.name), &patch)?;
    }
    let acts = [("fail", &changes.fail), ("return", &changes.returned)];
    for (act, member) in acts {
        if let Some(member) = member {
            let path = format!("{}/members/{}/{act}", path(&args.name), path_part(member));
            let _: VolumeView = daemon.client.post(&path, &())?;
        }
    }
    if let Some(Replacement { old, new }) = &changes.replace {
        let members = format!("{}/members/{}", path(&args.name), path_part(old));
        let path = format!(
            "{members}/replace/{}{}",
            path_part(new),
            query(changes.force)
        );
        let _: VolumeView = daemon.client.post(&path, &())?;
    }
    show(daemon, &get(daemon, &args.name)?)
}

/// Compares the members, and shows where they differ.
pub(super) fn scrub(daemon: &Daemon, args: &ScrubArgs) -> Result<(), Failure> {
    let query = if args.repair { "?repair=true" } else { "" };
    let path = format!("{}/scrub{query}", path(&args.name));
    let found: ScrubView = with_progress(daemon, &args.name, || daemon.client.post(&path, &()))?;
    if daemon.is_json() {
        return output::json(&found);
    }
    let compared = bytes(found.compared_bytes);
    if found.differing_bytes == 0 {
        return daemon.say(format_args!(
            "{compared} compared: the members hold the same"
        ));
    }
    daemon.say(format_args!(
        "{compared} compared: {} differ, {} repaired",
        bytes(found.differing_bytes),
        bytes(found.repaired_bytes)
    ))?;
    for range in &found.ranges {
        output::line(format!(
            "{} from byte {} on",
            bytes(range.len_bytes),
            range.offset_bytes
        ))?;
    }
    Ok(())
}

/// How the members are, in words.
pub(super) fn fields(of: &MirrorView) -> Vec<(&'static str, String)> {
    let members = of.members.iter();
    let mut fields: Vec<_> = members.map(|member| ("member", in_words(member))).collect();
    fields.push(("resynced", bytes(of.resynced_bytes)));
    fields
}

fn in_words(of: &MemberView) -> String {
    let state = match of.state {
        MemberState::InSync => "in sync".to_owned(),
        MemberState::Resyncing => format!("resyncing, {} to be copied", bytes(of.missing_bytes)),
        MemberState::OutOfSync => format!("out of sync, misses {}", bytes(of.missing_bytes)),
    };
    match &of.problem {
        Some(problem) => format!("{}: {state}; {problem}", of.volume),
        None => format!("{}: {state}", of.volume),
    }
}
