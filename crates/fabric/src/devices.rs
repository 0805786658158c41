//! The adapters that there are, as the system shows them below `/sys/class/infiniband`.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// An adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name, for example `mlx5_0`.
    pub name: String,
    /// Its firmware's version; empty if it has none.
    pub firmware: String,
    /// Its ports.
    pub ports: Vec<DevicePort>,
}

/// A port of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePort {
    /// From 1.
    pub number: u32,
    /// The link layer.
    pub link_layer: LinkLayer,
    /// `ACTIVE` if it works.
    pub state: String,
    /// The speed of the link: that of its lanes together.
    pub gbit_per_s: f64,
    /// The same as the system words it, with lanes and kind.
    pub rate: String,
    /// The network interface behind it.
    pub netdev: Option<String>,
    /// On Ethernet, the addresses by which peers reach it.
    pub addresses: Vec<IpAddr>,
    /// Its GIDs.
    pub gids: Vec<Ipv6Addr>,
}

/// Link layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// Another one, by the system's name.
    Other(String),
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Other(name) => name,
        })
    }
}

/// All adapters, by name. A system without RDMA has none.
pub fn devices() -> io::Result<Vec<Device>> {
    devices_below(Path::new("/sys/class/infiniband"))
}

fn devices_below(folder: &Path) -> io::Result<Vec<Device>> {
    let mut devices = Vec::new();
    for name in names(folder)? {
        let device = folder.join(&name);
        let mut ports = Vec::new();
        for port in names(&device.join("ports"))? {
            if let Ok(number) = port.parse() {
                ports.push(read_port(&device.join("ports").join(&port), number)?);
            }
        }
        ports.sort_by_key(|port| port.number);
        devices.push(Device {
            firmware: word(&device.join("fw_ver")),
            name,
            ports,
        });
    }
    Ok(devices)
}

fn read_port(folder: &Path, number: u32) -> io::Result<DevicePort> {
    let link_layer = match word(&folder.join("link_layer")).as_str() {
        "InfiniBand" => LinkLayer::InfiniBand,
        "Ethernet" => LinkLayer::Ethernet,
        other => LinkLayer::Other(other.to_owned()),
    };
    let rate = word(&folder.join("rate"));
    let state = word(&folder.join("state"));
    let mut gids: Vec<Ipv6Addr> = Vec::new();
    let mut netdev = None;
    for index in names(&folder.join("gids"))? {
        let gid = word(&folder.join("gids").join(&index)).parse();
        let Some(gid) = gid.ok().filter(|gid: &Ipv6Addr| !gid.is_unspecified()) else {
            continue;
        };
        if !gids.contains(&gid) {
            gids.push(gid);
        }
        let behind = word(&folder.join("gid_attrs/ndevs").join(&index));
        if netdev.is_none() && !behind.is_empty() {
            netdev = Some(behind);
        }
    }
    gids.sort_unstable();
    let addresses = match link_layer {
        LinkLayer::Ethernet => gids.iter().map(Ipv6Addr::to_canonical).collect(),
        LinkLayer::InfiniBand | LinkLayer::Other(_) => Vec::new(),
    };
    Ok(DevicePort {
        number,
        link_layer,
        // "4: ACTIVE".
        state: state.split(": ").last().unwrap_or_default().to_owned(),
        // "100 Gb/sec (4X EDR)".
        gbit_per_s: (rate.split(' ').next())
            .and_then(|number| number.parse().ok())
            .unwrap_or_default(),
        rate,
        netdev,
        addresses,
        gids,
    })
}

/// The place of a GID of version 2 of RoCE in a port's table.
pub(crate) fn roce_gid_index(device: &str, port: u8, gid: Ipv6Addr) -> Option<u8> {
    let port = format!("/sys/class/infiniband/{device}/ports/{port}");
    roce_gid_index_of(Path::new(&port), gid)
}

fn roce_gid_index_of(port: &Path, gid: Ipv6Addr) -> Option<u8> {
    let is_it = |index: &String| {
        word(&port.join("gids").join(index)).parse() == Ok(gid)
            && word(&port.join("gid_attrs/types").join(index)) == "RoCE v2"
    };
    let indices = names(&port.join("gids")).ok()?;
    indices.into_iter().find(is_it)?.parse().ok()
}

/// The names in a directory, sorted; empty if the directory does not exist.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The contents of a file; empty if it cannot be read, as with GIDs that are not set.
fn word(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, file: &str, text: &str) {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().expect("it has a folder")).expect("a temporary folder");
        fs::write(file, text).expect("a temporary file");
    }

    #[test]
    fn an_adapter_is_described_as_the_system_shows_it() {
        let root = std::env::temp_dir().join(format!("ramport-devices-{}", std::process::id()));
        let port = root.join("rxe0/ports/1");
        write(&root, "rxe0/fw_ver", "\n");
        write(&port, "link_layer", "Ethernet\n");
        write(&port, "state", "4: ACTIVE\n");
        write(&port, "rate", "2.5 Gb/sec (1X SDR)\n");
        write(&port, "gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456\n");
        write(&port, "gids/1", "0000:0000:0000:0000:0000:ffff:c000:0201\n");
        write(&port, "gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
        write(&port, "gid_attrs/ndevs/1", "veth0\n");
        write(&port, "gids/3", "0000:0000:0000:0000:0000:ffff:c000:0201\n");
        write(&port, "gid_attrs/types/1", "IB/RoCE v1\n");
        write(&port, "gid_attrs/types/3", "RoCE v2\n");
        write(&root, "mlx5_0/fw_ver", "28.1\n");
        write(&root, "mlx5_0/ports/1/link_layer", "InfiniBand\n");
        write(&root, "mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
        write(&root, "mlx5_0/ports/1/gids/0", "fe80::1\n");
        let found = devices_below(&root).expect("it can be read");
        let index_of = |gid: &str| roce_gid_index_of(&port, gid.parse().expect("a GID"));
        assert_eq!(index_of("::ffff:192.0.2.1"), Some(3));
        assert_eq!(index_of("fe80::5054:ff:fe12:3456"), None);
        fs::remove_dir_all(&root).expect("it can be removed");
        let [ib, rxe] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((ib.name.as_str(), ib.firmware.as_str()), ("mlx5_0", "28.1"));
        assert_eq!(ib.ports[0].link_layer, LinkLayer::InfiniBand);
        assert!((ib.ports[0].gbit_per_s - 400.0).abs() < 1e-9);
        assert_eq!(
            (ib.ports[0].addresses.len(), ib.ports[0].gids.len()),
            (0, 1)
        );
        let port = &rxe.ports[0];
        assert_eq!((port.state.as_str(), port.number), ("ACTIVE", 1));
        assert_eq!(port.netdev.as_deref(), Some("veth0"));
        assert!((port.gbit_per_s - 2.5).abs() < 1e-9);
        let addresses: Vec<_> = port.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["192.0.2.1", "fe80::5054:ff:fe12:3456"]);
    }

    #[test]
    fn a_system_without_rdma_has_no_adapters() {
        let nowhere = Path::new("/proc/self/there-is-no-such-folder");
        assert_eq!(devices_below(nowhere).expect("that is no error"), []);
    }
}
