//! `ramport target`.

use std::collections::BTreeMap;

use control::{Access, Nsid, Target, TargetAccess, TargetView, Text, parse, path_part};
use serde_json::json;
use target::HostName;

use super::{Daemon, query, volume};
use crate::cli::{AccessArgs, Attach, TargetCreateArgs, TargetVerb};
use crate::failure::Failure;
use crate::output::{self, Tone, paint};

pub(super) fn run(daemon: &Daemon, verb: TargetVerb) -> Result<(), Failure> {
    match verb {
        TargetVerb::Create(args) => create(daemon, &args),
        TargetVerb::List => list(daemon),
        TargetVerb::Show(args) => show(daemon, &daemon.client.get(&path(&args.name))?),
        TargetVerb::Set(args) => {
            let access = if args.local {
                TargetAccess::default()
            } else if args.access.is_empty() {
                return Err(Failure::Mistake(anyhow::anyhow!(
                    "say who may use it: --host NAME, --read-only-host NAME, --allow-any-host or --local"
                )));
            } else {
                access_of(&args.access)?
            };
            let path = format!("{}/access", path(&args.name));
            show(daemon, &daemon.client.put(&path, &access)?)
        }
        TargetVerb::Attach(args) => {
            let path = format!("{}/namespaces", path(&args.name));
            let body = json!({ "volume": args.volume, "nsid": args.nsid });
            let attached: serde_json::Value = daemon.client.post(&path, &body)?;
            if daemon.is_json() {
                return output::json(&attached);
            }
            output::line(format_args!(
                "volume {} is namespace {} of {}",
                args.volume, attached["nsid"], args.name
            ))
        }
        TargetVerb::Detach(args) => {
            let path = format!(
                "{}/namespaces/{}{}",
                path(&args.name),
                args.nsid,
                query(args.force)
            );
            daemon.client.delete(&path)?;
            daemon.say(format_args!(
                "namespace {} of {} is gone",
                args.nsid, args.name
            ))
        }
        TargetVerb::Remove(args) => {
            let path = format!("{}{}", path(&args.name), query(args.force));
            daemon.client.delete(&path)?;
            daemon.say(format_args!("target {} is removed", args.name))
        }
    }
}

pub(super) fn path(name: &str) -> String {
    format!("/v1/targets/{}", path_part(name))
}

fn create(daemon: &Daemon, args: &TargetCreateArgs) -> Result<(), Failure> {
    let access = access_of(&args.access)?;
    let definition = Target {
        any_host: access.any_host,
        hosts: access.hosts,
        namespaces: namespaces(&args.volume)?,
    };
    show(daemon, &daemon.client.post(&path(&args.name), &definition)?)
}

/// Volumes with their numbers; one without a number gets the one after its predecessor's.
fn namespaces(volumes: &[Attach]) -> Result<BTreeMap<Nsid, Text<target::VolumeName>>, Failure> {
    let mut namespaces = BTreeMap::new();
    let mut next = 1;
    for Attach { volume, nsid } in volumes {
        let nsid = nsid.unwrap_or(next);
        let name = parse(volume).map_err(Failure::mistake)?;
        if namespaces.insert(Nsid(nsid), Text(name)).is_some() {
            return Err(Failure::Mistake(anyhow::anyhow!(
                "namespace {nsid} is given twice; give each volume another number"
            )));
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
    Ok(TargetAccess {
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
            "no targets; create one with `ramport target create nqn.2025-01.com.example:rd0 --volume NAME`",
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

/// Who may use a target, in words.
pub(super) fn hosts(target: &TargetView) -> String {
    match (&target.hosts, target.any_host) {
        (Some(hosts), _) if hosts.is_empty() => "nobody".to_owned(),
        (Some(hosts), _) => {
            let names = hosts.iter().map(|(name, access)| match access {
                Access::ReadWrite => name.to_string(),
                Access::ReadOnly => format!("{name} (read-only)"),
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
        .map(|ns| format!("{} as {}", ns.volume, ns.nsid))
        .collect();
    output::fields(&[
        ("target", paint(Tone::Name, &target.name)),
        ("volumes", volumes.join(", ")),
        ("hosts", hosts(target)),
        ("sessions", target.sessions.to_string()),
        ("reads", volume::kind(&target.statistics.read)),
        ("writes", volume::kind(&target.statistics.write)),
    ])?;
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
        let numbers: Vec<_> = namespaces(&given).expect("fine").into_keys().collect();
        assert_eq!(numbers, [Nsid(1), Nsid(7), Nsid(8)]);
    }

    #[test]
    fn a_number_given_twice_is_a_mistake() {
        let given = [attach("a", Some(1)), attach("b", Some(1))];
        assert!(matches!(namespaces(&given), Err(Failure::Mistake(_))));
    }
}
