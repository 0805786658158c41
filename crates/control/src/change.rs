//! Changes of definitions: what the journal of the state file holds, and what `apply` shows.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use server::{HostName, ShareName, TargetName, VolumeName};
use uuid::Uuid;

use crate::definitions::{Definitions, Host, Share, Target, Volume};
use crate::readable::Readable;
use crate::reservations::TargetReservations;
use crate::shutdown_save::ShutdownSave;
use crate::text::{Portal, Text};

/// One definition set or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// A portal is opened.
    AddPortal(Text<Portal>),
    /// A portal is closed.
    RemovePortal(Text<Portal>),
    /// Hosts are referred to another discovery service.
    AddReferral(Text<Portal>),
    /// They are not any more.
    RemoveReferral(Text<Portal>),
    /// A host is created or changed.
    SetHost(Text<HostName>, Host),
    /// A host is removed.
    RemoveHost(Text<HostName>),
    /// A volume is created or changed.
    SetVolume(Text<VolumeName>, Volume),
    /// A volume is removed.
    RemoveVolume(Text<VolumeName>),
    /// A target is created or changed.
    SetTarget(Text<TargetName>, Target),
    /// A target is removed, and the reservations that it kept.
    RemoveTarget(Text<TargetName>),
    /// A share is created or changed.
    SetShare(Text<ShareName>, Share),
    /// A share is removed.
    RemoveShare(Text<ShareName>),
    /// What is kept of an iSCSI target's reservations; nothing, where empty.
    SetReservations(Text<TargetName>, TargetReservations),
    /// What a volume was saved as at the last shutdown, until it is restored.
    SetShutdownSave(Text<VolumeName>, Option<ShutdownSave>),
    /// What the identifiers of disks are derived from; it is kept, so that they stay.
    SetMachine(Uuid),
}

impl Definitions {
    /// Makes a change. Removing what is not there changes nothing.
    pub fn make(&mut self, change: Change) {
        match change {
            Change::AddPortal(portal) => {
                self.portals.insert(portal);
            }
            Change::RemovePortal(portal) => {
                self.portals.remove(&portal);
            }
            Change::AddReferral(referral) => {
                self.referrals.insert(referral);
            }
            Change::RemoveReferral(referral) => {
                self.referrals.remove(&referral);
            }
            Change::SetHost(name, host) => {
                self.hosts.insert(name, host);
            }
            Change::RemoveHost(name) => {
                self.hosts.remove(&name);
            }
            Change::SetVolume(name, volume) => {
                self.volumes.insert(name, volume);
            }
            Change::RemoveVolume(name) => {
                self.volumes.remove(&name);
            }
            Change::SetTarget(name, target) => {
                self.targets.insert(name, target);
            }
            Change::RemoveTarget(name) => {
                self.targets.remove(&name);
            }
            Change::SetShare(name, share) => {
                self.shares.insert(name, share);
            }
            Change::RemoveShare(name) => {
                self.shares.remove(&name);
            }
            Change::SetMachine(machine) => self.machine = Some(machine),
            // These are not part of the definitions.
            Change::SetReservations(..) | Change::SetShutdownSave(..) => {}
        }
    }

    /// The changes that make `to` of these definitions. What others refer to is set before them and
    /// removed after them, so every prefix of the changes refers to what exists.
    pub fn changes_to(&self, to: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let machine = to.machine.filter(|_| self.machine != to.machine);
        changes.extend(machine.map(Change::SetMachine));
        changes.extend(set(&self.hosts, &to.hosts, Change::SetHost));
        // What others are made of comes first, and is removed last.
        let mut volumes: Vec<_> = set(&self.volumes, &to.volumes, |n, v| (n, v)).collect();
        let depths = to.depths();
        volumes.sort_by_key(|(name, _)| depths.get(name).copied());
        changes.extend(volumes.into_iter().map(|(n, v)| Change::SetVolume(n, v)));
        let gone = self.portals.difference(&to.portals);
        changes.extend(gone.map(|portal| Change::RemovePortal(*portal)));
        let gone = self.referrals.difference(&to.referrals);
        changes.extend(gone.map(|referral| Change::RemoveReferral(*referral)));
        changes.extend(removed(&self.targets, &to.targets, Change::RemoveTarget));
        changes.extend(set(&self.targets, &to.targets, Change::SetTarget));
        changes.extend(set(&self.shares, &to.shares, Change::SetShare));
        changes.extend(removed(&self.shares, &to.shares, Change::RemoveShare));
        changes.extend(removed(&self.hosts, &to.hosts, Change::RemoveHost));
        let mut volumes: Vec<_> = removed(&self.volumes, &to.volumes, |name| name).collect();
        let depths = self.depths();
        volumes.sort_by_key(|name| Reverse(depths.get(name).copied()));
        changes.extend(volumes.into_iter().map(Change::RemoveVolume));
        let new = to.portals.difference(&self.portals);
        changes.extend(new.map(|portal| Change::AddPortal(*portal)));
        let new = to.referrals.difference(&self.referrals);
        changes.extend(new.map(|referral| Change::AddReferral(*referral)));
        changes
    }

    /// The changes that make these definitions of nothing.
    pub fn as_changes(&self) -> Vec<Change> {
        Self::default().changes_to(self)
    }
}

fn set<K: Ord + Clone, V: PartialEq + Clone, T>(
    from: &BTreeMap<K, V>,
    to: &BTreeMap<K, V>,
    change: impl Fn(K, V) -> T,
) -> impl Iterator<Item = T> {
    to.iter()
        .filter(|(name, value)| from.get(name) != Some(value))
        .map(move |(name, value)| change(name.clone(), value.clone()))
}

fn removed<K: Ord + Clone, V, T>(
    from: &BTreeMap<K, V>,
    to: &BTreeMap<K, V>,
    change: impl Fn(K) -> T,
) -> impl Iterator<Item = T> {
    from.keys()
        .filter(|name| !to.contains_key(name))
        .map(move |name| change(name.clone()))
}

/// Shows changes to people: a line each, `+` for what is new, `-` for what goes, `~` for what
/// changes.
pub fn describe(before: &Definitions, changes: &[Change]) -> Vec<String> {
    changes
        .iter()
        .map(|change| Described { before, change }.to_string())
        .collect()
}

struct Described<'a> {
    before: &'a Definitions,
    change: &'a Change,
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            Change::AddPortal(portal) => write!(f, "+ portal {portal}"),
            Change::RemovePortal(portal) => write!(f, "- portal {portal}"),
            Change::AddReferral(referral) => write!(f, "+ referral {referral}"),
            Change::RemoveReferral(referral) => write!(f, "- referral {referral}"),
            Change::SetHost(name, host) => {
                let before = self.before.hosts.get(name);
                write_set(f, "host", name, before.map(fields), &fields(host))
            }
            Change::RemoveHost(name) => write!(f, "- host {name}"),
            Change::SetVolume(name, volume) => {
                let before = self.before.volumes.get(name);
                write_set(f, "volume", name, before.map(fields), &fields(volume))
            }
            Change::RemoveVolume(name) => {
                let before = self.before.volumes.get(name);
                let fate = match before.map(|volume| &volume.kind.0) {
                    Some(kind) if kind.holds_members() => "its members stay",
                    Some(kind) if kind.is_persistent() => "its file stays",
                    _ => "its contents are lost",
                };
                write!(f, "- volume {name} ({fate})")
            }
            Change::SetTarget(name, target) => {
                let before = self.before.targets.get(name);
                write_set(f, "target", name, before.map(fields), &fields(target))
            }
            Change::RemoveTarget(name) => write!(f, "- target {name}"),
            Change::SetShare(name, share) => {
                let before = self.before.shares.get(name);
                write_set(f, "share", name, before.map(fields), &fields(share))
            }
            Change::RemoveShare(name) => write!(f, "- share {name} (its files are lost)"),
            Change::SetReservations(name, _) => write!(f, "~ reservations of target {name}"),
            Change::SetShutdownSave(name, _) => write!(f, "~ shutdown save of volume {name}"),
            Change::SetMachine(machine) => write!(f, "~ machine: {machine}"),
        }
    }
}

type Fields = BTreeMap<String, serde_json::Value>;

/// A definition's fields by name, as they are written.
fn fields(definition: &impl Serialize) -> Fields {
    serde_json::to_value(definition)
        .and_then(serde_json::from_value)
        .expect("definitions are structs that serialise")
}

fn write_set(
    f: &mut fmt::Formatter<'_>,
    noun: &str,
    name: &impl fmt::Display,
    before: Option<Fields>,
    after: &Fields,
) -> fmt::Result {
    let mark = if before.is_some() { '~' } else { '+' };
    write!(f, "{mark} {noun} {name}")?;
    let is_new = before.is_none();
    let mut before = before.unwrap_or_default();
    for (field, value) in after {
        match before.remove(field) {
            Some(old) if old == *value => {}
            Some(old) => write!(f, " {field}: {} -> {}", Readable(&old), Readable(value))?,
            None if is_new => write!(f, " {field}: {}", Readable(value))?,
            None => write!(f, " {field}: none -> {}", Readable(value))?,
        }
    }
    for (field, old) in before {
        write!(f, " {field}: {} -> none", Readable(&old))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
