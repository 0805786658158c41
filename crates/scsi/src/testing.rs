//! A device with logical units for tests and fuzz targets.

pub mod fuzz;

use std::sync::Arc;
use std::time::Instant;

use block::{Access, Volume};
use session::Leases;

use crate::{
    CopySlots, CopyWork, Device, Execution, Lun, LunMap, Medium, Naa, NexusId, NexusPorts,
    PortProtocol, Response, SanitizeWork, Sense, Step, TargetPort, Turn, UnitIdentity,
};

/// A device of this name with one port and these logical units.
pub fn device<V: Volume + 'static>(
    name: &str,
    units: impl IntoIterator<Item = (Lun, Arc<V>)>,
) -> Device {
    let port = TargetPort {
        relative_id: 1,
        protocol: PortProtocol::Iscsi,
        name: format!("{name},t,0x0001"),
        group: 1,
    };
    let mut device = Device::new(name.to_owned(), vec![port]);
    for (lun, volume) in units {
        device.insert_unit(lun, volume, identity(lun));
    }
    device
}

/// Tells apart the volumes that are behind a LUN one after another.
#[derive(Default)]
pub struct SeenVolumes(Vec<(Lun, Arc<dyn Volume>)>);

impl SeenVolumes {
    /// A number that no other volume has which was behind any LUN. Its low 16 bits are the LUN.
    pub fn number(&mut self, lun: Lun, volume: &Arc<dyn Volume>) -> u32 {
        let known = self
            .0
            .iter()
            .position(|(other, seen)| *other == lun && Arc::ptr_eq(seen, volume));
        let index = known.unwrap_or_else(|| {
            self.0.push((lun, Arc::clone(volume)));
            self.0.len() - 1
        });
        (index as u32) << 16 | u32::from(lun)
    }
}

/// The identity of a logical unit of a [`device`]. The NAA designators of odd LUNs have 16 bytes.
fn identity(lun: Lun) -> UnitIdentity {
    let mut identity = UnitIdentity::derived(u64::from(lun) + 1, format!("test{lun}"));
    if lun % 2 == 1 {
        let [high, low] = lun.to_be_bytes();
        identity.naa = Naa::Sixteen([0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, high, low]);
    }
    identity
}

/// A nexus of an initiator with the port of a [`device`]; it has full access.
pub fn open_nexus(device: &mut Device, initiator: &str) -> NexusId {
    let ports = NexusPorts {
        initiator: format!("{initiator},i,0x000000000001"),
        target_port: 1,
    };
    let nexus = device.open_nexus(ports, LunMap::All, Access::ReadWrite);
    nexus.expect("there is room")
}

/// Executes a medium command, in as many turns as it takes.
pub fn execute(command: Medium, data: &[u8], volume: &dyn Volume) -> Result<(), Sense> {
    let mut execution = Execution::new(command);
    let (response, _) = in_turns(|turn| execution.go_on(data, volume, turn));
    response.sense.map_or(Ok(()), Err)
}

/// Copies between volumes that answer at once, in as many turns as it takes.
pub fn copy(work: &mut CopyWork) -> Response {
    let mut leases = Leases::new(0);
    let slots = CopySlots {
        source: 0,
        destination: 1,
    };
    in_turns(|turn| work.go_on(Instant::now(), turn, &mut leases, slots)).0
}

/// Sanitizes a volume that answers at once, in as many turns as it takes.
pub fn sanitize(work: &mut SanitizeWork) -> Response {
    let mut leases = Leases::new(0);
    work.admit(Instant::now(), &mut leases, 0);
    in_turns(|turn| work.go_on(turn, &mut leases, 0)).0
}

/// The parameter list of an EXTENDED COPY between two logical units of a [`device`]: one segment of
/// this many blocks of the source, from one LBA to the other.
pub fn copy_list(ends: [Lun; 2], blocks: u16, lbas: [u8; 2]) -> Vec<u8> {
    let mut list = vec![0; 16];
    (list[3], list[11]) = (64, 28);
    for lun in ends {
        let mut target = [0; 32];
        target[0] = 0xE4;
        let naa = identity(lun).naa;
        let naa = naa.bytes();
        target[4..8].copy_from_slice(&[1, 3, 0, naa.len() as u8]);
        target[8..8 + naa.len()].copy_from_slice(naa);
        list.extend(target);
    }
    let mut segment = [0; 28];
    (segment[0], segment[3], segment[7]) = (2, 24, 1);
    segment[10..12].copy_from_slice(&blocks.to_be_bytes());
    (segment[19], segment[27]) = (lbas[0], lbas[1]);
    list.extend(segment);
    list
}

/// The result, and the number of turns.
pub(crate) fn in_turns(mut go_on: impl FnMut(&mut Turn) -> Step) -> (Response, usize) {
    for turns in 1.. {
        match go_on(&mut Turn::new()) {
            Step::More => {}
            Step::Waits => panic!("the volume answers at once"),
            Step::Over(response) => return (response, turns),
        }
    }
    unreachable!("a command ends")
}
