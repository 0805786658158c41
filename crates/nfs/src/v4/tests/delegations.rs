//! Read delegations: given, recalled, returned and revoked.

use std::time::Duration;

use super::*;
use crate::testing::compounds::operation::{DELEGRETURN, OPEN};
use crate::testing::compounds::{COMPOUND, create_session_for, open_existing};
use crate::testing::record;

const DELAY: u32 = 10_008;
const BAD_STATE_ID: u32 = 10_025;
const OPEN_MODE: u32 = 10_038;
const DELEGATION_REVOKED: u32 = 10_087;
const READ: (u32, u32) = (1, 0);
const BOTH: (u32, u32) = (3, 0);
/// Flags of SEQUENCE.
const PATH_DOWN: u32 = 0x201;
const STATE_REVOKED: u32 = 0x40;

/// What OPEN tells of a delegation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Delegated {
    None,
    Read(Vec<u8>),
    Refused(u32),
}

/// A recall as a client receives it.
struct Recall {
    xid: u32,
    /// The session, the sequence and the slot.
    sequence: Vec<u8>,
    delegation: Vec<u8>,
}

impl Client {
    /// A client that is called over its connection, which has this number.
    fn called(
        server: &mut TestServer,
        connection: u64,
        owner: &'static [u8],
        verifier: u64,
    ) -> Self {
        let mut peer = Peer::default();
        peer.back_channel = Some(connection);
        let mut reply = peer.compound(server, exchange(owner, verifier, 0));
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (42, OK));
        let (id, sequence) = (reply.u64(), reply.u32());
        let mut reply = peer.compound(server, create_session_for(id, sequence, 2));
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (43, OK));
        let session = state_id(&mut reply);
        assert_eq!((reply.u32(), reply.u32()), (sequence, 2), "a back channel");
        let mut this = Self {
            peer,
            id,
            session,
            sequence: 0,
            owner,
        };
        assert_eq!(this.complete(server), OK);
        this
    }

    /// Opens an existing file. Returns the status, the state ID and the delegation.
    fn open_delegated(
        &mut self,
        server: &mut TestServer,
        modes: (u32, u32),
    ) -> (u32, Vec<u8>, Delegated) {
        let open = open_existing((self.id, self.owner), modes, b"file");
        let mut reply = self.in_root(server, &open);
        let status = reply.u32();
        if status != OK {
            return (status, Vec::new(), Delegated::None);
        }
        let id = state_id(&mut reply);
        let _change: [u32; 6] = reply.words();
        let _set: Vec<u32> = (0..reply.u32()).map(|_| reply.u32()).collect();
        let delegated = match reply.u32() {
            0 => Delegated::None,
            1 => {
                let id = state_id(&mut reply);
                assert_eq!(
                    reply.words(),
                    [0; 5],
                    "no recall, and nobody is allowed anything"
                );
                Delegated::Read(id)
            }
            3 => {
                let why = reply.u32();
                if matches!(why, 1 | 2) {
                    assert!(!reply.bool());
                }
                Delegated::Refused(why)
            }
            other => panic!("delegation type {other}"),
        };
        reply.end();
        (status, id, delegated)
    }

    /// Opens `file` for reading, which is delegated. Returns both state IDs.
    fn take(&mut self, server: &mut TestServer) -> (Vec<u8>, Vec<u8>) {
        match self.open_delegated(server, READ) {
            (OK, open, Delegated::Read(delegation)) => (open, delegation),
            other => panic!("no delegation: {other:?}"),
        }
    }

    /// DELEGRETURN.
    fn give_back(&mut self, server: &mut TestServer, delegation: &[u8]) -> u32 {
        let operation = args().u32(DELEGRETURN).raw(delegation);
        self.on_file(server, b"file", &operation).u32()
    }

    /// The recall that the server has sent, if there is one.
    fn next_recall(&mut self, server: &mut TestServer) -> Option<Recall> {
        self.peer.wake(server);
        let mut call = self.peer.next_reply()?;
        let xid = call.u32();
        // A call of version 2 of RPC, of the program's version 1, procedure CB_COMPOUND.
        assert_eq!(call.words(), [0, 2, 0x4000_0000, 1, 1]);
        // AUTH_SYS, as the client has asked for, and a verifier of AUTH_NONE.
        assert_eq!(call.words(), [1, 20, 0, 0, 7, 8, 0, 0, 0]);
        // No tag, minor version 1, no identifier, two operations of which one is CB_SEQUENCE.
        assert_eq!(call.words(), [0, 1, 0, 2, 11]);
        let session = state_id(&mut call);
        assert_eq!(session, self.session);
        let [sequence, slot, highest, kept, referred]: [u32; 5] = call.words();
        assert_eq!((highest, kept, referred), (7, 0, 0));
        assert_eq!(call.u32(), 4, "CB_RECALL");
        let delegation = state_id(&mut call);
        assert!(!call.bool());
        assert_eq!(call.opaque().len(), 32, "a file handle");
        call.end();
        let sequence = args().raw(&session).u32(sequence).u32(slot).u32(7).u32(7).0;
        Some(Recall {
            xid,
            sequence,
            delegation,
        })
    }

    /// Replies to a recall.
    fn answer(&mut self, server: &mut TestServer, recall: &Recall, (first, second): (u32, u32)) {
        let head = args().u32(recall.xid).u32(1).u32(0).u32(0).u32(0).u32(0);
        let status = if first == OK { second } else { first };
        let reply = head.u32(status).opaque(b"");
        let reply = if first == OK {
            let reply = reply.u32(2).u32(11).u32(OK).raw(&recall.sequence);
            reply.u32(4).u32(second)
        } else {
            reply.u32(1).u32(11).u32(first)
        };
        let mark = (reply.0.len() as u32 | 1 << 31).to_be_bytes();
        self.peer.send(server, &[&mark[..], &reply.0].concat());
    }

    /// The status flags of SEQUENCE.
    fn flags(&mut self, server: &mut TestServer) -> u32 {
        self.sequence += 1;
        let arguments = self.sequenced((0, self.sequence, 0), &args());
        let mut reply = self.peer.compound(server, compound(1, &arguments));
        assert_eq!(head(&mut reply), (OK, 1));
        assert_eq!(result(&mut reply), (53, OK));
        let words: [u32; 9] = reply.words();
        words[8]
    }
}

/// A server with `file`, and two clients that are called.
fn server() -> (TestServer, Client, Client) {
    let mut server = TestServer::new(tree());
    let mut one = Client::called(&mut server, 1, b"one", 1);
    let mut two = Client::called(&mut server, 2, b"two", 2);
    two.peer.now = one.peer.now;
    let (status, open) = one.open(&mut server, b"file", BOTH);
    assert_eq!(status, OK);
    let close = args().u32(4).u32(0).raw(&open);
    assert_eq!(one.on_file(&mut server, b"file", &close).u32(), OK);
    (server, one, two)
}

#[test]
fn a_reader_has_a_delegation_until_a_writer_opens_the_file() {
    let (mut server, mut one, mut two) = server();
    let (open, delegation) = one.take(&mut server);
    // It is a state ID for reading, and of this client alone.
    let read = |id: &[u8]| args().u32(25).raw(id).u64(0).u32(1);
    let write = args().u32(38).raw(&delegation).u64(0).u32(0).opaque(b"x");
    assert_eq!(
        one.on_file(&mut server, b"file", &read(&delegation)).u32(),
        OK
    );
    assert_eq!(one.on_file(&mut server, b"file", &write).u32(), OPEN_MODE);
    assert_eq!(
        two.on_file(&mut server, b"file", &read(&delegation)).u32(),
        BAD_STATE_ID
    );
    // A second one is not given, and others that only read have one, too.
    assert_eq!(one.open_delegated(&mut server, READ).2, Delegated::None);
    let (_, other) = two.take(&mut server);
    // The client itself may write, but not while another has a delegation.
    assert_eq!(one.open_delegated(&mut server, BOTH).0, DELAY);
    let recall = two.next_recall(&mut server).expect("a recall");
    assert_eq!(recall.delegation, other);
    assert!(one.next_recall(&mut server).is_none(), "its own stays");
    two.answer(&mut server, &recall, (OK, OK));
    assert_eq!(one.open_delegated(&mut server, BOTH).0, DELAY);
    assert!(two.next_recall(&mut server).is_none(), "it is asked once");
    assert_eq!(two.give_back(&mut server, &other), OK);
    let (status, _, delegated) = one.open_delegated(&mut server, BOTH);
    assert_eq!((status, delegated), (OK, Delegated::None));
    assert_eq!(
        one.on_file(&mut server, b"file", &read(&delegation)).u32(),
        OK
    );
    // While anybody may write there are no new ones.
    assert_eq!(two.open_delegated(&mut server, READ).2, Delegated::None);
    assert_eq!(one.give_back(&mut server, &delegation), OK);
    assert_eq!(one.give_back(&mut server, &delegation), BAD_STATE_ID);
    let close = args().u32(4).u32(0).raw(&open);
    let _ = one.on_file(&mut server, b"file", &close);
}

#[test]
fn each_change_by_another_client_recalls_the_delegation() {
    let set_mode = args()
        .u32(34)
        .raw(&[0; 16])
        .u32(2)
        .u32(0)
        .u32(2)
        .u32(4)
        .u32(0o600);
    let set_size = args()
        .u32(34)
        .raw(&[0; 16])
        .u32(1)
        .u32(1 << 4)
        .u32(8)
        .u64(3);
    let write = args().u32(38).raw(&[0; 16]).u64(0).u32(0).opaque(b"x");
    for change in [set_mode, set_size, write] {
        let (mut server, mut one, mut two) = server();
        let (_, delegation) = one.take(&mut server);
        assert_eq!(two.on_file(&mut server, b"file", &change).u32(), DELAY);
        let recall = one.next_recall(&mut server).expect("a recall");
        assert_eq!(recall.delegation, delegation);
        assert_eq!(one.give_back(&mut server, &delegation), OK);
        assert_eq!(two.on_file(&mut server, b"file", &change).u32(), OK);
    }
}

#[test]
fn each_change_of_names_by_another_client_recalls_the_delegation() {
    let remove = args().u32(28).opaque(b"file");
    let save = args().u32(32);
    let rename = save.clone().u32(29).opaque(b"file").opaque(b"other");
    let replace = save.u32(29).opaque(b"new").opaque(b"file");
    let link = args().u32(15).opaque(b"file").u32(32);
    let link = link.u32(24).u32(15).opaque(b"db").u32(11).opaque(b"second");
    for (count, change) in [(1, remove), (2, rename), (2, replace), (5, link)] {
        let (mut server, mut one, mut two) = server();
        assert_eq!(two.open(&mut server, b"new", BOTH).0, OK);
        let (_, delegation) = one.take(&mut server);
        let mut status = |server: &mut TestServer| {
            two.sequence += 1;
            let operations = root().raw(&change.0);
            let arguments = two.sequenced((0, two.sequence, 0), &operations);
            let request = compound(3 + count, &arguments);
            head(&mut two.peer.compound(server, request))
        };
        assert_eq!(status(&mut server), (DELAY, 3 + count));
        let recall = one.next_recall(&mut server).expect("a recall");
        assert_eq!(recall.delegation, delegation);
        assert_eq!(one.give_back(&mut server, &delegation), OK);
        assert_eq!(status(&mut server), (OK, 3 + count));
    }
}

#[test]
fn each_change_by_version_3_recalls_the_delegation() {
    let mut failures = Vec::new();
    for procedure in [2, 7, 8, 12, 14, 15] {
        let (mut server, mut one, _) = server();
        let mut old = Peer::default();
        old.now = one.peer.now;
        let root = old.root(&mut server);
        let entry = args().opaque(&root).opaque(b"file");
        let mut found = old.call(&mut server, 3, entry.clone());
        assert_eq!(found.u32(), OK);
        let file = found.opaque();
        let arguments = match procedure {
            2 => args().opaque(&file).mode(0o600).u32(0),
            7 => args().opaque(&file).u64(0).u32(1).u32(0).opaque(b"x"),
            8 => entry.u32(0).mode(0o600),
            12 => entry,
            14 => entry.opaque(&root).opaque(b"other"),
            _ => args().opaque(&file).opaque(&root).opaque(b"second"),
        };
        let (_, delegation) = one.take(&mut server);
        let status = old.call(&mut server, procedure, arguments.clone()).u32();
        let is_recalled = one.next_recall(&mut server).is_some();
        let returned = one.give_back(&mut server, &delegation);
        let again = old.call(&mut server, procedure, arguments).u32();
        if (status, is_recalled, returned, again) != (DELAY, true, OK, OK) {
            failures.push((procedure, status, is_recalled, returned, again));
        }
    }
    assert_eq!(failures, []);
}

#[test]
fn a_delegation_that_is_not_returned_within_a_lease_is_revoked() {
    let (mut server, mut one, mut two) = server();
    let (_, delegation) = one.take(&mut server);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    let recall = one.next_recall(&mut server).expect("a recall");
    one.answer(&mut server, &recall, (OK, OK));
    for _ in 0..2 {
        for client in [&mut one, &mut two] {
            client.peer.now += Duration::from_secs(44);
            assert_eq!(client.flags(&mut server), 0);
        }
        assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    }
    one.peer.now += Duration::from_secs(3);
    two.peer.now += Duration::from_secs(3);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, OK);
    assert_eq!(one.flags(&mut server), STATE_REVOKED);
    let read = args().u32(25).raw(&delegation).u64(0).u32(1);
    assert_eq!(
        one.on_file(&mut server, b"file", &read).u32(),
        DELEGATION_REVOKED
    );
    let test = args().u32(55).u32(1).raw(&delegation);
    let mut reply = one.call(&mut server, 1, &test);
    assert_eq!(result(&mut reply), (55, OK));
    assert_eq!((reply.u32(), reply.u32()), (1, DELEGATION_REVOKED));
    let free = args().u32(45).raw(&delegation);
    assert_eq!(result(&mut one.call(&mut server, 1, &free)), (45, OK));
    assert_eq!(one.flags(&mut server), 0);
    assert_eq!(
        result(&mut one.call(&mut server, 1, &free)),
        (45, BAD_STATE_ID)
    );
}

#[test]
fn a_recall_is_repeated_until_the_client_takes_it() {
    let (mut server, mut one, mut two) = server();
    let (_, delegation) = one.take(&mut server);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    let first = one.next_recall(&mut server).expect("a recall");
    // The client does not know the delegation yet.
    one.answer(&mut server, &first, (OK, BAD_STATE_ID));
    assert!(one.next_recall(&mut server).is_none(), "not at once");
    one.peer.now += Duration::from_secs(1);
    one.peer.time_out(&mut server);
    let second = one.next_recall(&mut server).expect("another recall");
    assert_eq!(second.delegation, delegation);
    assert_ne!(second.sequence, first.sequence);
    // It has no time: the slot's number is not taken.
    one.answer(&mut server, &second, (DELAY, OK));
    one.peer.now += Duration::from_secs(1);
    let third = one.next_recall(&mut server).expect("another recall");
    assert_eq!(third.sequence, second.sequence);
    // What is no reply to a call of this server, or a second one, changes nothing.
    let other = Recall {
        xid: third.xid + 1,
        sequence: third.sequence.clone(),
        delegation: delegation.clone(),
    };
    one.answer(&mut server, &other, (OK, OK));
    one.answer(&mut server, &third, (OK, OK));
    one.answer(&mut server, &third, (OK, OK));
    one.peer.now += Duration::from_secs(2);
    assert!(one.next_recall(&mut server).is_none());
    assert_eq!(one.flags(&mut server), 0);
}

#[test]
fn a_client_that_cannot_be_called_learns_it_and_is_called_over_another_connection() {
    let (mut server, mut one, mut two) = server();
    let (_, delegation) = one.take(&mut server);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    let lost = one.next_recall(&mut server).expect("a recall");
    // No reply comes.
    one.peer.now += Duration::from_secs(10);
    one.peer.time_out(&mut server);
    assert_eq!(one.flags(&mut server), PATH_DOWN);
    // BIND_CONN_TO_SESSION of a new connection, whose recall has the same number of the slot.
    let mut other = Peer::default();
    (other.now, other.back_channel) = (one.peer.now, Some(3));
    let bind = args().u32(41).raw(&one.session).u32(7).u32(0);
    let call = compound(1, &bind).call(77, COMPOUND, (0, 0));
    other.send(&mut server, &record(&call));
    let reply = other.next_reply().expect("a reply");
    let mut reply = Reply::accepted(reply.bytes().to_vec(), 77);
    assert_eq!(head(&mut reply), (OK, 1));
    assert_eq!(result(&mut reply), (41, OK));
    assert_eq!(state_id(&mut reply), one.session);
    assert_eq!((reply.u32(), reply.u32()), (3, 0), "both channels");
    let wakes: Vec<_> = std::iter::from_fn(|| server.next_wake()).collect();
    assert_eq!(wakes.last(), Some(&3));
    let former = std::mem::replace(&mut one.peer, other);
    let recall = one.next_recall(&mut server).expect("a recall");
    assert_eq!(recall.sequence, lost.sequence);
    assert_eq!(one.flags(&mut server), 0);
    // The client has executed the first, whose reply was lost: it is called with the next number.
    one.answer(&mut server, &recall, (10_068, OK));
    let next = one.next_recall(&mut server).expect("a recall");
    assert_ne!(next.sequence, lost.sequence);
    one.answer(&mut server, &next, (OK, OK));
    drop(former);
    assert_eq!(one.give_back(&mut server, &delegation), OK);
    // The connection ends, and with it the last path.
    one.peer.close(&mut server);
    assert_eq!(one.flags(&mut server), PATH_DOWN);
    two.peer.now = one.peer.now + Duration::from_secs(60);
    one.peer.now = two.peer.now;
    assert_eq!(one.open_delegated(&mut server, READ).2, Delegated::None);
    // A reply that makes no sense ends the use of the back channel.
    let (_, _) = two.take(&mut server);
    let other = open_existing((one.id, one.owner), BOTH, b"file");
    assert_eq!(one.in_root(&mut server, &other).u32(), DELAY);
    let recall = two.next_recall(&mut server).expect("a recall");
    two.answer(&mut server, &recall, (10_052, OK));
    assert_eq!(two.flags(&mut server), PATH_DOWN | 0x400);
}

#[test]
fn a_client_says_which_delegation_it_wants() {
    const WANT_READ: u32 = 0x100;
    let (mut server, mut one, mut two) = server();
    for (wanted, access, why) in [
        (0x400, 1, 0),
        (0x500, 1, 7),
        (0x200, 1, 3),
        (WANT_READ, 3, 1),
    ] {
        let (status, open, delegated) = one.open_delegated(&mut server, (wanted | access, 0));
        assert_eq!((status, delegated), (OK, Delegated::Refused(why)));
        let close = args().u32(4).u32(0).raw(&open);
        assert_eq!(one.on_file(&mut server, b"file", &close).u32(), OK);
    }
    let (_, _, delegated) = one.open_delegated(&mut server, (WANT_READ | 1, 0));
    assert!(matches!(delegated, Delegated::Read(_)));
    let (_, _, delegated) = one.open_delegated(&mut server, (WANT_READ | 1, 0));
    assert_eq!(delegated, Delegated::Refused(2), "it has one");
    // A client that cannot be called, and one that is about to have to return it.
    let mut mute = Client::new(&mut server, b"mute", 3);
    let (_, open, delegated) = mute.open_delegated(&mut server, (WANT_READ | 1, 0));
    assert_eq!(delegated, Delegated::Refused(2));
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    let (_, _, delegated) = two.open_delegated(&mut server, (WANT_READ | 1, 0));
    assert_eq!(delegated, Delegated::Refused(1));
    let close = args().u32(4).u32(0).raw(&open);
    assert_eq!(mute.on_file(&mut server, b"file", &close).u32(), OK);
}

#[test]
fn a_file_is_opened_by_its_delegation_while_this_is_recalled() {
    let (mut server, mut one, mut two) = server();
    let (_, delegation) = one.take(&mut server);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    assert!(one.next_recall(&mut server).is_some());
    let by = |client: &Client, access, claim: Arguments| {
        let open = args().u32(OPEN).u32(0).u32(access).u32(0);
        let open = open.u64(client.id).opaque(b"second").u32(0);
        open.raw(&claim.0)
    };
    let entry = args().u32(2).raw(&delegation).opaque(b"file");
    let current = args().u32(5).raw(&delegation);
    let operation = by(&one, 1, entry.clone());
    assert_eq!(one.in_root(&mut server, &operation).u32(), OK);
    let operation = by(&one, 1, current);
    assert_eq!(one.on_file(&mut server, b"file", &operation).u32(), OK);
    // Not for more than it is for, not by others, and not what was before the client's restart.
    let operation = by(&one, 3, entry.clone());
    assert_eq!(one.in_root(&mut server, &operation).u32(), OPEN_MODE);
    let operation = by(&two, 1, entry);
    assert_eq!(two.in_root(&mut server, &operation).u32(), BAD_STATE_ID);
    let operation = by(&one, 1, args().u32(6));
    assert_eq!(one.on_file(&mut server, b"file", &operation).u32(), 10_004);
}

#[test]
fn a_client_is_called_as_it_has_said_last() {
    let (mut server, mut one, mut two) = server();
    let (_, _) = one.take(&mut server);
    // BACKCHANNEL_CTL: another program, and AUTH_NONE.
    let control = args().u32(40).u32(0x4000_0001).u32(1).u32(0);
    assert_eq!(result(&mut one.call(&mut server, 1, &control)), (40, OK));
    // In no way that is known here.
    let nothing = args().u32(40).u32(0x4000_0001).u32(0);
    assert_eq!(result(&mut one.call(&mut server, 1, &nothing)), (40, 22));
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    one.peer.wake(&mut server);
    let mut call = one.peer.next_reply().expect("a recall");
    let _xid = call.u32();
    assert_eq!(call.words(), [0, 2, 0x4000_0001, 1, 1]);
    assert_eq!(call.words(), [0, 0, 0, 0], "AUTH_NONE");
}

#[test]
fn a_recall_goes_on_in_another_session_of_the_client() {
    let (mut server, mut one, mut two) = server();
    let (_, delegation) = one.take(&mut server);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    assert!(one.next_recall(&mut server).is_some());
    let mut reply = one
        .peer
        .compound(&mut server, create_session_for(one.id, 2, 2));
    assert_eq!(head(&mut reply), (OK, 1));
    assert_eq!(result(&mut reply), (43, OK));
    let former = std::mem::replace(&mut one.session, state_id(&mut reply));
    one.sequence = 0;
    let call = compound(1, &args().u32(44).raw(&former)).call(77, COMPOUND, (0, 0));
    one.peer.send(&mut server, &record(&call));
    let reply = one.peer.next_reply().expect("a reply");
    let mut reply = Reply::accepted(reply.bytes().to_vec(), 77);
    assert_eq!(head(&mut reply), (OK, 1));
    let recall = one.next_recall(&mut server).expect("a recall");
    assert_eq!(recall.delegation, delegation);
}

#[test]
fn a_share_that_changes_without_clients_is_not_delegated() {
    let (mut server, mut one, _) = server();
    server.exports[0].may_delegate = false;
    assert_eq!(one.open_delegated(&mut server, READ).2, Delegated::None);
}

#[test]
fn delegations_end_with_their_client() {
    let (mut server, mut one, mut two) = server();
    let _ = one.take(&mut server);
    two.peer.now += Duration::from_secs(60);
    assert_eq!(two.open_delegated(&mut server, BOTH).0, DELAY);
    two.peer.now += Duration::from_secs(31);
    // The first client was silent for a lease.
    assert_eq!(two.open_delegated(&mut server, BOTH).0, OK);
}
