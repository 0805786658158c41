//! The function of the device server's fuzz target. `cargo test` runs the same function over the
//! corpus.

use std::sync::Arc;

use block::testing::VecVolume;
use block::{BlockSize, Volume};

use super::{copy, device, execute, open_nexus, sanitize};
use crate::host::ReceivedSense;
use crate::{Begin, Device, Finish, Lun, Medium, NexusId, Response, ScsiStatus, SenseFormat};

/// Blocks of each volume.
const BLOCKS: u64 = 128;
/// The most bytes of volumes that one run moves, so that runs are short.
const WORK_BYTES_MAX: u64 = 64 << 20;

/// A device with two logical units and two hosts, driven by a script of CDBs, parameter lists and
/// events.
pub fn cdb(input: &[u8]) {
    let mut run = Run::new();
    let mut script = input;
    while run.step(&mut script).is_some() {}
}

struct Run {
    device: Device,
    volumes: [Arc<VecVolume>; 2],
    nexuses: [NexusId; 2],
    left_bytes: u64,
}

const INITIATORS: [&str; 2] = ["iqn.i0", "iqn.i1"];

impl Run {
    fn new() -> Self {
        let volumes = [BlockSize::B512, BlockSize::B4096]
            .map(|block_size| Arc::new(VecVolume::new(block_size, BLOCKS)));
        let mut device = device("iqn.t", (0..).zip(volumes.iter().cloned()));
        let nexuses = INITIATORS.map(|initiator| open_nexus(&mut device, initiator));
        Self {
            device,
            volumes,
            nexuses,
            left_bytes: WORK_BYTES_MAX,
        }
    }

    /// Carries out the next step; `None` at the end of the script.
    fn step(&mut self, script: &mut &[u8]) -> Option<()> {
        let [kind, detail] = take(script)?;
        let (index, lun) = (usize::from(kind & 1), Lun::from(kind >> 1 & 3));
        match kind >> 3 {
            0..=27 => self.command(index, lun, take(script)?, script)?,
            28 => self.volumes[index].resize(u64::from(detail) + 1),
            29 => self.device.capacity_changed(lun),
            30 => {
                self.device.close_nexus(self.nexuses[index]);
                self.nexuses[index] = open_nexus(&mut self.device, INITIATORS[index]);
            }
            _ => {
                self.device.reset_unit(self.nexuses[index], lun);
            }
        }
        while self.device.poll_abort().is_some() {}
        Some(())
    }

    fn command(&mut self, index: usize, lun: Lun, cdb: [u8; 16], script: &mut &[u8]) -> Option<()> {
        let nexus = self.nexuses[index];
        match self.device.begin(nexus, lun, &cdb) {
            Begin::Done(response) => check(&response),
            Begin::Parameters { len_bytes } => {
                assert!(len_bytes <= crate::PARAMETER_LIST_LEN_MAX);
                let here = script.len().min(len_bytes as usize);
                let (list, rest) = script.split_at(here);
                *script = rest;
                let mut list = list.to_vec();
                list.resize(len_bytes as usize, 0);
                let response = match self.device.finish(nexus, lun, &cdb, &list) {
                    Finish::Done(response) => response,
                    Finish::Copy(mut work) => copy(&mut work),
                };
                check(&response);
            }
            Begin::Sanitize(mut work) => check(&sanitize(&mut work)),
            Begin::Medium(command, volume) => self.transfer(command, volume.as_ref(), script)?,
        }
        Some(())
    }

    /// Executes a transfer as a transport does. The data repeat a part of the script.
    fn transfer(&mut self, command: Medium, volume: &dyn Volume, script: &mut &[u8]) -> Option<()> {
        let geometry = volume.geometry();
        let out = command.data_out_len(geometry.block_size);
        self.left_bytes = self.left_bytes.checked_sub(out.max(512))?;
        match command {
            Medium::Read(extent) | Medium::Write(extent) => {
                assert!(extent.blocks.0 == 0 || geometry.byte_range(extent).is_ok());
            }
            command => {
                let seed: [u8; 4] = take(script)?;
                let data: Vec<u8> = seed.into_iter().cycle().take(out as usize).collect();
                if let Err(sense) = execute(command, &data, volume) {
                    check(&Response::check(sense));
                }
            }
        }
        Some(())
    }
}

/// Only CHECK CONDITION has sense data, and parsing them returns the same values.
fn check(response: &Response) {
    let is_check = response.status == ScsiStatus::CheckCondition;
    assert_eq!(is_check, response.sense.is_some());
    let Some(sense) = &response.sense else {
        return;
    };
    for format in [SenseFormat::Fixed, SenseFormat::Descriptor] {
        let bytes = sense.encode(format);
        let received = ReceivedSense::parse(bytes.as_slice()).expect("our own sense data");
        assert_eq!((received.key, received.asc), (sense.key as u8, sense.asc));
        assert!(!received.to_string().is_empty());
    }
}

fn take<const N: usize>(script: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = script.split_first_chunk()?;
    *script = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use block::testing::replay;

    #[test]
    fn the_corpus_passes() {
        assert!(replay("scsi_cdb", super::cdb) > 0);
    }
}
