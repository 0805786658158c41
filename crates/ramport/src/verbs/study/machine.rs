//! The machine that a study ran on.

use std::{fs, thread};

use control::PortalView;
use fabric::{Device, DevicePort};
use serde::Serialize;

use crate::failure::Failure;
use crate::mistake::SystemFailure;
use crate::verbs::provider;

/// The hardware and the system of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Machine {
    /// The processor's model.
    pub(crate) cpu: String,
    /// Processors that this program may use.
    pub(crate) cores: usize,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The adapters with an active port, with their speeds.
    pub(crate) adapters: Vec<String>,
    /// The portals that were measured, and what does their RDMA: an adapter or software.
    pub(crate) portals: Vec<String>,
}

impl Machine {
    /// This machine, where `portals` were measured.
    pub(crate) fn this(portals: &[PortalView]) -> Result<Self, Failure> {
        let devices = fabric::devices().map_err(SystemFailure::Adapters)?;
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            cpu: model(&processors).unwrap_or("unknown").to_owned(),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.trim().to_owned(),
            adapters: devices.iter().filter_map(adapter).collect(),
            portals: portals.iter().map(portal).collect(),
        })
    }

    /// Names and values, for people.
    pub(super) fn fields(&self) -> [(&'static str, String); 5] {
        let list = |names: &[String], otherwise: &str| {
            let names = names.join("; ");
            if names.is_empty() {
                otherwise.to_owned()
            } else {
                names
            }
        };
        [
            ("CPU", self.cpu.clone()),
            ("Cores", self.cores.to_string()),
            ("Kernel", self.kernel.clone()),
            (
                "RDMA adapters",
                list(&self.adapters, "none with an active port"),
            ),
            ("Portals", list(&self.portals, "none")),
        ]
    }
}

/// The model in the text of /proc/cpuinfo. Not all architectures name it.
fn model(processors: &str) -> Option<&str> {
    let mut lines = processors.lines();
    let line =
        lines.find(|line| line.starts_with("model name") || line.starts_with("cpu model"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

/// An adapter's name and the speeds of its active ports.
fn adapter(device: &Device) -> Option<String> {
    let is_active = |port: &&DevicePort| port.state == "ACTIVE";
    let ports = device.ports.iter().filter(is_active);
    let rates: Vec<_> = ports.map(|port| port.rate.as_str()).collect();
    (!rates.is_empty()).then(|| format!("{} ({})", device.name, rates.join(", ")))
}

fn portal(portal: &PortalView) -> String {
    match provider(portal) {
        Some("soft") => format!("{} (software RDMA)", portal.url),
        Some(_) => format!("{} (RDMA adapter)", portal.url),
        None => format!("{} (TCP)", portal.url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_where_the_kernel_names_it() {
        let text = "processor\t: 0\nmodel name\t: A Processor @ 3.00GHz\nmodel\t\t: 85\n";
        assert_eq!(model(text), Some("A Processor @ 3.00GHz"));
        assert_eq!(model("processor\t: 0\nFeatures\t: fp asimd\n"), None);
    }
}
