//! What the study creates at the daemon: a volume, two targets that offer it, portals.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bench::{End, Kind, Order, Pattern, Plan, ProgressBar, Stop};
use control::{
    Access, DelayFilter, Filters, Nsid, Period, Portal, PortalView, RdmaProvider, Size, Target,
    TargetView, Text, VolumePatch, VolumeView, parse,
};

use serde_json::json;

use super::measure::Device;
use super::ways::{IQN, NQN, Network};
use crate::cli::StudyBrpArgs;
use crate::failure::Failure;
use crate::verbs::words::target_path;
use crate::verbs::{Daemon, portal, query, volume};

/// The volume's name.
const VOLUME: &str = "study-brp";

/// What was created.
pub(super) struct Fixture<'a> {
    daemon: &'a Daemon,
    address: IpAddr,
    has_volume: bool,
    targets: Vec<&'static str>,
    portals: Vec<Portal>,
}

impl<'a> Fixture<'a> {
    /// Creates the volume and the targets.
    pub(super) fn create(daemon: &'a Daemon, args: &StudyBrpArgs) -> Result<Self, Failure> {
        let mut fixture = Self {
            daemon,
            address: args.target,
            has_volume: false,
            targets: Vec::new(),
            portals: Vec::new(),
        };
        let definition = json!({ "size": args.size });
        let _: VolumeView = daemon.client.post(&volume::path(VOLUME), &definition)?;
        fixture.has_volume = true;
        for (name, number) in [(NQN, 1), (IQN, 0)] {
            let name_of_volume = parse(VOLUME).map_err(Failure::mistake)?;
            let definition = Target {
                any_host: Some(Access::ReadWrite),
                namespaces: BTreeMap::from([(Nsid(number), Text(name_of_volume))]),
                ..Target::default()
            };
            let _: TargetView = daemon.client.post(&target_path(name), &definition)?;
            fixture.targets.push(name);
        }
        Ok(fixture)
    }

    /// Opens the portals of a network that are not open, and returns all of them.
    pub(super) fn open(&mut self, network: Network) -> Result<Vec<PortalView>, Failure> {
        let opened = self.open_each(network);
        if opened.is_err() {
            self.close()?;
        }
        opened
    }

    fn open_each(&mut self, network: Network) -> Result<Vec<PortalView>, Failure> {
        let client = &self.daemon.client;
        let before: Vec<PortalView> = client.get("/v1/portals")?;
        let mut views = Vec::new();
        for wanted in network.portals(self.address)? {
            let is_it = |view: &&PortalView| {
                let portal: Result<Portal, _> = view.url.parse();
                portal.is_ok_and(|Portal(portal)| {
                    (portal.transport, portal.address) == (wanted.0.transport, wanted.0.address)
                })
            };
            if let Some(open) = before.iter().find(is_it) {
                views.push(open.clone());
                continue;
            }
            let view: PortalView = client.post(&portal::path(wanted), &())?;
            self.portals.push(wanted);
            views.push(view);
        }
        for view in &views {
            check(network, view)?;
        }
        Ok(views)
    }

    /// Closes the portals that were opened.
    pub(super) fn close(&mut self) -> Result<(), Failure> {
        for portal in self.portals.drain(..) {
            let path = format!("{}{}", portal::path(portal), query(true));
            self.daemon.client.delete(&path)?;
        }
        Ok(())
    }

    /// Writes the whole volume, so that no block is written for the first time later.
    pub(super) fn fill(&self, network: Network, stop: &Stop) -> Result<(), Failure> {
        let way = network
            .ways()
            .iter()
            .find(|way| way.name.starts_with("BRP"));
        let way = way.expect("each network carries BRP");
        let plan = Plan {
            pattern: Pattern {
                order: Order::Sequential,
                kind: Kind::Write,
            },
            block_len_bytes: 128 << 10,
            depth: 8,
            end: End::OnePass,
            stop: stop.clone(),
            ..Plan::new(vec![way.source(network, self.address)?])
        };
        let filled = bench::run(&plan, &ProgressBar::hidden());
        let report = filled.map_err(|error| Failure::Broken(error.into()))?;
        match report.failure {
            Some(failure) => Err(Failure::Broken(anyhow::anyhow!(failure))),
            None => Ok(()),
        }
    }

    /// Sets or clears the filters that make the volume a device.
    pub(super) fn set_device(&self, device: Device) -> Result<(), Failure> {
        let delay = match device {
            Device::Ram => None,
            Device::Emulated => {
                let delay: Period = Device::DELAY.parse().map_err(Failure::mistake)?;
                Some(DelayFilter {
                    read: Some(Text(delay)),
                    write: Some(Text(delay)),
                    bandwidth: Some(Size(Device::BYTES_PER_SECOND)),
                    ..DelayFilter::default()
                })
            }
        };
        let patch = VolumePatch {
            filters: Some(Filters {
                delay,
                ..Filters::default()
            }),
            ..VolumePatch::default()
        };
        let _: VolumeView = self.daemon.client.patch(&volume::path(VOLUME), &patch)?;
        Ok(())
    }

    /// Removes everything that was created.
    pub(super) fn remove(mut self) -> Result<(), Failure> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), Failure> {
        self.close()?;
        for name in self.targets.drain(..) {
            let path = format!("{}{}", target_path(name), query(true));
            self.daemon.client.delete(&path)?;
        }
        if std::mem::take(&mut self.has_volume) {
            let path = format!("{}{}", volume::path(VOLUME), query(true));
            self.daemon.client.delete(&path)?;
        }
        Ok(())
    }
}

impl Drop for Fixture<'_> {
    fn drop(&mut self) {
        // After an error, which is reported already.
        let _ = self.take_down();
    }
}

/// Checks that a portal is carried by `network`.
fn check(network: Network, view: &PortalView) -> Result<(), Failure> {
    let expected = match network {
        Network::Adapter => Some(RdmaProvider::Hw),
        Network::Software => Some(RdmaProvider::Soft),
        Network::Tcp => None,
    };
    if view.provider == expected {
        return Ok(());
    }
    let url = &view.url;
    Err(Failure::mistake(match &view.reason {
        Some(reason) => anyhow::anyhow!("the portal {url} is not usable: {reason}"),
        None => anyhow::anyhow!(
            "the portal {url} is open already, and not over {network}; remove it, or name another \
             address with --target"
        ),
    }))
}
