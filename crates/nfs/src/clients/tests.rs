//! Bounds, and expiry in virtual time.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use super::*;
use crate::xdr::Writer;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn exchange(owner: &[u8]) -> Exchange<'_> {
    Exchange {
        principal: Principal {
            address: HERE,
            uid: 0,
        },
        owner,
        verifier: [0; 8],
        is_update: false,
        has_owners: false,
    }
}

const LIMITS: ChannelLimits = ChannelLimits {
    request_bytes: 1 << 20,
    reply_bytes: 1 << 20,
    kept_bytes: 4096,
    operations: 8,
    requests: 64,
};

pub(super) fn confirmed(clients: &mut Clients, now: Instant, owner: &[u8]) -> u64 {
    let exchange = exchange(owner);
    let id = clients.exchange(now, &exchange).expect("room").client;
    let created =
        clients.create_session(now, exchange.principal, (id, 1), (&LIMITS, &LIMITS), None);
    assert_eq!(created.map(|session| session.sequence), Ok(1));
    clients.complete_reclaim(id).expect("once");
    id
}

#[test]
fn a_flood_of_client_ids_evicts_only_unconfirmed_ones() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let id = confirmed(&mut clients, now, b"real");
    for number in 0..1000_u32 {
        let added = clients.exchange(now, &exchange(&number.to_be_bytes()));
        added.expect("an unconfirmed one is evicted");
    }
    assert!(clients.clients.len() <= ADDRESS_CLIENTS_MAX);
    assert_eq!(clients.check_open(id), Ok(()));
}

fn confirmed_0(clients: &mut Clients, now: Instant, owner: &[u8]) -> Result<u64, Status4> {
    let exchange = Exchange {
        has_owners: true,
        ..exchange(owner)
    };
    let set = clients.set_client(now, &exchange)?;
    clients.confirm_client(now, exchange.principal, set)?;
    Ok(set.0)
}

#[test]
fn idle_owners_are_bounded_and_clients_that_hold_nothing_make_room() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let id = confirmed_0(&mut clients, now, b"real").expect("room");
    let modes = ShareModes {
        access: ShareModes::READ,
        deny: 0,
    };
    let request = |sequence| Numbered {
        sequence,
        checksum: sequence,
    };
    let begin = |clients: &mut Clients, name: &[u8], sequence| {
        let opener = Requester::Opener(name);
        let begun = clients.begin_request(id, opener, request(sequence));
        let (owner, begun) = begun.expect("room");
        if begun == BegunRequest::New {
            let executed = Executed::new(request(sequence), Status4::Ok, vec![7], None);
            clients.end_request(&owner, executed);
        }
        begun
    };
    begin(&mut clients, b"busy", 1);
    clients
        .open(id, b"busy", FileKey([1; 32]), modes)
        .expect("room");
    for number in 0..4000_u32 {
        begin(&mut clients, &number.to_be_bytes(), 1);
    }
    assert!(clients.used_bytes < 1 << 20, "{} bytes", clients.used_bytes);
    // The newest and those with opens are known, the oldest are not.
    let is_known = |begun| matches!(begun, BegunRequest::Executed(_));
    assert!(is_known(begin(&mut clients, b"busy", 1)));
    assert!(is_known(begin(&mut clients, &3999_u32.to_be_bytes(), 1)));
    assert!(!is_known(begin(&mut clients, &0_u32.to_be_bytes(), 1)));
    // Clients that hold nothing are evicted for others, and then those of the address are too many.
    for number in 0..2 * CLIENTS_MAX as u32 {
        confirmed_0(&mut clients, now, &number.to_be_bytes()).expect("room");
    }
    assert!(clients.clients.len() <= ADDRESS_CLIENTS_MAX);
    assert_eq!(clients.renew(now, HERE, id), Ok(id));
    let late = now + LEASE;
    confirmed_0(&mut clients, late, b"next").expect("room");
    assert_eq!(clients.clients.len(), 1);
    assert_eq!(clients.renew(late, HERE, id), Err(Status4::Expired));
    assert!(clients.files.is_empty());
}

#[test]
fn a_request_that_is_executed_keeps_what_it_opens() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let id = confirmed_0(&mut clients, now, b"client").expect("room");
    let modes = ShareModes {
        access: ShareModes::READ,
        deny: 0,
    };
    let numbered = |sequence| Numbered {
        sequence,
        checksum: 0,
    };
    let opener = Requester::Opener(b"owner");
    let key = FileKey([1; 32]);
    let begun = clients.begin_request(id, opener, numbered(1));
    let (owner, begun) = begun.expect("room");
    assert_eq!(begun, BegunRequest::New);
    clients.open(id, b"owner", key, modes).expect("room");
    // Another connection has a request of the same owner before the first has its reply.
    for sequence in [1, 2] {
        let refused = clients.begin_request(id, opener, numbered(sequence));
        assert_eq!(refused.err(), Some(Status4::Resource));
    }
    assert!(clients.has_open(id, &key));
    let executed = Executed::new(numbered(1), Status4::Ok, Vec::new(), None);
    clients.end_request(&owner, executed);
    // A number that does not follow begins anew, and ends the open that was not confirmed.
    let begun = clients.begin_request(id, opener, numbered(9));
    assert_eq!(begun.map(|(_, begun)| begun), Ok(BegunRequest::New));
    assert!(!clients.has_open(id, &key));
}

#[test]
fn what_a_client_holds_is_bounded_and_freed_when_its_lease_expires() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let id = confirmed(&mut clients, now, b"greedy");
    let modes = ShareModes {
        access: ShareModes::READ,
        deny: 0,
    };
    let mut opened = 0_u32;
    let refused = loop {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&opened.to_be_bytes());
        match clients.open(id, &[7; OWNER_BYTES_MAX], FileKey(key), modes) {
            Ok(_) => opened += 1,
            Err(status) => break status,
        }
    };
    assert_eq!(refused, Status4::NoSpace);
    assert!(clients.used_bytes <= CLIENT_BYTES_MAX && opened > 1000);
    assert_eq!(clients.count().opens, opened as usize);
    let shown = clients.at(HERE);
    assert_eq!(shown[0].name, "greedy");
    assert_eq!((shown[0].sessions, shown[0].opens), (1, opened as usize));
    assert_eq!(clients.at([192, 0, 2, 1].into()), []);
    let late = now + LEASE;
    let next = clients.exchange(late, &exchange(b"next")).expect("room");
    assert!(!next.is_confirmed);
    assert_eq!(clients.count(), ClientCounts::default());
    assert!(clients.files.is_empty());
    clients.remove_client(next.client);
    assert_eq!(clients.used_bytes, 0);
}

#[test]
fn create_session_is_executed_once() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let exchange = exchange(b"one");
    let id = clients.exchange(now, &exchange).expect("room").client;
    let principal = exchange.principal;
    let first = clients.create_session(now, principal, (id, 1), (&LIMITS, &LIMITS), None);
    let again = clients.create_session(now, principal, (id, 1), (&LIMITS, &LIMITS), None);
    assert_eq!(first, again);
    assert_eq!(clients.count().sessions, 1);
    let misordered = clients.create_session(now, principal, (id, 3), (&LIMITS, &LIMITS), None);
    assert_eq!(misordered, Err(Status4::MisorderedSequence));
    assert_eq!(
        clients.destroy_client(principal, id),
        Err(Status4::ClientIdBusy)
    );
    let session = first.expect("created").id;
    assert_eq!(clients.destroy_session(principal, session), Ok(()));
    assert_eq!(
        clients.destroy_session(principal, session),
        Err(Status4::BadSession)
    );
    assert_eq!(clients.destroy_client(principal, id), Ok(()));
    assert_eq!(clients.used_bytes, 0);
}

#[test]
fn sessions_are_for_users_of_a_confirmed_client_and_for_channels_that_carry_something() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let exchange = exchange(b"one");
    let id = clients.exchange(now, &exchange).expect("room").client;
    let other = Principal {
        uid: 7,
        ..exchange.principal
    };
    let mut create = |principal, sequence, back| {
        let created =
            clients.create_session(now, principal, (id, sequence), (&LIMITS, &back), None);
        created.map(|session| session.sequence)
    };
    // A user that has not created the client ID cannot confirm it, and may use it afterwards.
    assert_eq!(create(other, 1, LIMITS), Err(Status4::ClientIdInUse));
    assert_eq!(create(exchange.principal, 1, LIMITS), Ok(1));
    assert_eq!(create(other, 2, LIMITS), Ok(2));
    let elsewhere = Principal {
        address: [192, 0, 2, 1].into(),
        ..other
    };
    assert_eq!(create(elsewhere, 3, LIMITS), Err(Status4::ClientIdInUse));
    // Channels back that carry no recall are refused, and use up no number.
    let short = ChannelLimits {
        request_bytes: 10,
        ..LIMITS
    };
    let narrow = ChannelLimits {
        operations: 1,
        ..LIMITS
    };
    for back in [short, narrow] {
        assert_eq!(create(other, 3, back), Err(Status4::TooSmall));
    }
    assert_eq!(create(other, 3, LIMITS), Ok(3));
}

#[test]
fn requests_that_are_too_long_for_their_session_use_up_no_number() {
    let (mut clients, now) = (Clients::new(1), Instant::now());
    let exchange = exchange(b"one");
    let id = clients.exchange(now, &exchange).expect("room").client;
    let narrow = ChannelLimits {
        request_bytes: 512,
        reply_bytes: 256,
        kept_bytes: 10,
        ..LIMITS
    };
    let limits = (&narrow, &LIMITS);
    let created = clients.create_session(now, exchange.principal, (id, 1), limits, None);
    let session = created.expect("these are enough").id;
    let mut begin = |len_bytes, is_kept| {
        let asked = SlotRequest {
            session,
            sequence: 1,
            slot: 0,
            is_kept,
        };
        let request = Request {
            address: HERE,
            len_bytes,
            operations: 1,
            checksum: 0,
        };
        let mut reply = Vec::new();
        clients.begin(now, &asked, &request, &mut Writer::new(&mut reply))
    };
    assert_eq!(begin(513, false), Err(Status4::RequestTooBig));
    // Its reply would not be kept whatever it is.
    assert_eq!(begin(512, true), Err(Status4::ReplyTooBigToCache));
    assert!(matches!(begin(512, false), Ok(Begun::New { .. })));
}
