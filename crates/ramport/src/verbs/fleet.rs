//! `ramport fleet`: volumes that are loaded at the same time, each by a client of its own.

mod clients;
mod figures;
mod route;

use std::fs;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use bench::Stop;
use control::{Access, BlockLen, ClusterView, Filters, Identity, KindFields, Target, TargetView};
use control::{Provision, Volume, VolumeKind, VolumeView};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::words::target_path;
use super::{Daemon, INTERRUPTED_STATUS, stop_on_interrupt, volume};
use crate::cli::{FleetCreateArgs, FleetFiles, FleetMergeArgs, FleetRunArgs, FleetVerb, points};
use crate::failure::Failure;
use crate::mistake::Mistake;
use crate::output;
use crate::units::bytes;
use figures::{FleetReport, Measured, NodeCounts};

pub(super) use clients::{Load, measure};
pub(super) use route::{Route, route};

/// What names of volumes and targets of fleets begin with.
const PREFIX: &str = "fleet";
/// What the names of targets have before those of their volumes.
const TARGET_PREFIX: &str = "nqn.2025-01.io.ramport";

pub(super) fn run(daemon: &Daemon, verb: &FleetVerb) -> Result<ExitCode, Failure> {
    match verb {
        FleetVerb::Create(args) => create(daemon, args)?,
        FleetVerb::List => list(daemon)?,
        FleetVerb::Remove => remove(daemon)?,
        FleetVerb::Run(args) => return load(daemon, args),
        FleetVerb::Merge(args) => return merge(daemon, args),
    }
    Ok(ExitCode::SUCCESS)
}

/// A volume of the fleet, which one client loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Member {
    /// The volume's name.
    pub(super) volume: String,
    /// The target that offers it.
    pub(super) target: String,
    /// Its position in the fleet, from 1.
    number: u16,
    size_bytes: u64,
}

impl Member {
    /// The member that a volume is; none if it does not belong to the fleet of this machine.
    fn of(prefix: &str, volume: &VolumeView) -> Option<Self> {
        let number = volume.name.strip_prefix(prefix)?.parse().ok()?;
        Some(Self {
            target: format!("{TARGET_PREFIX}:{}", volume.name),
            volume: volume.name.clone(),
            number,
            size_bytes: volume.size_bytes,
        })
    }
}

/// The fleet of this machine.
pub(super) struct Fleet {
    /// The name of this machine's node, or the machine's name.
    pub(super) node: String,
    /// What the names of its volumes begin with. In a cluster, all nodes have all replicated
    /// volumes, and each may have a fleet.
    prefix: String,
    /// Its volumes, in order.
    pub(super) members: Vec<Member>,
}

impl Fleet {
    /// The fleet as it is now, which may be empty.
    fn now(daemon: &Daemon) -> Result<Self, Failure> {
        let (node, prefix) = match daemon.client.get::<ClusterView>("/v1/cluster") {
            Ok(cluster) => {
                let prefix = format!("{PREFIX}-{}-", cluster.this_node);
                (cluster.this_node, prefix)
            }
            Err(_) => (machine_name(), format!("{PREFIX}-")),
        };
        let volumes: Vec<VolumeView> = daemon.client.get("/v1/volumes")?;
        let members = volumes
            .iter()
            .filter_map(|volume| Member::of(&prefix, volume));
        let mut members: Vec<_> = members.collect();
        members.sort_by_key(|member| member.number);
        Ok(Self {
            node,
            prefix,
            members,
        })
    }

    /// As [`now`](Self::now); an error if it is empty.
    pub(super) fn some(daemon: &Daemon) -> Result<Self, Failure> {
        let fleet = Self::now(daemon)?;
        if fleet.members.is_empty() {
            return Err(Mistake::NoFleet.into());
        }
        Ok(fleet)
    }
}

fn machine_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn create(daemon: &Daemon, args: &FleetCreateArgs) -> Result<(), Failure> {
    let fleet = Fleet::now(daemon)?;
    if !fleet.members.is_empty() {
        return Err(Mistake::FleetExists.into());
    }
    let kind = match args.copies {
        Some(copies) => VolumeKind::Replicated {
            copies,
            placement: None,
        },
        // What was never written is read without memory, so it would be measured too fast.
        None => VolumeKind::Ram {
            provision: Provision::Thick,
        },
    };
    let definition = Volume {
        size: args.size,
        block_size: BlockLen::default(),
        kind: KindFields(kind),
        identity: Identity::default(),
        read_only: false,
        filters: Filters::default(),
        save: None,
    };
    let any_host = args.allow_any_host.then_some(Access::ReadWrite);
    for number in 1..=args.clients {
        let name = format!("{}{number}", fleet.prefix);
        if let Err(failure) = create_member(daemon, &name, &definition, any_host) {
            // The reason counts, not whether all of the others could be removed.
            let _ = remove_members(daemon);
            return Err(failure);
        }
    }
    list(daemon)
}

fn create_member(
    daemon: &Daemon,
    name: &str,
    definition: &Volume,
    any_host: Option<Access>,
) -> Result<(), Failure> {
    let _: VolumeView = daemon.client.post(&volume::path(name), definition)?;
    let target = json!({ "namespaces": { "1": name } });
    let target: Target = serde_json::from_value(target).map_err(anyhow::Error::from)?;
    let target = Target { any_host, ..target };
    let path = target_path(&format!("{TARGET_PREFIX}:{name}"));
    let _: TargetView = daemon.client.post(&path, &target)?;
    Ok(())
}

fn list(daemon: &Daemon) -> Result<(), Failure> {
    let members = Fleet::now(daemon)?.members;
    if daemon.is_json() {
        return output::json(&members);
    }
    if members.is_empty() {
        return output::line("there is no fleet; create one with `ramport fleet create`");
    }
    let rows = members.iter().map(|member| {
        let size = bytes(member.size_bytes);
        vec![member.volume.clone(), size, member.target.clone()]
    });
    output::table(&["VOLUME", "SIZE", "TARGET"], &["SIZE"], rows)
}

fn remove(daemon: &Daemon) -> Result<(), Failure> {
    let removed = remove_members(daemon)?;
    daemon.say(format_args!("{removed} volumes of the fleet are removed"))
}

/// Removes all members with their targets; returns how many there were.
fn remove_members(daemon: &Daemon) -> Result<usize, Failure> {
    let targets: Vec<TargetView> = daemon.client.get("/v1/targets")?;
    let members = Fleet::now(daemon)?.members;
    for member in &members {
        if targets.iter().any(|target| target.name == member.target) {
            let path = format!("{}?force=true", target_path(&member.target));
            daemon.client.delete(&path)?;
        }
        let path = format!("{}?force=true", volume::path(&member.volume));
        daemon.client.delete(&path)?;
    }
    Ok(members.len())
}

/// The time between two combinations of commands that begin at a given time: clients end and
/// connect again.
const PAUSE: Duration = Duration::from_secs(10);

fn load(daemon: &Daemon, args: &FleetRunArgs) -> Result<ExitCode, Failure> {
    let points = points(&args.sweep).map_err(Failure::mistake)?;
    let fleet = Fleet::some(daemon)?;
    let route = route(daemon, args.rdma)?;
    let stop = Stop::default();
    stop_on_interrupt(&stop);
    let bar = progress_bar(points.len());
    let mut report = FleetReport::default();
    let mut begin = args.begin.map(|s| UNIX_EPOCH + Duration::from_secs(s));
    for point in points {
        bar.set_message(point.to_string());
        let load = Load {
            point,
            warm_up: args.warm_up,
            cool_down: args.cool_down,
            begin,
            route: &route,
            members: &fleet.members,
            node: &fleet.node,
        };
        let Some(measured) = measure(&load, &stop)? else {
            bar.finish_and_clear();
            return Ok(ExitCode::from(INTERRUPTED_STATUS));
        };
        report.measured.push(measured);
        begin = begin.map(|it| it + args.warm_up + point.runtime + args.cool_down + PAUSE);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(path) = &args.counts {
        report.write_counts(path)?;
    }
    publish(daemon, &report, &args.files)
}

fn merge(daemon: &Daemon, args: &FleetMergeArgs) -> Result<ExitCode, Failure> {
    publish(daemon, &FleetReport::merged(&args.counts)?, &args.files)
}

/// Prints the figures, and writes them to files.
fn publish(daemon: &Daemon, report: &FleetReport, files: &FleetFiles) -> Result<ExitCode, Failure> {
    report.write_files(files.csv.as_deref(), files.svg.as_deref())?;
    if daemon.is_json() {
        output::json(&report.document())?;
    } else {
        output::line(report.text().trim_end())?;
    }
    Ok(ExitCode::from(u8::from(report.has_failed())))
}

/// A bar of combinations on the terminal; hidden where standard error is none.
pub(super) fn progress_bar(runs: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left: {msg}")
        .expect("the template is well-formed");
    let bar = ProgressBar::new(runs as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
