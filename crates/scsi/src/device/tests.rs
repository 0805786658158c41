use super::*;
use crate::testing::{self, device, open_nexus};
use block::BlockSize;
use block::testing::VecVolume;

fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

const TEST_UNIT_READY: [u8; 16] = [0; 16];

/// A device with LUN 0 of 1 MiB and two nexuses whose power-on attention is read.
struct Fixture {
    device: Device,
    a: NexusId,
    b: NexusId,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Arc::new(VecVolume::new(BlockSize::B512, 2048)))
    }

    fn with<V: Volume + 'static>(volume: Arc<V>) -> Self {
        let mut device = device("iqn.t", [(0, volume)]);
        let [a, b] = ["iqn.a", "iqn.b"].map(|initiator| open_nexus(&mut device, initiator));
        let mut fixture = Self { device, a, b };
        for id in [a, b] {
            let response = fixture.run(id, &TEST_UNIT_READY, &[]);
            assert_eq!(
                response.sense.map(|sense| sense.asc),
                Some(Asc::POWER_ON_OR_RESET)
            );
        }
        fixture
    }

    fn run(&mut self, id: NexusId, cdb: &[u8; 16], list: &[u8]) -> Response {
        match self.device.begin(id, 0, cdb) {
            Begin::Done(response) => response,
            Begin::Parameters { len_bytes } => {
                assert_eq!(len_bytes as usize, list.len());
                match self.device.finish(id, 0, cdb, list) {
                    Finish::Done(response) => response,
                    Finish::Copy(mut work) => testing::copy(&mut work),
                }
            }
            Begin::Sanitize(mut work) => testing::sanitize(&mut work),
            Begin::Medium(command, volume) => {
                let len = command.data_out_len(volume.geometry().block_size) as usize;
                match testing::execute(command, &vec![0; len], volume.as_ref()) {
                    Ok(()) => Response::good(),
                    Err(sense) => Response::check(sense),
                }
            }
        }
    }

    fn status(&mut self, id: NexusId, cdb: &[u8; 16]) -> ScsiStatus {
        self.run(id, cdb, &[]).status
    }

    fn register(&mut self, id: NexusId, key: u8) {
        let mut list = vec![0; 24];
        list[15] = key;
        let register = cdb(&[0x5F, 0, 0, 0, 0, 0, 0, 0, 24]);
        assert_eq!(self.run(id, &register, &list).status, ScsiStatus::Good);
    }
}

fn read_10() -> [u8; 16] {
    cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1])
}

fn write_10() -> [u8; 16] {
    cdb(&[0x2A, 0, 0, 0, 0, 0, 0, 0, 1])
}

#[test]
fn a_unit_attention_is_reported_once_and_inquiry_does_not_clear_it() {
    let mut fixture = Fixture::new();
    fixture.device.capacity_changed(0);
    let inquiry = cdb(&[0x12, 0, 0, 0, 96]);
    assert_eq!(fixture.run(fixture.a, &inquiry, &[]).data_in.len(), 96);
    let told = fixture.run(fixture.a, &read_10(), &[]);
    assert_eq!(
        told.sense.map(|sense| sense.asc),
        Some(Asc::CAPACITY_CHANGED)
    );
    assert_eq!(fixture.status(fixture.a, &read_10()), ScsiStatus::Good);
    let told = fixture.run(fixture.b, &cdb(&[0x03, 0, 0, 0, 18]), &[]);
    assert_eq!(
        (told.status, told.data_in[2], told.data_in[12]),
        (ScsiStatus::Good, 6, 0x2A)
    );
    assert_eq!(fixture.status(fixture.b, &read_10()), ScsiStatus::Good);
}

#[test]
fn a_host_that_uses_a_thin_unit_is_told_that_memory_becomes_short() {
    let mut fixture = Fixture::new();
    fixture.device.space_becomes_short();
    fixture.device.space_becomes_short();
    for nexus in [fixture.a, fixture.b] {
        let told = fixture.run(nexus, &write_10(), &[]);
        let sense = told.sense.expect("a unit attention has sense data");
        assert_eq!(
            (sense.key, sense.asc),
            (SenseKey::UnitAttention, Asc::THIN_SOFT_THRESHOLD)
        );
        assert_eq!(fixture.status(nexus, &read_10()), ScsiStatus::Good);
    }
}

#[test]
fn a_lun_that_does_not_exist_answers_inquiry_and_refuses_the_rest() {
    let mut fixture = Fixture::new();
    let Begin::Done(response) = fixture
        .device
        .begin(fixture.a, 5, &cdb(&[0x12, 0, 0, 0, 36]))
    else {
        panic!("no data-out")
    };
    assert_eq!(response.data_in[0], 0x7F);
    let Begin::Done(response) = fixture.device.begin(fixture.a, 5, &read_10()) else {
        panic!("refused at once")
    };
    assert_eq!(
        response.sense.map(|sense| sense.asc),
        Some(Asc::LUN_NOT_SUPPORTED)
    );
}

#[test]
fn a_persistent_reservation_excludes_writers_and_preempt_notifies_them() {
    let mut fixture = Fixture::new();
    fixture.register(fixture.a, 1);
    fixture.register(fixture.b, 2);
    let mut list = vec![0; 24];
    list[7] = 1;
    let reserve = cdb(&[0x5F, 1, 5, 0, 0, 0, 0, 0, 24]);
    assert_eq!(
        fixture.run(fixture.a, &reserve, &list).status,
        ScsiStatus::Good
    );
    assert_eq!(
        fixture.status(fixture.b, &write_10()),
        ScsiStatus::Good,
        "registrants write"
    );
    let view = fixture.device.view(fixture.b, 0).expect("visible");
    assert!(view.reads && view.writes);
    list[7] = 2;
    list[15] = 1;
    let preempt = cdb(&[0x5F, 5, 1, 0, 0, 0, 0, 0, 24]);
    assert_eq!(
        fixture.run(fixture.b, &preempt, &list).status,
        ScsiStatus::Good
    );
    assert_eq!(fixture.device.poll_abort(), Some((fixture.a, 0)));
    let told = fixture.run(fixture.a, &write_10(), &[]);
    assert_eq!(
        told.sense.map(|sense| sense.asc),
        Some(Asc::REGISTRATIONS_PREEMPTED)
    );
    assert_eq!(
        fixture.status(fixture.a, &write_10()),
        ScsiStatus::ReservationConflict
    );
    assert_eq!(fixture.status(fixture.a, &read_10()), ScsiStatus::Good);
    assert!(!fixture.device.view(fixture.a, 0).expect("visible").writes);
}

#[test]
fn reserve_6_ends_with_its_nexus() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.status(fixture.a, &cdb(&[0x16])), ScsiStatus::Good);
    assert_eq!(
        fixture.status(fixture.b, &read_10()),
        ScsiStatus::ReservationConflict
    );
    assert_eq!(
        fixture.status(fixture.b, &cdb(&[0x12, 0, 0, 0, 36])),
        ScsiStatus::Good
    );
    assert_eq!(
        fixture.status(fixture.b, &cdb(&[0x17])),
        ScsiStatus::Good,
        "of no effect"
    );
    assert_eq!(
        fixture.status(fixture.b, &read_10()),
        ScsiStatus::ReservationConflict
    );
    fixture.device.close_nexus(fixture.a);
    assert_eq!(fixture.status(fixture.b, &read_10()), ScsiStatus::Good);
}

#[test]
fn a_stopped_unit_is_not_ready_until_started() {
    let mut fixture = Fixture::new();
    assert_eq!(
        fixture.status(fixture.a, &cdb(&[0x1B, 0, 0, 0, 0])),
        ScsiStatus::Good
    );
    let refused = fixture.run(fixture.b, &TEST_UNIT_READY, &[]);
    assert_eq!(
        refused.sense.map(|sense| sense.key),
        Some(SenseKey::NotReady)
    );
    assert_eq!(
        fixture.status(fixture.a, &cdb(&[0x1B, 0, 0, 0, 1])),
        ScsiStatus::Good
    );
    assert_eq!(
        fixture.status(fixture.b, &TEST_UNIT_READY),
        ScsiStatus::Good
    );
}

#[test]
fn an_offline_volume_is_not_ready_until_someone_acts() {
    let volume = Arc::new(block::testing::VecVolume::new(BlockSize::B512, 2048));
    let mut fixture = Fixture::with(Arc::clone(&volume));
    volume.set_failure(Some(block::Status::NotReady));
    for command in [TEST_UNIT_READY, read_10(), write_10()] {
        let sense = fixture
            .run(fixture.a, &command, &[])
            .sense
            .expect("refused");
        let expected = (SenseKey::NotReady, Asc::NOT_READY_INTERVENTION);
        assert_eq!((sense.key, sense.asc), expected);
    }
    // INQUIRY and READ CAPACITY (10) still succeed.
    for command in [cdb(&[0x12, 0, 0, 0, 96]), cdb(&[0x25])] {
        assert_eq!(fixture.status(fixture.a, &command), ScsiStatus::Good);
    }
    volume.set_failure(None);
    fixture.device.became_ready(0);
    for nexus in [fixture.a, fixture.b] {
        let sense = fixture
            .run(nexus, &read_10(), &[])
            .sense
            .expect("attention");
        let expected = (SenseKey::UnitAttention, Asc::BECAME_READY);
        assert_eq!((sense.key, sense.asc), expected);
        assert_eq!(fixture.status(nexus, &read_10()), ScsiStatus::Good);
    }
}

#[test]
fn a_locked_volume_refuses_writes_and_shows_it() {
    let locked = VecVolume::new(BlockSize::B512, 2048);
    locked.set_read_only(true);
    let mut fixture = Fixture::with(Arc::new(locked));
    let refused = fixture.run(fixture.a, &write_10(), &[]);
    assert_eq!(
        refused.sense.map(|sense| sense.key),
        Some(SenseKey::DataProtect)
    );
    let page = fixture.run(fixture.a, &cdb(&[0x1A, 0, 0x3F, 0, 255]), &[]);
    assert_eq!(page.data_in[2] & 0x80, 0x80);
}

#[test]
fn extended_copy_moves_blocks_between_units() {
    let source = Arc::new(VecVolume::new(BlockSize::B512, 64));
    let destination = Arc::new(VecVolume::new(BlockSize::B4096, 8));
    let units = [Arc::clone(&source), Arc::clone(&destination)];
    let mut device = device("iqn.t", (0..).zip(units));
    let c = open_nexus(&mut device, "iqn.c");
    for lun in [0, 1] {
        device.begin(c, lun, &TEST_UNIT_READY);
    }
    let data = [0x5A; 8 * 512];
    let extent = block::Extent::new(block::Lba(8), block::Blocks(8));
    source
        .execute(block::Op::Write {
            extent,
            data: &data,
        })
        .expect("write");
    let list = testing::copy_list([0, 1], 8, [8, 3]);
    let mut fixture = Fixture { device, a: c, b: c };
    let copy = cdb(&[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, list.len() as u8]);
    assert_eq!(fixture.run(c, &copy, &list), Response::good());
    assert_eq!(destination.block(3), vec![0x5A; 4096]);
    let status = fixture.run(
        c,
        &cdb(&[0x84, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12]),
        &[],
    );
    assert_eq!(status.data_in[4..7], [1, 0, 1]);
}

#[test]
fn every_opcode_survives_any_bytes_behind_it() {
    let mut fixture = Fixture::new();
    for opcode in 0..=255_u8 {
        for fill in [0x00, 0x01, 0x1F, 0x7F, 0xFF] {
            let mut cdb = [fill; 16];
            cdb[0] = opcode;
            match fixture.device.begin(fixture.a, 0, &cdb) {
                Begin::Done(_) | Begin::Sanitize(_) => {}
                Begin::Parameters { len_bytes } => {
                    for len in [0, 1, 23, 24, len_bytes] {
                        fixture
                            .device
                            .finish(fixture.a, 0, &cdb, &vec![fill; len as usize]);
                    }
                }
                Begin::Medium(command, volume) => {
                    let len = command.data_out_len(volume.geometry().block_size);
                    assert!(len <= 2 * medium::TRANSFER_LEN_BYTES_MAX, "{command:?}");
                }
            }
        }
    }
}

/// The groups of REPORT TARGET PORT GROUPS: state, supported states, group, status code, port.
fn port_groups(fixture: &mut Fixture) -> Vec<u8> {
    let response = fixture.run(fixture.a, &cdb(&[0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 0, 64]), &[]);
    let data = response.data_in;
    assert_eq!(data[..4], (data.len() as u32 - 4).to_be_bytes());
    data[4..].to_vec()
}

/// The relative port and group designators of the Device Identification page.
fn port_designators(fixture: &mut Fixture) -> [u16; 2] {
    let inquiry = cdb(&[0x12, 1, 0x83, 1, 0]);
    let page = fixture.run(fixture.a, &inquiry, &[]).data_in;
    let (mut at, mut found) = (4, [0; 2]);
    while at < page.len() {
        let (kind, len) = (page[at + 1] & 0x3F, usize::from(page[at + 3]));
        let value = &page[at + 4..at + 4 + len];
        match kind {
            0x14 => found[0] = u16::from_be_bytes([value[2], value[3]]),
            0x15 => found[1] = u16::from_be_bytes([value[2], value[3]]),
            _ => {}
        }
        at += 4 + len;
    }
    found
}

#[test]
fn a_unit_of_one_machine_is_optimized_in_the_group_of_its_portal() {
    let mut fixture = Fixture::new();
    let group = [0x00, 0x01, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1];
    assert_eq!(port_groups(&mut fixture), group);
    assert_eq!(port_designators(&mut fixture), [1, 1]);
    fixture.device.path_changed(0);
    assert_eq!(fixture.run(fixture.a, &TEST_UNIT_READY, &[]).sense, None);
}

#[test]
fn a_unit_of_several_machines_shows_how_this_one_leads_to_it() {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 2048));
    let set = |state| volume.set_path(HostPath { state, machine: 3 });
    set(PathState::NonOptimized);
    let mut fixture = Fixture::with(Arc::clone(&volume));
    assert_eq!(port_designators(&mut fixture), [0x0301, 0x0301]);
    let shown = |state| [state, 0x0B, 3, 1, 0, 2, 0, 1, 0, 0, 3, 1];
    assert_eq!(port_groups(&mut fixture), shown(1));
    let read = cdb(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    for (state, number, refused) in [
        (PathState::Optimized, 0, None),
        (
            PathState::Inaccessible,
            3,
            Some(Asc::NOT_READY_PORT_UNAVAILABLE),
        ),
        (PathState::NonOptimized, 1, None),
    ] {
        set(state);
        for _ in 0..2 {
            fixture.device.path_changed(0);
        }
        for nexus in [fixture.a, fixture.b] {
            assert!(!fixture.device.view(nexus, 0).expect("a unit").reads);
            let asc = |response: Response| response.sense.map(|sense| sense.asc);
            let told = asc(fixture.run(nexus, &read, &[]));
            assert_eq!(told, Some(Asc::ACCESS_STATE_CHANGED), "{state:?}");
            let reads = fixture.device.view(nexus, 0).expect("a unit").reads;
            assert_eq!(reads, refused.is_none());
            assert_eq!(asc(fixture.run(nexus, &TEST_UNIT_READY, &[])), refused);
            assert_eq!(asc(fixture.run(nexus, &read, &[])), refused);
        }
        assert_eq!(port_groups(&mut fixture), shown(number));
    }
}

#[test]
fn reservations_name_ports_as_hosts_see_them() {
    let volume = Arc::new(VecVolume::new(BlockSize::B512, 2048));
    volume.set_path(HostPath {
        machine: 3,
        ..HostPath::default()
    });
    let mut fixture = Fixture::with(volume);
    let mut list = [0; 24];
    list[15] = 9;
    let register = cdb(&[0x5F, 0, 0, 0, 0, 0, 0, 0, 24]);
    assert_eq!(fixture.run(fixture.a, &register, &list).sense, None);
    let full_status = cdb(&[0x5E, 3, 0, 0, 0, 0, 0, 1, 0]);
    let status = fixture.run(fixture.a, &full_status, &[]).data_in;
    // After the header of 8 bytes, RELATIVE TARGET PORT IDENTIFIER is in bytes 18 and 19.
    assert_eq!(status[26..28], [3, 1]);
    let mut held = [0; 24];
    held[7] = 9;
    let reserve = cdb(&[0x5F, 1, 1, 0, 0, 0, 0, 0, 24]);
    assert_eq!(fixture.run(fixture.a, &reserve, &held).sense, None);
    // REGISTER AND MOVE to another initiator, through the port as it is shown.
    let id = String::from_utf8(status[32..].to_vec()).expect("text");
    let id = id.replace("iqn.a", "iqn.b");
    let mut moved = vec![0; 24];
    (moved[7], moved[15], moved[23]) = (9, 8, id.len() as u8);
    moved[18..20].copy_from_slice(&[3, 1]);
    moved.extend(id.as_bytes());
    let command = cdb(&[0x5F, 7, 0, 0, 0, 0, 0, 0, moved.len() as u8]);
    let response = fixture.run(fixture.a, &command, &moved);
    assert_eq!(response.status, ScsiStatus::Good, "{:?}", response.sense);
    let reservation = &fixture.device.units[&0].reservations.reservation;
    let holder = reservation.as_ref().map(|reservation| &reservation.holder);
    assert_eq!(holder, Some(&fixture.device.nexuses[&fixture.b].ports));
}
