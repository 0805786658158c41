//! How the copies of a replicated volume are, in words.

use control::{CopyState, ReplicaView, ReplicationView};

use crate::units::bytes;

pub(super) fn fields(of: &ReplicationView) -> Vec<(&'static str, String)> {
    let copies = of.copies.iter();
    let mut fields: Vec<_> = copies.map(|copy| ("copy", in_words(copy))).collect();
    fields.push(("epoch", of.epoch.to_string()));
    fields.push(("copied from here", bytes(of.copied_bytes)));
    fields
}

/// What is not as it should be.
pub(super) fn remark(of: &ReplicationView) -> Option<String> {
    if of.epoch == 0 {
        return Some("copies unknown".to_owned());
    }
    let copies = of.copies.len();
    (of.in_sync < copies).then(|| format!("{} of {copies} in sync", of.in_sync))
}

fn in_words(of: &ReplicaView) -> String {
    let state = match (of.state, of.copied_through_bytes) {
        (CopyState::Primary, _) => "primary".to_owned(),
        (CopyState::InSync, _) => "in sync".to_owned(),
        (CopyState::OutOfSync, None) => "out of sync".to_owned(),
        (CopyState::OutOfSync, Some(through)) => {
            format!("being copied to, {} done", bytes(through))
        }
    };
    let connection = if of.connected { "" } else { ", not connected" };
    format!("{}: {state}{connection}", of.node)
}
