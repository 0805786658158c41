//! What tests and fuzz targets run on.

#[cfg(test)]
mod bytes;
pub mod fuzz;

#[cfg(test)]
pub(crate) use bytes::Bytes;

use std::sync::Arc;

use block::{Access, Volume};

use crate::{
    CopyWork, Device, Execution, Lun, LunMap, Medium, NexusId, NexusPorts, Response, Sense, Step,
    TargetPort, Turn, UnitIdentity,
};

/// A device of this name with one port and these logical units.
pub fn device<V: Volume + 'static>(
    name: &str,
    units: impl IntoIterator<Item = (Lun, Arc<V>)>,
) -> Device {
    let port = TargetPort {
        relative_id: 1,
        name: format!("{name},t,0x0001"),
        group: 1,
    };
    let mut device = Device::new(name.to_owned(), vec![port]);
    for (lun, volume) in units {
        let identity = UnitIdentity {
            unique: u64::from(lun) + 1,
            serial: format!("test{lun}"),
        };
        device.insert_unit(lun, volume, identity);
    }
    device
}

/// A nexus of an initiator with the port of a [`device`]; it may do all.
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

/// Copies, in as many turns as it takes.
pub fn copy(work: &mut CopyWork) -> Response {
    in_turns(|turn| work.go_on(turn)).0
}

/// What came of it, and how many turns it took.
pub(crate) fn in_turns(mut go_on: impl FnMut(&mut Turn) -> Step) -> (Response, usize) {
    for turns in 1.. {
        if let Step::Over(response) = go_on(&mut Turn::new()) {
            return (response, turns);
        }
    }
    unreachable!("a command ends")
}
