//! A target that sends any PDUs that a test chooses.

use super::*;
use crate::wire::{BHS_LEN, FINAL, NO_TASK_TAG, response};

/// A session that is logged in, and whose commands' tags are known.
struct Fixture {
    pair: Pair,
    stat_sn: u32,
}

/// The first tag of key 0: generation 0.
const TAG: u32 = 0;
const LEN: u32 = 4096;

impl Fixture {
    fn new() -> Self {
        Self::with(&config())
    }

    fn with(config: &SessionConfig) -> Self {
        Self {
            pair: Pair::logged_in(&target(), config, usize::MAX),
            stat_sn: 100,
        }
    }

    /// With a read of [`LEN`] bytes in flight under key 0.
    fn reading() -> Self {
        let mut fixture = Self::new();
        fixture
            .pair
            .submit(0, &io::read(extent(0, LEN), data(0, LEN)));
        fixture.pair.emit();
        fixture
    }

    /// With a write in flight that needs an R2T behind its first burst.
    fn writing() -> Self {
        let mut fixture = Self::new();
        let long = 1 << 20;
        fixture
            .pair
            .submit(0, &io::write(extent(0, long), data(0, long)));
        while !fixture.pair.emit().is_empty() {}
        fixture
    }

    fn feed(&mut self, pdu: &Pdu) -> Result<(), SessionError> {
        self.pair.feed(&pdu.bytes())
    }

    fn violation(&mut self, pdu: &Pdu) -> Violation {
        match self.feed(pdu) {
            Err(SessionError::Violation { violation, .. }) => {
                assert!(self.pair.session.is_closing());
                violation
            }
            other => panic!("{other:?} is no violation"),
        }
    }

    /// A PDU with the next StatSN and an open window.
    fn pdu(&mut self, opcode: u8) -> Pdu {
        let mut pdu = Pdu {
            header: [0; BHS_LEN],
            segment: Vec::new(),
        };
        pdu.header[0] = opcode;
        pdu.header[1] = FINAL;
        self.stat_sn += 1;
        let pdu = pdu.put(24, self.stat_sn);
        pdu.put(28, 1).put(32, 1000)
    }

    fn data_in(&mut self, sn: u32, offset: u32, len: usize) -> Pdu {
        let pdu = self.pdu(response::DATA_IN);
        pdu.put(16, TAG)
            .put(20, NO_TASK_TAG)
            .put(36, sn)
            .put(40, offset)
            .with(&vec![7; len])
    }

    fn r2t(&mut self, sn: u32, offset: u32, len: u32) -> Pdu {
        let pdu = self.pdu(response::R2T);
        pdu.put(16, TAG)
            .put(20, 77)
            .put(36, sn)
            .put(40, offset)
            .put(44, len)
    }
}

struct Pdu {
    header: [u8; BHS_LEN],
    segment: Vec<u8>,
}

impl Pdu {
    fn put(mut self, offset: usize, value: u32) -> Self {
        self.header[offset..offset + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    fn byte(mut self, offset: usize, value: u8) -> Self {
        self.header[offset] = value;
        self
    }

    fn with(mut self, segment: &[u8]) -> Self {
        self.segment = segment.to_vec();
        self.header[5..8].copy_from_slice(&(segment.len() as u32).to_be_bytes()[1..]);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.to_vec();
        bytes.extend_from_slice(&self.segment);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
}

const WITH_STATUS: u8 = FINAL | 1;

#[test]
fn data_in_pieces_and_a_collapsed_status_end_a_read() {
    let mut fixture = Fixture::reading();
    let first = fixture.data_in(0, 0, 1000).byte(1, 0);
    let rest = fixture.data_in(1, 1000, 3096).byte(1, WITH_STATUS);
    fixture.feed(&first).expect("in order");
    assert!(fixture.pair.done.is_empty());
    fixture.feed(&rest).expect("in order");
    assert_eq!(fixture.pair.done[0].result, Ok(LEN));
    assert_eq!(
        fixture.pair.buffers.slot(0)[..LEN as usize],
        [7; LEN as usize]
    );
}

#[test]
fn data_out_of_place_end_the_session() {
    let out = |sn, offset, len| {
        let mut fixture = Fixture::reading();
        let pdu = fixture.data_in(sn, offset, len);
        fixture.violation(&pdu)
    };
    assert!(matches!(out(1, 0, 512), Violation::Number { have: 1, .. }));
    assert!(matches!(out(0, 512, 512), Violation::Range { .. }));
    assert!(matches!(out(0, 0, 4100), Violation::Range { .. }));
    assert!(matches!(out(0, u32::MAX, 512), Violation::Range { .. }));
    let mut fixture = Fixture::reading();
    let other = fixture.data_in(0, 0, 512).put(16, 0x1_0000);
    assert_eq!(
        fixture.violation(&other),
        Violation::TaskTag { itt: 0x1_0000 }
    );
    let mut fixture = Fixture::writing();
    let to_a_write = fixture.data_in(0, 0, 512);
    assert!(matches!(
        fixture.violation(&to_a_write),
        Violation::TaskTag { .. }
    ));
    let mut fixture = Fixture::reading();
    let not_final = fixture.data_in(0, 0, 512).byte(1, 1);
    assert_eq!(fixture.violation(&not_final), Violation::Unexpected);
}

#[test]
fn a_short_read_says_how_short() {
    let mut fixture = Fixture::reading();
    let short = fixture
        .data_in(0, 0, 512)
        .byte(1, WITH_STATUS | 2)
        .put(44, 3584);
    fixture.feed(&short).expect("an underflow is no violation");
    assert_eq!(fixture.pair.done[0].result, Ok(512));
}

#[test]
fn r2ts_beyond_the_data_the_burst_or_the_count_end_the_session() {
    let first_burst = 256 << 10;
    let asked = |sn, offset, len| {
        let mut fixture = Fixture::writing();
        let pdu = fixture.r2t(sn, offset, len);
        fixture.violation(&pdu)
    };
    assert!(matches!(
        asked(1, first_burst, 512),
        Violation::Number { .. }
    ));
    assert!(matches!(asked(0, 0, 512), Violation::Range { .. }));
    assert!(matches!(
        asked(0, first_burst, 1 << 20),
        Violation::Range { .. }
    ));
    assert!(matches!(asked(0, first_burst, 0), Violation::Limit { .. }));
    let mut fixture = Fixture::writing();
    for sn in 0..4 {
        let pdu = fixture.r2t(sn, first_burst + sn * 512, 512);
        fixture.feed(&pdu).expect("as many as were negotiated");
    }
    let fifth = fixture.r2t(4, first_burst + 4 * 512, 512);
    assert!(matches!(fixture.violation(&fifth), Violation::Limit { .. }));
    let mut fixture = Fixture::reading();
    let to_a_read = fixture.r2t(0, 0, 512);
    assert!(matches!(
        fixture.violation(&to_a_read),
        Violation::TaskTag { .. }
    ));
}

#[test]
fn an_early_response_stops_the_data_that_were_asked_for() {
    let mut fixture = Fixture::writing();
    let r2t = fixture.r2t(0, 256 << 10, 512 << 10);
    fixture.feed(&r2t).expect("asked");
    let refused = fixture.pdu(response::SCSI_RESPONSE).byte(3, 0x18);
    fixture.feed(&refused).expect("a reservation conflict");
    assert_eq!(
        fixture.pair.done[0].result,
        Err(CommandFailure::Status {
            status: 0x18,
            sense: None
        })
    );
    assert!(fixture.pair.emit().is_empty(), "nothing is sent for it");
}

#[test]
fn an_outcome_waits_until_its_data_have_left_the_send_list() {
    let mut fixture = Fixture::new();
    fixture
        .pair
        .submit(0, &io::write(extent(0, 8192), data(0, 8192)));
    let pair = &mut fixture.pair;
    pair.session.poll_transmit(&pair.buffers, &mut pair.list);
    let len = pair.list.len_bytes();
    let early = fixture.pdu(response::SCSI_RESPONSE);
    fixture.feed(&early).expect("a target may be quick");
    let pair = &mut fixture.pair;
    assert!(pair.done.is_empty());
    pair.session.handle_sent(len - 1, &mut pair.done);
    assert!(pair.done.is_empty());
    pair.session.handle_sent(1, &mut pair.done);
    assert_eq!(pair.done[0].result, Ok(8192));
}

#[test]
fn pings_are_answered_and_a_flood_of_them_ends_the_session() {
    let mut fixture = Fixture::new();
    let silent = fixture
        .pdu(response::NOP_IN)
        .put(16, NO_TASK_TAG)
        .put(20, NO_TASK_TAG);
    fixture.feed(&silent).expect("wants no answer");
    assert!(fixture.pair.emit().is_empty());
    let ping = fixture
        .pdu(response::NOP_IN)
        .put(16, NO_TASK_TAG)
        .put(20, 5);
    fixture.feed(&ping).expect("a ping");
    let answer = fixture.pair.emit();
    assert_eq!(answer.len(), BHS_LEN);
    assert_eq!(answer[..2], [0x40, FINAL], "NOP-Out, immediate");
    assert_eq!(answer[16..24], [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 5]);
    let flood = (0..1000).find_map(|_| {
        let ping = fixture
            .pdu(response::NOP_IN)
            .put(16, NO_TASK_TAG)
            .put(20, 5);
        fixture.feed(&ping).err()
    });
    assert!(matches!(
        flood,
        Some(SessionError::Violation {
            violation: Violation::Limit { .. },
            ..
        })
    ));
}

#[test]
fn asynchronous_messages_are_heard() {
    let event = |fixture: &mut Fixture, event: u8| {
        let pdu = fixture.pdu(response::ASYNC);
        pdu.put(16, NO_TASK_TAG).byte(36, event)
    };
    let mut fixture = Fixture::new();
    let sense = [0, 14, 0x70, 0, 6, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0x2A, 9];
    let scsi = event(&mut fixture, 0).with(&sense);
    fixture.feed(&scsi).expect("an event");
    let Some(Event::Sense(sense)) = fixture.pair.session.poll_event() else {
        panic!("the event is told");
    };
    assert_eq!(sense.attention(), Some(scsi::host::Attention::Capacity));
    let logout = event(&mut fixture, 1);
    fixture.feed(&logout).expect("a request");
    assert_eq!(
        fixture.pair.session.poll_event(),
        Some(Event::LogoutRequested)
    );
    assert_eq!(fixture.pair.emit()[0], 0x46, "Logout Request, immediate");
    let vendor = event(&mut fixture, 255);
    fixture.feed(&vendor).expect("nothing that concerns us");
    let mut drop = event(&mut fixture, 3);
    drop.header[41] = 7;
    let dropped = SessionError::Dropped {
        event: 3,
        wait_s: 7,
    };
    assert_eq!(fixture.feed(&drop), Err(dropped));
}

#[test]
fn a_ping_of_ours_is_sent_once_and_answered_once() {
    let mut fixture = Fixture::new();
    let heard = fixture.pair.session.heard_pdus();
    fixture.pair.session.ping();
    fixture.pair.session.ping();
    let sent = fixture.pair.emit();
    assert_eq!(sent.len(), BHS_LEN, "one is enough");
    assert_eq!(sent[..2], [0x40, FINAL], "NOP-Out, immediate");
    let itt = u32::from_be_bytes([sent[16], sent[17], sent[18], sent[19]]);
    assert_eq!(sent[20..24], [0xFF; 4]);
    let answer = |fixture: &mut Fixture| {
        fixture
            .pdu(response::NOP_IN)
            .put(16, itt)
            .put(20, NO_TASK_TAG)
    };
    let first = answer(&mut fixture);
    fixture.feed(&first).expect("the answer");
    assert_eq!(fixture.pair.session.heard_pdus(), heard + 1);
    assert!(fixture.pair.emit().is_empty());
    let second = answer(&mut fixture);
    let refused = fixture.feed(&second);
    assert!(matches!(
        refused,
        Err(SessionError::Violation {
            violation: Violation::TaskTag { .. },
            ..
        })
    ));
}

#[test]
fn a_reject_ends_its_command_or_the_session() {
    let mut fixture = Fixture::reading();
    let mut command = [0; BHS_LEN];
    command[0] = 0x01;
    let reject = fixture
        .pdu(response::REJECT)
        .byte(2, 0x09)
        .put(16, NO_TASK_TAG)
        .with(&command);
    fixture.feed(&reject).expect("the command alone ends");
    assert_eq!(
        fixture.pair.done[0].result,
        Err(CommandFailure::Rejected { reason: 9 })
    );
    assert_eq!(
        fixture.feed(&reject),
        Err(SessionError::Rejected {
            opcode: 1,
            reason: 9
        })
    );
    // The command whose data were damaged has a response of its own.
    let mut fixture = Fixture::reading();
    let digest = fixture.pdu(response::REJECT).byte(2, 0x02).with(&command);
    fixture.feed(&digest).expect("noted");
    assert!(fixture.pair.done.is_empty());
}

#[test]
fn an_aborted_command_ends_when_the_target_says_so() {
    let mut fixture = Fixture::reading();
    let session = &mut fixture.pair.session;
    assert_eq!(session.abort(CommandKey(1)), Abort::NotInFlight);
    assert_eq!(session.abort(CommandKey(0)), Abort::Asked);
    assert_eq!(session.abort(CommandKey(0)), Abort::AskedBefore);
    let request = fixture.pair.emit();
    assert_eq!(request[..2], [0x42, 0x81], "ABORT TASK, immediate");
    assert_eq!(request[20..24], TAG.to_be_bytes());
    let tag = u32::from_be_bytes([request[16], request[17], request[18], request[19]]);
    let done = fixture.pdu(response::TASK_MANAGEMENT).put(16, tag);
    fixture.feed(&done).expect("done");
    assert_eq!(fixture.pair.done[0].result, Err(CommandFailure::Aborted));
    // Where the command ended first, nothing more happens.
    fixture.feed(&done).expect("crossed");
    assert_eq!(fixture.pair.done.len(), 1);
}

#[test]
fn wrong_digests_end_the_session_or_the_command() {
    let digests = SessionConfig {
        header_digest: Digest::Crc32c,
        data_digest: Digest::Crc32c,
        ..config()
    };
    let crc = |bytes: &[u8]| crc32c::crc32c(bytes).to_le_bytes();
    let mut fixture = Fixture::with(&digests);
    fixture
        .pair
        .submit(0, &io::read(extent(0, LEN), data(0, LEN)));
    fixture.pair.emit();
    let data = fixture.data_in(0, 0, LEN as usize).byte(1, WITH_STATUS);
    let mut bytes = data.header.to_vec();
    bytes.extend(crc(&data.header));
    bytes.extend(&data.segment);
    bytes.extend([0; 4]);
    fixture.pair.feed(&bytes).expect("the command alone fails");
    assert_eq!(fixture.pair.done[0].result, Err(CommandFailure::DataDigest));
    let nop = fixture.pdu(response::NOP_IN).put(16, NO_TASK_TAG);
    let mut bytes = nop.header.to_vec();
    bytes.extend([0; 4]);
    let error = fixture.pair.feed(&bytes);
    assert!(matches!(
        error,
        Err(SessionError::Violation {
            violation: Violation::HeaderDigest,
            ..
        })
    ));
}

#[test]
fn lengths_and_opcodes_out_of_range_end_the_session() {
    let mut fixture = Fixture::new();
    let ahs = fixture.pdu(response::SCSI_RESPONSE).byte(4, 1);
    assert_eq!(fixture.violation(&ahs), Violation::HasAhs);
    let mut fixture = Fixture::new();
    let mut long = fixture.pdu(response::TEXT);
    long.header[5..8].copy_from_slice(&[0xFF; 3]);
    assert!(matches!(
        fixture.violation(&long),
        Violation::SegmentLength { .. }
    ));
    for opcode in [0x01, 0x23, 0x3E, 0x10] {
        let mut fixture = Fixture::new();
        let pdu = fixture.pdu(opcode);
        assert_eq!(
            fixture.violation(&pdu),
            Violation::Unexpected,
            "{opcode:#x}"
        );
    }
    let mut fixture = Fixture::new();
    let stray = fixture.pdu(response::SCSI_RESPONSE).put(16, 7);
    assert_eq!(fixture.violation(&stray), Violation::TaskTag { itt: 7 });
    assert_eq!(fixture.feed(&stray), Err(SessionError::Closed));
}

#[test]
fn the_window_only_grows_and_contradictions_are_ignored() {
    let mut fixture = Fixture::new();
    let window = |fixture: &Fixture| fixture.pair.session.max_cmd_sn;
    let update = |fixture: &mut Fixture, exp: u32, max: u32| {
        let nop = fixture.pdu(response::NOP_IN).put(16, NO_TASK_TAG);
        let nop = nop.put(20, NO_TASK_TAG).put(28, exp).put(32, max);
        fixture.feed(&nop).expect("a NOP-In");
    };
    let before = window(&fixture);
    update(&mut fixture, 1, 5000);
    assert_eq!(window(&fixture), 5000);
    update(&mut fixture, 1, 400);
    assert_eq!(window(&fixture), 5000, "older than {before}");
    update(&mut fixture, 7000, 6000);
    assert_eq!(window(&fixture), 5000, "MaxCmdSN before ExpCmdSN - 1");
}
