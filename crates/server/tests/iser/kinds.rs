//! A volume of each kind over iSER, compared with a vector.

use block::Unmap;
use initiator::Operation;

use super::each_kind::{self, BLOCK};
use super::peer::{Addresses, GOOD, Peer, READ, WRITE, cdb_10};
use super::*;

/// The longest data that a command brings with it.
const IMMEDIATE_MAX: usize = 8192;

impl each_kind::Host for Peer {
    fn run(&mut self, operation: Operation, lba: u64, blocks: u64, data: &[u8]) {
        let (lba, blocks) = (lba as u32, blocks as u16);
        let list = unmap_list(lba, blocks);
        let (cdb, data) = match operation {
            Operation::Write => (cdb_10(0x2A, lba, blocks).to_vec(), data),
            Operation::WriteDurable => {
                let mut cdb = cdb_10(0x2A, lba, blocks);
                // FUA
                cdb[1] = 0x08;
                (cdb.to_vec(), data)
            }
            Operation::WriteZeroes(unmap) => (write_zeroes(lba, blocks, unmap), data),
            Operation::Deallocate => (cdb_10(0x42, 0, list.len() as u16).to_vec(), &list[..]),
            Operation::Flush => (cdb_10(0x35, 0, 0).to_vec(), data),
            _ => panic!("{operation:?} is none of those that kinds are tested with"),
        };
        let flags = if data.is_empty() { READ } else { WRITE };
        let (immediate, tag) = if data.len() <= IMMEDIATE_MAX {
            (data, None)
        } else {
            self.data()[..data.len()].copy_from_slice(data);
            (&[][..], Some(self.register(data.len() as u64)))
        };
        let len = data.len() as u32;
        let status = command(self, flags, &cdb, len, immediate, (tag, None));
        assert_eq!(status, GOOD, "{operation:?} at {lba}");
    }

    fn read(&mut self, lba: u64, blocks: u64) -> Vec<u8> {
        let len = blocks as usize * BLOCK;
        let into = self.register(len as u64);
        let cdb = cdb_10(0x28, lba as u32, blocks as u16);
        let status = command(self, READ, &cdb, len as u32, &[], (None, Some(into)));
        assert_eq!(status, GOOD, "reading at {lba}");
        self.data()[..len].to_vec()
    }
}

/// WRITE SAME (16) without data (NDOB).
fn write_zeroes(lba: u32, blocks: u16, unmap: Unmap) -> Vec<u8> {
    let mut cdb = vec![0x93, 0x01, 0, 0, 0, 0];
    if unmap == Unmap::Allowed {
        cdb[1] |= 0x08;
    }
    cdb.extend(lba.to_be_bytes());
    cdb.extend(u32::from(blocks).to_be_bytes());
    cdb.extend([0; 2]);
    cdb
}

/// The parameter list of an UNMAP of one range.
fn unmap_list(lba: u32, blocks: u16) -> Vec<u8> {
    let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
    list.extend(u64::from(lba).to_be_bytes());
    list.extend(u32::from(blocks).to_be_bytes());
    list.extend([0; 4]);
    list
}

#[test]
fn each_kind_does_what_a_vector_does_over_iser() {
    let fixture = Fixture::new();
    let (here, portal) = (fixture.here(), fixture.portal.address);
    each_kind::over(&fixture.server, |volume| {
        let target = format!("iqn.2026-11.com.example:{volume}");
        fixture::offer(&fixture.server, &target, volume, HostPolicy::Local);
        Box::new(move || {
            let peer = Peer::connect(here, portal, Addresses::InFull);
            let mut peer = peer.expect("accepted");
            assert_eq!(peer.log_in(HOST, &target), GOOD);
            // UNIT ATTENTION, perhaps.
            command(&mut peer, READ, &[0; 6], 0, &[], (None, None));
            peer
        })
    });
}
