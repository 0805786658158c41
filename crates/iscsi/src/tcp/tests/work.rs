//! Commands that take many turns, in memory: what happens between two of them.

mod late;

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::testing::VecVolume;
use block::{Admission, BlockSize, ByteRange, Status};
use session::{Session as _, StreamSession as _};

use crate::tcp::TargetSession;
use crate::testing::{TestBackend, TestTarget};
use crate::text::TextBuilder;
use crate::wire::command::{function, function_response};
use crate::wire::{FINAL, request, response};

/// Of what is filled: some turns of WRITE SAME.
const LEN_BYTES: u64 = 16 << 20;
/// Bytes before that: SANITIZE takes another turn for them.
const START_BYTES: u64 = 16 << 20;
const WRITE: u8 = FINAL | 0x20;
const READ: u8 = FINAL | 0x40;
const ORDERED: u8 = 2;
const TASK_ABORTED: u8 = 0x40;
const LONG: u32 = 100;

/// A session of one connection.
struct Session {
    connection: TargetSession<TestBackend>,
    backend: TestBackend,
    cmd_sn: u32,
    now: Instant,
    /// Initiator task tag and status byte (task management: the response) of what was answered.
    answers: Vec<(u32, u8)>,
}

impl Session {
    fn new(target: &TestTarget, initiator: &str) -> Self {
        let mut session = Self {
            connection: TargetSession::new(),
            backend: target.backend(),
            cmd_sn: 1,
            now: Instant::now(),
            answers: Vec::new(),
        };
        let mut text = TextBuilder::default();
        text.push("InitiatorName", initiator);
        text.push("TargetName", TestTarget::NAME);
        let mut header = [0; 48];
        (header[0], header[1], header[13], header[27]) = (0x43, 0x87, 1, 1);
        session.send(header, &text.into_bytes());
        session.backend.clear_attention();
        session.answers.clear();
        session
    }

    fn send(&mut self, mut header: [u8; 48], data: &[u8]) {
        header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        let (now, backend) = (self.now, &mut self.backend);
        let taken = self.connection.handle_bytes(now, &bytes, backend);
        taken.expect("the connection goes on");
        self.collect();
    }

    fn command(&mut self, itt: u32, flags: u8, cdb: &[u8], expected: u32, data: &[u8]) {
        let mut header = [0; 48];
        (header[0], header[1]) = (request::SCSI_COMMAND, flags);
        header[16..20].copy_from_slice(&itt.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.cmd_sn += 1;
        self.send(header, data);
    }

    /// WRITE SAME (16) of all that is filled.
    fn fill(&mut self, itt: u32, byte: u8) {
        let mut cdb = [0; 16];
        cdb[0] = 0x93;
        cdb[2..10].copy_from_slice(&(START_BYTES >> 9).to_be_bytes());
        cdb[10..14].copy_from_slice(&((LEN_BYTES >> 9) as u32).to_be_bytes());
        self.command(itt, WRITE, &cdb, 512, &[byte; 512]);
    }

    /// SANITIZE by BLOCK ERASE, with these bits beside the service action.
    fn sanitize(&mut self, itt: u32, flags: u8) {
        let cdb = [0x48, flags | 2, 0, 0, 0, 0, 0, 0, 0, 0];
        self.command(itt, FINAL, &cdb, 0, &[]);
    }

    fn read(&mut self, itt: u32, attribute: u8) {
        let cdb = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        self.command(itt, READ | attribute, &cdb, 512, &[]);
    }

    fn abort(&mut self, tag: u32) {
        self.task_management(tag + 1, function::ABORT_TASK, tag);
    }

    fn task_management(&mut self, itt: u32, function: u8, tag: u32) {
        let mut header = [0; 48];
        header[0] = request::TASK_MANAGEMENT | 0x40;
        header[1] = FINAL | function;
        header[16..20].copy_from_slice(&itt.to_be_bytes());
        header[20..24].copy_from_slice(&tag.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.send(header, &[]);
    }

    /// Runs the next turn; returns whether another turn is due at once.
    fn turn(&mut self) -> bool {
        let due = self.connection.poll_timeout();
        if due.is_none_or(|due| due > self.now) {
            return false;
        }
        let (now, backend) = (self.now, &mut self.backend);
        let kept = self.connection.handle_timeout(now, backend);
        kept.expect("the connection goes on");
        self.collect();
        true
    }

    fn wake(&mut self) {
        if self.backend.take_wake() {
            let (now, backend) = (self.now, &mut self.backend);
            let woken = self.connection.handle_wake(now, backend);
            woken.expect("the connection goes on");
            self.collect();
        }
    }

    fn turns(&mut self) -> usize {
        (0..1000).take_while(|_| self.turn()).count()
    }

    fn collect(&mut self) {
        let bytes = self.backend.drain(self.now, &mut self.connection);
        let mut rest = &bytes[..];
        while let Some((header, after)) = rest.split_first_chunk::<48>() {
            let len = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
            let status = match header[0] {
                response::TASK_MANAGEMENT => header[2],
                _ => header[3],
            };
            let itt = [header[16], header[17], header[18], header[19]];
            self.answers.push((u32::from_be_bytes(itt), status));
            rest = &after[len.next_multiple_of(4)..];
        }
    }
}

fn target() -> TestTarget {
    let volume = VecVolume::new(BlockSize::B512, (START_BYTES + LEN_BYTES) >> 9);
    TestTarget::new(vec![Arc::new(volume)])
}

/// All of it full of `byte`, by `session`.
fn fill_all(session: &mut Session, byte: u8) {
    session.fill(LONG, byte);
    session.turns();
    assert_eq!(std::mem::take(&mut session.answers), [(LONG, 0)]);
}

/// How many bytes of the volume hold `byte`, looked at once in each MiB.
fn filled_mib(target: &TestTarget, byte: u8) -> u64 {
    let is_filled = |mib: &u64| {
        let offset = START_BYTES + (mib << 20);
        target.volume(0).bytes(ByteRange { offset, len: 1 }) == [byte]
    };
    (0..LEN_BYTES >> 20).filter(is_filled).count() as u64
}

#[test]
fn others_are_answered_between_two_turns() {
    let target = target();
    let (mut long, mut other) = (
        Session::new(&target, "iqn.long"),
        Session::new(&target, "iqn.other"),
    );
    long.fill(LONG, 7);
    assert_eq!((long.answers.len(), filled_mib(&target, 7)), (0, 4));
    assert!(!long.connection.is_idle());
    // On the same connection, and on another.
    long.read(1, 0);
    other.read(1, 0);
    assert_eq!(
        (&long.answers[..], &other.answers[..]),
        (&[(1, 0)][..], &[(1, 0)][..])
    );
    let turns = long.turns();
    assert!((3..=6).contains(&turns), "{turns} turns");
    assert_eq!(long.answers, [(1, 0), (LONG, 0)]);
    assert_eq!(filled_mib(&target, 7), LEN_BYTES >> 20);
    assert!(long.connection.is_idle());
}

#[test]
fn all_commands_of_a_connection_share_its_turns() {
    let target = target();
    let mut long = Session::new(&target, "iqn.long");
    for itt in 0..8 {
        long.fill(LONG + itt, 7);
    }
    let turns = long.turns();
    assert!((28..=48).contains(&turns), "{turns} turns for 128 MiB");
    let statuses: Vec<_> = long.answers.iter().map(|(_, status)| *status).collect();
    assert_eq!(statuses, [0; 8]);
}

#[test]
fn an_ordered_command_waits_for_the_last_turn() {
    let target = target();
    let mut long = Session::new(&target, "iqn.long");
    long.fill(LONG, 7);
    long.read(1, ORDERED);
    assert_eq!(long.answers, []);
    long.turns();
    assert_eq!(long.answers, [(LONG, 0), (1, 0)]);
}

#[test]
fn an_aborted_command_does_no_more() {
    let target = target();
    let mut long = Session::new(&target, "iqn.long");
    long.fill(LONG, 7);
    assert!(long.turn());
    let filled = filled_mib(&target, 7);
    assert!(filled < LEN_BYTES >> 20);
    long.abort(LONG);
    // Its slot has another use before its turn would have come.
    long.read(LONG, 0);
    assert!(long.turn(), "to see that there is nothing to do");
    assert!(!long.turn());
    assert_eq!(filled_mib(&target, 7), filled);
    let aborted = (LONG + 1, function_response::COMPLETE);
    assert_eq!(long.answers, [aborted, (LONG, 0)]);
}

#[test]
fn another_session_may_clear_the_task_set_between_two_turns() {
    let target = target();
    let (mut long, mut other) = (
        Session::new(&target, "iqn.long"),
        Session::new(&target, "iqn.other"),
    );
    long.fill(LONG, 7);
    let filled = filled_mib(&target, 7);
    other.task_management(9, function::CLEAR_TASK_SET, 0);
    long.wake();
    other.wake();
    assert_eq!(long.answers, [(LONG, TASK_ABORTED)]);
    assert_eq!(other.answers, [(9, function_response::COMPLETE)]);
    long.turns();
    assert_eq!(filled_mib(&target, 7), filled);
}

#[test]
fn a_command_whose_unit_or_session_goes_ends_at_its_next_turn() {
    let target = target();
    let mut long = Session::new(&target, "iqn.long");
    long.fill(LONG, 7);
    let filled = filled_mib(&target, 7);
    target.device().remove_unit(0);
    long.turns();
    assert_eq!(long.answers, [(LONG, 2)]);
    assert_eq!(filled_mib(&target, 7), filled);
}

#[test]
fn a_command_does_not_go_on_in_another_volume_behind_its_lun() {
    let target = target();
    let mut long = Session::new(&target, "iqn.long");
    long.fill(LONG, 7);
    let blocks = (START_BYTES + LEN_BYTES) / 512;
    let other = Arc::new(VecVolume::new(BlockSize::B512, blocks));
    let identity = scsi::UnitIdentity::derived(9, "other".into());
    let unit = Arc::clone(&other);
    target.device().insert_unit(0, unit, identity);
    long.turns();
    assert_eq!(long.answers, [(LONG, 2)]);
    assert!(other.contents().iter().all(|byte| *byte == 0));
}

#[test]
fn sanitize_is_answered_at_once_or_when_it_is_done_and_meanwhile_the_unit_is_not_ready() {
    let target = target();
    let (mut long, mut other) = (
        Session::new(&target, "iqn.long"),
        Session::new(&target, "iqn.other"),
    );
    for (flags, answers_at_once) in [(0x80, 1), (0, 0)] {
        fill_all(&mut long, 7);
        long.sanitize(LONG, flags);
        assert_eq!(long.answers.len(), answers_at_once);
        long.read(1, 0);
        other.read(1, 0);
        assert_eq!(std::mem::take(&mut other.answers), [(1, 2)]);
        long.turns();
        other.read(2, 0);
        assert_eq!(std::mem::take(&mut other.answers), [(2, 0)]);
        let mut answers = std::mem::take(&mut long.answers);
        answers.sort_unstable();
        assert_eq!(answers, [(1, 2), (LONG, 0)]);
        assert_eq!(filled_mib(&target, 0), LEN_BYTES >> 20);
    }
}

#[test]
fn a_sanitize_goes_on_when_it_is_aborted_or_its_session_ends() {
    let target = target();
    let (mut long, mut other) = (
        Session::new(&target, "iqn.long"),
        Session::new(&target, "iqn.other"),
    );
    fill_all(&mut long, 7);
    long.sanitize(LONG, 0);
    assert!(filled_mib(&target, 7) > 0);
    long.abort(LONG);
    long.turns();
    assert_eq!(long.answers, [(LONG + 1, function_response::COMPLETE)]);
    assert_eq!(filled_mib(&target, 0), LEN_BYTES >> 20);
    long.answers.clear();
    fill_all(&mut long, 7);
    long.sanitize(LONG, 0);
    assert!(filled_mib(&target, 7) > 0);
    let Session {
        mut connection,
        mut backend,
        now,
        ..
    } = long;
    connection.handle_close(now, &mut backend);
    assert_eq!(filled_mib(&target, 0), LEN_BYTES >> 20);
    other.read(1, 0);
    assert_eq!(other.answers, [(1, 0)]);
}

#[test]
fn filters_of_both_volumes_count_a_copy_and_hold_its_answer_back_or_fail_it() {
    let volumes = [0, 1].map(|_| Arc::new(VecVolume::new(BlockSize::B512, 8 << 11)));
    let target = TestTarget::new(volumes.to_vec());
    let mut session = Session::new(&target, "iqn.copies");
    let list = scsi::testing::copy_list([0, 1], 6 << 11, [0, 0]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    for volume in &volumes {
        let until = session.now + Duration::from_secs(1);
        for (admission, at_once) in [
            (Admission::NotBefore(until), vec![]),
            (Admission::Fail(Status::WriteError, None), vec![(LONG, 2)]),
            (Admission::Now, vec![(LONG, 0)]),
        ] {
            volume.set_admission(admission);
            session.command(LONG, WRITE, &cdb, list.len() as u32, &list);
            session.turns();
            assert_eq!(session.answers, at_once, "{admission:?}");
            if at_once.is_empty() {
                session.now = until;
                session.turns();
                assert_eq!(session.answers, [(LONG, 0)]);
            }
            session.answers.clear();
        }
    }
    // Two whole copies for each volume, and the first slices of those that failed: where the
    // source refuses it, the destination is not asked.
    let slices = [(4 * 6 + 2 * 4) << 20, (4 * 6 + 4) << 20];
    assert_eq!(volumes.map(|volume| volume.admitted_bytes()), slices);
}
