//! The same over SRP, whose queue pairs are software's.

use ::srp::wire::PortId;
use block::Unmap;
use server::{AllowedHost, HostDefinition, PortalDefinition, SessionProtocol, ToldBy};

use super::*;

const NAME: &str = "iqn.2025-01.io.ramport:rd0";
/// The port identifier of a named initiator.
const INITIATOR: &str = "0x0000000000000001505400fffe010203";
/// The longest data that travel inside a message.
const IMMEDIATE_BLOCKS: u64 = 16;

/// The portal's address. Each test has one of its own, since UDP port 4791 is bound to it.
fn portal(host: u8) -> PortalDefinition {
    fixture::portal(Transport::Srp, ([127, 38, 0, host], 5555))
}

/// Offers the volume over SRP, too; gives the portal's address.
fn offer(fixture: &Fixture, host: u8) -> SocketAddr {
    let hosts = HostPolicy::Any(Access::ReadWrite);
    fixture::offer(&fixture.server, NAME, "vol", hosts);
    fixture.server.add_portal(portal(host)).unwrap().address
}

fn url(address: SocketAddr, query: &str) -> Url {
    format!("srp://{address}/{NAME}/0?rdma=soft&{query}")
        .parse()
        .unwrap()
}

fn try_attach(address: SocketAddr, query: &str) -> Result<(Device, Vec<Queue>), ConnectError> {
    let mut device = Device::connect(&url(address, query), &options())?;
    let queues = device.take_queues();
    Ok((device, queues))
}

fn attach(address: SocketAddr, query: &str) -> (Device, Vec<Queue>) {
    try_attach(address, query).unwrap()
}

fn pattern(seed: u64, blocks: u64) -> Vec<u8> {
    (0..blocks * 512)
        .map(|at| (at / 3 + seed * 41 + at % 251) as u8)
        .collect()
}

#[test]
fn data_inside_messages_and_by_descriptor_read_back() {
    let fixture = Fixture::start(64 * MIB);
    let (_device, mut queues) = attach(offer(&fixture, 1), "");
    let queue = &mut queues[0];
    let lens = [1, IMMEDIATE_BLOCKS, IMMEDIATE_BLOCKS + 1, 256];
    for (blocks, write) in lens.into_iter().flat_map(|blocks| {
        let writes = [Operation::Write, Operation::WriteDurable];
        writes.map(|write| (blocks, write))
    }) {
        let bytes = pattern(blocks, blocks);
        queue.buffer_mut(Slot(3))[..bytes.len()].copy_from_slice(&bytes);
        assert_eq!(run(queue, request(3, write, 77, blocks)), Ok(()));
        queue.buffer_mut(Slot(3)).fill(0xEE);
        assert_eq!(run(queue, request(3, Operation::Read, 77, blocks)), Ok(()));
        let (read, behind) = queue.buffer(Slot(3)).split_at(bytes.len());
        assert!(read == bytes, "{blocks} blocks");
        assert!(behind.iter().all(|&byte| byte == 0xEE), "no byte more");
    }
}

#[test]
fn every_operation_does_what_it_says() {
    let fixture = Fixture::start(64 * MIB);
    let (device, mut queues) = attach(offer(&fixture, 2), "");
    assert_eq!(device.geometry().len_bytes(), 64 * MIB);
    assert_eq!(device.info().target, NAME);
    let queue = &mut queues[0];
    let reads_as = |queue: &mut Queue, lba, byte: u8| {
        assert_eq!(run(queue, request(1, Operation::Read, lba, 8)), Ok(()));
        queue.buffer(Slot(1))[..4096].iter().all(|&it| it == byte)
    };
    queue.buffer_mut(Slot(0))[..32 * 512].fill(7);
    assert_eq!(run(queue, request(0, Operation::Write, 0, 32)), Ok(()));
    assert_eq!(run(queue, request(0, Operation::Flush, 0, 0)), Ok(()));
    assert_eq!(run(queue, request(0, Operation::Verify, 0, 32)), Ok(()));
    assert_eq!(run(queue, request(0, Operation::Compare, 0, 32)), Ok(()));
    let zeroes = Operation::WriteZeroes(Unmap::Forbidden);
    assert_eq!(run(queue, request(0, zeroes, 8, 8)), Ok(()));
    assert_eq!(run(queue, request(0, Operation::Deallocate, 16, 8)), Ok(()));
    let bytes = [0, 8, 16, 24].map(|lba| [7, 0].map(|byte| reads_as(queue, lba, byte)));
    let (full, empty) = ([true, false], [false, true]);
    assert_eq!(bytes, [full, empty, empty, full]);
    let mut compare_and_write = |expected: u8, new: u8| {
        let buffer = &mut queue.buffer_mut(Slot(2))[..1024];
        let (old_half, new_half) = buffer.split_at_mut(512);
        old_half.fill(expected);
        new_half.fill(new);
        run(queue, request(2, Operation::CompareAndWrite, 0, 1))
    };
    assert_eq!(compare_and_write(7, 8), Ok(()));
    let differs = compare_and_write(7, 9).expect_err("it holds 8");
    assert!(differs.to_string().contains("differ"), "{differs}");
    assert_eq!(compare_and_write(8, 7), Ok(()));
    let beyond = request(0, Operation::Read, 64 * MIB / 512, 1);
    let beyond = run(queue, beyond).expect_err("there is no such block");
    assert!(beyond.to_string().contains("beyond the end"), "{beyond}");
    assert!(reads_as(queue, 0, 7));
}

#[test]
fn channels_that_the_server_ends_are_restored_and_data_stay_whole() {
    let fixture = Fixture::start(64 * MIB);
    let address = offer(&fixture, 3);
    let (_device, queues) = attach(address, "sessions=2");
    let sessions = fixture.server.sessions();
    assert_eq!(sessions.len(), 2, "a nexus per queue");
    assert!(matches!(sessions[0].protocol, SessionProtocol::Srp { .. }));
    std::thread::scope(|scope| {
        for (mut queue, lba) in queues.into_iter().zip([0, 10_000]) {
            let server = &fixture.server;
            scope.spawn(move || {
                verify(&mut queue, lba, 12, |round| {
                    if round % 3 == 1 {
                        for session in server.sessions() {
                            let _ = server.end_session(session.id);
                        }
                    }
                });
            });
        }
    });
}

#[test]
fn a_portal_that_comes_back_is_connected_to_again() {
    let fixture = Fixture::start(16 * MIB);
    let (_device, mut queues) = attach(offer(&fixture, 4), "");
    verify(&mut queues[0], 0, 6, |round| {
        if round == 2 {
            let portal = portal(4);
            fixture.server.remove_portal(portal).unwrap();
            fixture.server.add_portal(portal).unwrap();
        }
    });
}

#[test]
fn one_volume_is_the_same_over_both_protocols() {
    let fixture = Fixture::start(16 * MIB);
    let (device, mut scsi) = attach(offer(&fixture, 5), "");
    let (_nvme, mut nvme) = fixture.attach("");
    assert_eq!(device.geometry(), nvme[0].geometry());
    scsi[0].buffer_mut(Slot(0))[..8192].fill(0x5C);
    run(&mut scsi[0], request(0, Operation::Write, 48, 16)).unwrap();
    run(&mut nvme[0], request(0, Operation::Read, 48, 16)).unwrap();
    assert!(nvme[0].buffer(Slot(0))[..8192].iter().all(|&b| b == 0x5C));
    // A unit attention tells of the new size, and the command that it prevents is sent again at
    // once, though the thread sleeps.
    fixture
        .server
        .resize_volume(&"vol".parse().unwrap(), 32 * MIB, Force::No, &mut |_| {})
        .unwrap();
    let until = Instant::now() + PATIENCE;
    while device.geometry().len_bytes() != 32 * MIB {
        assert!(Instant::now() < until, "the new size is learned");
        run(&mut scsi[0], request(0, Operation::Read, 0, 1)).unwrap();
    }
}

#[test]
fn more_slots_than_the_request_limit_wait_for_their_turn() {
    let fixture = Fixture::start(16 * MIB);
    let deep = DeviceOptions {
        depth: 300,
        buffer_bytes: 4096,
        ..options()
    };
    let mut device = Device::connect(&url(offer(&fixture, 6), ""), &deep).unwrap();
    let queue = &mut device.take_queues()[0];
    let mut done = Vec::new();
    for slot in 0..300 {
        let lba = u64::from(slot) * 8;
        queue
            .submit(request(slot, Operation::Read, lba, 8))
            .unwrap();
    }
    finish(queue, &mut done, "300 reads, 128 at a time");
    assert!(done.iter().all(|completion| completion.result.is_ok()));
}

#[test]
fn a_login_that_is_rejected_says_why() {
    let fixture = Fixture::start(16 * MIB);
    let address = offer(&fixture, 7);
    let other = url(address, "").with_target("iqn.2025-01.io.ramport:no");
    let error = Device::connect(&other, &options()).unwrap_err();
    assert!(error.is_mistake(), "{error}");
    assert!(error.to_string().contains("has that name"), "{error}");
    // The port identifier is as good as the name.
    let port = PortId::of_target(NAME);
    let by_port = url(address, "").with_target(&port.to_string());
    let device = Device::connect(&by_port, &options()).unwrap();
    assert_eq!(device.geometry().len_bytes(), 16 * MIB);
}

#[test]
fn an_initiator_is_admitted_by_its_port_identifier() {
    let fixture = Fixture::start(16 * MIB);
    let host: server::HostName = INITIATOR.parse().unwrap();
    let definition = HostDefinition {
        name: host.clone(),
        told_by: ToldBy::Name,
        addresses: Vec::new(),
        chap: None,
        dhchap: None,
        tls: None,
    };
    fixture.server.create_host(definition).unwrap();
    let hosts = HostPolicy::Listed(vec![AllowedHost {
        host,
        access: Access::ReadWrite,
        luns: None,
    }]);
    fixture::offer(&fixture.server, NAME, "vol", hosts);
    let address = fixture.server.add_portal(portal(8)).unwrap().address;
    let named = format!("initiator={INITIATOR}");
    assert!(try_attach(address, "").is_err(), "another port identifier");
    let (_device, mut queues) = attach(address, &named);
    let sessions = fixture.server.sessions();
    assert_eq!(sessions[0].host.as_str(), INITIATOR);
    // A queue's nexus has a port identifier of its own, which is not on the list.
    assert!(try_attach(address, &format!("{named}&sessions=2")).is_err());
    run(&mut queues[0], request(0, Operation::Read, 0, 1)).unwrap();
}
