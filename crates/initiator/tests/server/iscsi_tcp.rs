//! The same over iSCSI.

use super::*;
use initiator::discover_targets;

const NAME: &str = "iqn.2025-01.io.ramport:rd0";

fn url(address: SocketAddr, query: &str) -> Url {
    format!("iscsi://{address}/{NAME}/0?{query}")
        .parse()
        .unwrap()
}

fn attach(address: SocketAddr, query: &str) -> (Device, Vec<Queue>) {
    let mut device = Device::connect(&url(address, query), &options()).unwrap();
    let queues = device.take_queues();
    (device, queues)
}

#[test]
fn data_stay_whole_while_sessions_are_cut() {
    let fixture = Fixture::start(64 * MIB);
    let proxy = Proxy::start(fixture.offer_iscsi(NAME));
    let clients = [
        ("sessions=2", 0),
        ("sessions=2&hdgst=on", 10_000),
        ("sessions=2&hdgst=on&ddgst=on", 20_000),
    ]
    .map(|(query, lba)| (attach(proxy.address, query), lba));
    verify_while_cut(&proxy, clients);
}

#[test]
fn one_volume_is_the_same_over_both_protocols() {
    let fixture = Fixture::start(16 * MIB);
    let portal = fixture.offer_iscsi(NAME);
    let (device, mut scsi) = attach(portal, "");
    let (_nvme, mut nvme) = fixture.attach("");
    assert_eq!(device.geometry(), nvme[0].geometry());
    scsi[0].buffer_mut(Slot(0))[..8192].fill(0x5C);
    run(&mut scsi[0], request(0, Operation::Write, 48, 16)).unwrap();
    run(&mut nvme[0], request(0, Operation::Read, 48, 16)).unwrap();
    assert!(nvme[0].buffer(Slot(0))[..8192].iter().all(|&b| b == 0x5C));
    // Resizing tells both.
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
fn discovery_finds_the_target_and_a_strangers_name_is_refused() {
    let fixture = Fixture::start(16 * MIB);
    let portal = fixture.offer_iscsi(NAME);
    let records = discover_targets(&url(portal, "").service(), PATIENCE).unwrap();
    assert_eq!(records[0].target, NAME);
    assert_eq!(records[0].port, portal.port());
    let other = url(portal, "").with_target("iqn.2025-01.io.ramport:no");
    let error = Device::connect(&other, &options()).unwrap_err();
    assert!(matches!(error, ConnectError::Session { .. }), "{error}");
}

#[test]
fn a_target_that_drops_its_sessions_is_not_reconnected_before_its_time2wait() {
    // DefaultTime2Wait as it is negotiated.
    const TIME_2_WAIT: Duration = Duration::from_secs(2);
    let fixture = Fixture::start(16 * MIB);
    let (_device, mut queues) = attach(fixture.offer_iscsi(NAME), "");
    run(&mut queues[0], request(0, Operation::Write, 0, 8)).unwrap();
    let name = NAME.parse().unwrap();
    let removed = Instant::now();
    fixture.server.remove_target(&name, Force::Yes).unwrap();
    let address = fixture.offer_iscsi(NAME);
    assert_ne!(address.port(), 0);
    run(&mut queues[0], request(0, Operation::Write, 0, 8)).unwrap();
    assert!(removed.elapsed() >= TIME_2_WAIT, "{:?}", removed.elapsed());
}

#[test]
fn a_session_that_the_server_ends_is_restored() {
    let fixture = Fixture::start(16 * MIB);
    let (_device, mut queues) = attach(fixture.offer_iscsi(NAME), "");
    // It logs out when it is asked to.
    verify(&mut queues[0], 0, 10, |_| {
        for session in fixture.server.sessions() {
            let _ = fixture.server.end_session(session.id);
        }
    });
}
