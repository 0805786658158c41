//! `ramport target`.

use std::collections::BTreeMap;
use std::mem;
use std::num::NonZeroU16;

use control::{Access, Nsid, Target, TargetAccess, TargetView, Text, parse};
use serde_json::json;
use server::{HostName, Protocol};

use super::words::{noun, protocol_of, statistics, target_path};
use super::{Daemon, host, query};
use crate::cli::{
    AccessArgs, Attach, DetachArgs, HostLuns, TargetCreateArgs, TargetSetArgs, TargetVerb,
};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output::{self, TextRole, paint};

pub(super) fn run(daemon: &Daemon, verb: TargetVerb) -> Result<(), Failure> {
    match verb {
        TargetVerb::Create(args) => create(daemon, &args),
        TargetVerb::List => list(daemon),
        TargetVerb::Show(args) => show(daemon, &daemon.client.get(&target_path(&args.name))?),
        TargetVerb::Set(args) => set(daemon, &args),
        TargetVerb::Attach(args) => {
            let path = format!("{}/namespaces", target_path(&args.name));
            let body = json!({ "volume": args.volume, "nsid": args.nsid });
            let attached: serde_json::Value = daemon.client.post(&path, &body)?;
            if daemon.is_json() {
                return output::json(&attached);
            }
            output::line(format_args!(
                "volume {} is {} {} of {}",
                args.volume,
                noun(&args.name),
                attached["nsid"],
                args.name
            ))
        }
        TargetVerb::Detach(args) => {
            let number = number_of(daemon, &args)?;
            let path = format!(
                "{}/namespaces/{number}{}",
                target_path(&args.name),
                query(args.force)
            );
            daemon.client.delete(&path)?;
            daemon.say(format_args!(
                "{} {number} of {} is gone",
                noun(&args.name),
                args.name
            ))
        }
        TargetVerb::Remove(args) => {
            let path = format!("{}{}", target_path(&args.name), query(args.force));
            daemon.client.delete(&path)?;
            daemon.say(format_args!("target {} is removed", args.name))
        }
    }
}

/// The number of the volume to detach. A decimal number is a number, even if a volume has that
/// name.
fn number_of(daemon: &Daemon, args: &DetachArgs) -> Result<u32, Failure> {
    if let Ok(number) = args.what.parse() {
        return Ok(number);
    }
    let target: TargetView = daemon.client.get(&target_path(&args.name))?;
    let mut namespaces = target.namespaces.iter();
    let found = namespaces.find(|namespace| namespace.volume == args.what);
    found.map(|namespace| namespace.nsid).ok_or_else(|| {
        let (target, volume) = (args.name.clone(), args.what.clone());
        Mistake::NotAttached { target, volume }.into()
    })
}

/// Changes who may use a target, and how. Settings without an argument stay as they are; the list
/// of hosts is replaced as a whole.
fn set(daemon: &Daemon, args: &TargetSetArgs) -> Result<(), Failure> {
    let says_who = args.local || !args.access.is_empty();
    let chap = &args.access.chap;
    let says_how = !args.access.luns.is_empty()
        || !args.access.portal_group.is_empty()
        || args.any_portal_group
        || chap.no_chap
        || chap.chap_secret_file.is_some();
    if !says_who && !says_how {
        return Err(Mistake::NothingToSet.into());
    }
    let before: TargetView = daemon.client.get(&target_path(&args.name))?;
    let mut access = access_of(&args.access)?;
    if !says_who {
        (access.any_host, access.hosts) = (before.any_host, before.hosts);
        let said = mem::replace(&mut access.luns, before.luns);
        access.luns.extend(said);
    }
    if args.access.portal_group.is_empty() && !args.any_portal_group {
        let groups = before.portal_groups.into_iter();
        access.portal_groups = groups.filter_map(NonZeroU16::new).collect();
    }
    access.chap = host::chap(chap, &args.name, before.chap)?;
    let path = format!("{}/access", target_path(&args.name));
    show(daemon, &daemon.client.put(&path, &access)?)
}

fn create(daemon: &Daemon, args: &TargetCreateArgs) -> Result<(), Failure> {
    let access = access_of(&args.access)?;
    let protocol = match &args.name {
        Some(name) => protocol_of(name),
        None => Protocol::Iscsi,
    };
    if args.iscsi && protocol != Protocol::Iscsi {
        return Err(Mistake::NotAnIqn.into());
    }
    let definition = Target {
        any_host: access.any_host,
        hosts: access.hosts,
        luns: access.luns,
        portal_groups: access.portal_groups,
        chap: host::chap(
            &args.access.chap,
            args.name.as_deref().unwrap_or("ramport"),
            None,
        )?,
        namespaces: namespaces(&args.volume, protocol)?,
    };
    let path = args.name.as_deref().map(target_path);
    let path = path.as_deref().unwrap_or("/v1/targets");
    show(daemon, &daemon.client.post(path, &definition)?)
}

/// Volumes with their numbers; one without a number gets the one after its predecessor's.
fn namespaces(
    volumes: &[Attach],
    protocol: Protocol,
) -> Result<BTreeMap<Nsid, Text<server::VolumeName>>, Failure> {
    let mut namespaces = BTreeMap::new();
    let mut next = protocol.first_number();
    for Attach { volume, nsid } in volumes {
        let nsid = nsid.unwrap_or(next);
        let name = parse(volume).map_err(Failure::mistake)?;
        if namespaces.insert(Nsid(nsid), Text(name)).is_some() {
            return Err(Mistake::NumberTwice { number: nsid }.into());
        }
        next = nsid.saturating_add(1);
    }
    Ok(namespaces)
}

impl AccessArgs {
    fn is_empty(&self) -> bool {
        self.allow_any_host.is_none() && self.host.is_empty() && self.read_only_host.is_empty()
    }
}

fn access_of(args: &AccessArgs) -> Result<TargetAccess, Failure> {
    let mut hosts = BTreeMap::new();
    for (names, access) in [
        (&args.read_only_host, Access::ReadOnly),
        (&args.host, Access::ReadWrite),
    ] {
        for name in names {
            let name: HostName = parse(name).map_err(Failure::mistake)?;
            hosts.insert(Text(name), access);
        }
    }
    let mut luns = BTreeMap::new();
    for HostLuns { host, luns: map } in &args.luns {
        let host: HostName = parse(host).map_err(Failure::mistake)?;
        let map = map.iter().map(|&(lun, number)| (Nsid(lun), Nsid(number)));
        luns.insert(Text(host), map.collect());
    }
    Ok(TargetAccess {
        luns,
        portal_groups: args.portal_group.iter().copied().collect(),
        chap: None,
        any_host: args.allow_any_host.map(Access::from),
        hosts: (!hosts.is_empty()).then_some(hosts),
    })
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let targets: Vec<TargetView> = daemon.client.get("/v1/targets")?;
    if daemon.is_json() {
        return output::json(&targets);
    }
    if targets.is_empty() {
        return output::line(
            "no targets; create one with `ramport target create nqn.2025-01.com.example:rd0 --volume NAME`, or for iSCSI with `ramport target create --iscsi --volume NAME`",
        );
    }
    let rows = targets.iter().map(|target| {
        let volumes = target.namespaces.iter();
        let volumes: Vec<_> = volumes
            .map(|ns| format!("{}={}", ns.volume, ns.nsid))
            .collect();
        vec![
            target.name.clone(),
            volumes.join(" "),
            hosts(target),
            target.sessions.to_string(),
        ]
    });
    output::table(
        &["NAME", "VOLUMES", "HOSTS", "SESSIONS"],
        &["SESSIONS"],
        rows,
    )
}

/// Who may use a target, and how they reach it, in words.
pub(super) fn terms(target: &TargetView) -> String {
    let mut words = hosts(target);
    if !target.portal_groups.is_empty() {
        words.push_str(", through portal groups ");
        words.push_str(&groups(target));
    }
    if target.chap.is_some() {
        words.push_str(", with CHAP ");
        words.push_str(&host::chap_of(target.chap.as_ref()));
    }
    words
}

/// The portal groups that a target is reached through, in words.
fn groups(target: &TargetView) -> String {
    let groups = target.portal_groups.iter().map(u16::to_string);
    groups.collect::<Vec<_>>().join(",")
}

/// Who may use a target, in words.
pub(super) fn hosts(target: &TargetView) -> String {
    match (&target.hosts, target.any_host) {
        (Some(hosts), _) if hosts.is_empty() => "nobody".to_owned(),
        (Some(hosts), _) => {
            let names = hosts.iter().map(|(name, access)| {
                let mut words = name.to_string();
                if *access == Access::ReadOnly {
                    words.push_str(" (read-only)");
                }
                if let Some(map) = target.luns.get(name) {
                    let map = map.iter().map(|(lun, number)| format!("{lun}:{number}"));
                    words = format!("{words} (LUNs {})", map.collect::<Vec<_>>().join(","));
                }
                words
            });
            names.collect::<Vec<_>>().join(" ")
        }
        (None, Some(Access::ReadWrite)) => "any".to_owned(),
        (None, Some(Access::ReadOnly)) => "any (read-only)".to_owned(),
        (None, None) => "this machine".to_owned(),
    }
}

fn show(daemon: &Daemon, target: &TargetView) -> Result<(), Failure> {
    if daemon.is_json() {
        return output::json(target);
    }
    let volumes = target.namespaces.iter();
    let volumes: Vec<_> = volumes
        .map(|ns| format!("{} as {} {}", ns.volume, noun(&target.name), ns.nsid))
        .collect();
    let mut fields = vec![
        ("target", paint(TextRole::Name, &target.name)),
        ("protocol", target.protocol.clone()),
        ("volumes", volumes.join(", ")),
        ("hosts", hosts(target)),
    ];
    if protocol_of(&target.name) == Protocol::Iscsi {
        let all = target.portal_groups.is_empty();
        let groups = if all {
            "all".to_owned()
        } else {
            groups(target)
        };
        fields.push(("portal groups", groups));
        fields.push(("chap", host::chap_of(target.chap.as_ref())));
    }
    fields.extend([
        ("sessions", target.sessions.to_string()),
        ("reads", statistics(&target.statistics.read)),
        ("writes", statistics(&target.statistics.write)),
    ]);
    output::fields(&fields)?;
    for warning in &target.warnings {
        eprintln!("ramport: warning: {warning}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(volume: &str, nsid: Option<u32>) -> Attach {
        Attach {
            volume: volume.to_owned(),
            nsid,
        }
    }

    #[test]
    fn volumes_without_a_number_follow_each_other() {
        let given = [attach("a", None), attach("b", Some(7)), attach("c", None)];
        let numbers: Vec<_> = namespaces(&given, Protocol::Nvme)
            .expect("fine")
            .into_keys()
            .collect();
        assert_eq!(numbers, [Nsid(1), Nsid(7), Nsid(8)]);
        let luns = namespaces(&given, Protocol::Iscsi).expect("fine");
        let numbers: Vec<_> = luns.into_keys().collect();
        assert_eq!(numbers, [Nsid(0), Nsid(7), Nsid(8)]);
    }

    #[test]
    fn a_number_given_twice_is_a_mistake() {
        let given = [attach("a", Some(1)), attach("b", Some(1))];
        let refused = namespaces(&given, Protocol::Iscsi);
        assert!(matches!(refused, Err(Failure::Mistake(_))));
    }
}
