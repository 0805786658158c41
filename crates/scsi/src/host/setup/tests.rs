use super::*;
use crate::host::Transfer;
use crate::testing::open_nexus;
use crate::{Begin, Device, NexusId};
use block::testing::VecVolume;
use std::sync::Arc;

/// Runs a set-up against the device server of this crate.
fn run(device: &mut Device, nexus: NexusId, lun: Lun) -> Result<UnitFacts, SetupError> {
    let mut setup = Setup::new(lun);
    let mut buffer = vec![0; Setup::BUFFER_BYTES];
    for _ in 0..100 {
        let command = match setup.poll() {
            SetupStep::Submit(command) => command,
            SetupStep::Wait { .. } => continue,
            SetupStep::Done => return Ok(setup.facts().clone()),
        };
        let Begin::Done(response) = device.begin(nexus, lun, &command.cdb) else {
            panic!("a set-up transfers no data of the medium");
        };
        let result = if response.status == ScsiStatus::Good {
            let len = response
                .data_in
                .len()
                .min(command.transfer.len_bytes() as usize);
            buffer[..len].copy_from_slice(&response.data_in[..len]);
            Ok(len as u32)
        } else {
            let sense = response.sense.map(|sense| {
                let bytes = sense.encode(crate::SenseFormat::Fixed);
                crate::host::ReceivedSense::parse(bytes.as_slice()).expect("ours")
            });
            Err(CommandFailure::Status {
                status: response.status as u8,
                sense,
            })
        };
        let outcome = Outcome {
            key: Setup::KEY,
            result,
        };
        setup.handle_outcome(&outcome, &buffer)?;
    }
    panic!("a set-up ends");
}

fn device() -> (Device, NexusId) {
    let units = [1, 0x105].map(|lun| (lun, Arc::new(VecVolume::new(BlockSize::B4096, 64))));
    let mut device = crate::testing::device("iqn.t", units);
    let nexus = open_nexus(&mut device, "iqn.i");
    (device, nexus)
}

#[test]
fn our_own_device_server_is_set_up_through_its_unit_attentions() {
    let (mut device, nexus) = device();
    let facts = run(&mut device, nexus, 1).expect("a disk");
    assert_eq!(
        facts.geometry,
        Some(Geometry::new(BlockSize::B4096, Blocks(64)))
    );
    assert_eq!(facts.serial, "test1");
    assert_eq!(facts.designator.len(), 16, "an NAA designator of type 6");
    assert!(facts.limits.unmap_blocks > 0 && facts.limits.compare_and_write_blocks > 0);
    assert!(!facts.product.is_empty());
    assert_eq!(facts.write_cache, WriteCache::Absent);
    assert!(facts.has_forced_writes && !facts.is_write_protected);
    let other = run(&mut device, nexus, 0x105).expect("a disk");
    assert_ne!(facts.designator, other.designator);
}

#[test]
fn a_missing_lun_is_answered_with_those_that_are_there() {
    let (mut device, nexus) = device();
    let error = run(&mut device, nexus, 7).expect_err("no such LUN");
    assert_eq!(
        error.to_string(),
        "the target has no LUN 7 for this host; it has LUNs 1, 261"
    );
}

#[test]
fn a_unit_that_is_busy_or_becoming_ready_is_asked_again_until_patience_ends() {
    let mut setup = Setup::new(0);
    let busy = CommandFailure::Status {
        status: ScsiStatus::Busy as u8,
        sense: None,
    };
    let mut waited_ms = 0;
    let error = loop {
        match setup.poll() {
            SetupStep::Submit(command) => {
                assert_eq!(command.transfer, Transfer::None);
                let outcome = Outcome {
                    key: Setup::KEY,
                    result: Err(busy),
                };
                if let Err(error) = setup.handle_outcome(&outcome, &[]) {
                    break error;
                }
            }
            SetupStep::Wait { for_ms } => waited_ms += for_ms,
            SetupStep::Done => panic!("it is never ready"),
        }
    };
    assert_eq!(error, SetupError::NotReady { waited_ms });
    assert_eq!(waited_ms, READY_TIMEOUT_MS);
}

#[test]
fn odd_answers_are_refused_or_passed_over() {
    assert_eq!(
        capacity_16(3, &[0; 11]),
        Err(SetupError::TooShort {
            phase: Phase::Capacity16,
            len_bytes: 11
        })
    );
    let mut data = [0xFF; 12];
    assert!(capacity_16(3, &data).is_err(), "no such block size");
    data[8..].copy_from_slice(&512u32.to_be_bytes());
    assert!(
        capacity_16(3, &data).is_err(),
        "more bytes than a number holds"
    );
    assert_eq!(
        page(PAGE_SERIAL, &[0, 0x80, 0xFF, 0xFF, b'x']),
        Some(&b"x"[..])
    );
    assert_eq!(page(PAGE_SERIAL, &[0, 0x83, 0, 1, b'x']), None);
    assert_eq!(designator(&[1, 3, 0, 200, 1, 2]), Vec::<u8>::new());
    assert_eq!(
        luns(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0, 0, 4]),
        Vec::<Lun>::new()
    );
}

#[test]
fn a_unit_says_in_its_mode_parameters_whether_it_caches_and_takes_writes() {
    let after = |data: &[u8]| {
        let mut setup = Setup::new(0);
        setup.on_caching(data);
        let facts = setup.facts().clone();
        (
            facts.write_cache,
            facts.has_forced_writes,
            facts.is_write_protected,
        )
    };
    let unknown = (WriteCache::Volatile, false, false);
    assert_eq!(after(&[]), unknown, "a cache that may exist is flushed");
    assert_eq!(after(&[3, 0, 0]), unknown);
    assert_eq!(after(&[3, 0, 0, 0]), unknown);
    let caching = |wce| [8, 0, 0x90, 0, 0x08, 18, wce, 0];
    assert_eq!(after(&caching(4)), (WriteCache::Volatile, true, true));
    assert_eq!(after(&caching(0)), (WriteCache::Absent, true, true));
    let behind_a_descriptor = [20, 0, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0x88, 18, 0];
    assert_eq!(
        after(&behind_a_descriptor),
        (WriteCache::Absent, false, false)
    );
    let beyond_the_end = [20, 0, 0, 255, 0x08, 18, 0];
    assert_eq!(after(&beyond_the_end), unknown);
}
