//! iSER: the first message of a connection, and a script for a session that is logged in.

use std::time::Duration;

use block::Admission;
use session::Session as _;
use zerocopy::{FromBytes, IntoBytes};

use super::target::odd_cdb;
use super::{take, test_target};
use crate::iser::wire::{CmHeader, ControlHeader, Hello, HelloReply, Layout, Message, Tag};
use crate::iser::{PeerError, TargetConfig, accept};
use crate::testing::{IserBed, IserInitiator, TestTarget};
use crate::wire::command::{function, function_response};
use crate::wire::{FINAL, NO_TASK_TAG, request, response};

/// Blocks of the volume.
const BLOCKS: u64 = 256;
/// Task tags that scripts use.
const TAGS: u8 = 16;

/// A message: each one that is read is written back alike. Then the same message is the first of a
/// connection, whose request has the same bytes as private data.
pub fn iser_message(input: &[u8]) {
    let layout = Layout::of_login(input);
    match Message::parse(input, layout) {
        Ok(Message::Control(header, pdu)) => {
            let again = ControlHeader::new(header.write(), header.read());
            assert_eq!(again.write(), header.write());
            assert_eq!(again.read(), header.read());
            assert_eq!(layout.header_len() + pdu.len(), input.len());
        }
        Ok(Message::Hello(hello)) => {
            let reply: HelloReply = hello.reply(16);
            assert!(reply.reads_max.get() <= 16);
            assert!(reply.is_rejection() || reply.versions & 0x0F <= hello.versions >> 4);
        }
        Ok(Message::HelloReply(reply)) => assert_eq!(reply.opcode >> 4, 3),
        Err(_) => {}
    }
    let (_, reply) = accept(input);
    let reply = CmHeader::read_from_bytes(&reply).expect("of this length");
    let asked = CmHeader::parse(input);
    assert_eq!(reply.zero_based(), asked.is_some_and(CmHeader::zero_based));
    let len = input.len().min(TargetConfig::RECEIVE_LEN_BYTES as usize);
    let mut fixture = IserBed::new(&test_target(8), input, TargetConfig::default());
    fixture.layout = if reply.zero_based() {
        layout
    } else {
        Layout::Expanded
    };
    let _: Result<(), PeerError> = fixture.send_bytes(&input[..len]);
    assert_eq!(fixture.refused, [], "no buffer is reached before the login");
}

/// A session that is logged in, driven by a script of steps: commands whose buffers are as long as
/// they say, data that reads bring late, unsolicited data, task management, bare messages, time,
/// and changes of the volume. The target reaches no buffer but those that were named, and none
/// after it has answered.
pub fn iser_session(input: &[u8]) {
    let Some(([config], mut script)) = input.split_first_chunk() else {
        return;
    };
    let mut run = Run::new(*config);
    while run.step(&mut script).is_some() {}
    let IserBed {
        session,
        backend,
        now,
        ..
    } = &mut run.fixture;
    session.handle_close(*now, backend);
}

struct Run {
    target: TestTarget,
    fixture: IserBed,
    initiator: IserInitiator,
    next_key: u32,
    /// The tag and key of commands that have not been answered.
    named: Vec<(u32, u32)>,
    /// By the tag of a task management request, which keys are of the tasks that it ends.
    aborting: Vec<(u32, Vec<u32>)>,
    /// The script has sent something whose effects it does not track.
    is_raw: bool,
}

impl Run {
    fn new(config: u8) -> Self {
        let target = test_target(BLOCKS);
        let settings = TargetConfig {
            commands_max: if config & 1 != 0 { 4 } else { 128 },
            reads_max: 4,
        };
        let private_data = [config & 0xC0, 0, 0, 0];
        let mut run = Self {
            fixture: IserBed::new(&target, &private_data, settings),
            target,
            initiator: IserInitiator::default(),
            next_key: 1,
            named: Vec::new(),
            aborting: Vec::new(),
            is_raw: false,
        };
        run.fixture.posted.piece_max_bytes = 4096;
        if config & 0xA0 == 0x20 {
            run.fixture.layout = Layout::Short;
        }
        let mut keys = IserInitiator::KEYS.to_vec();
        let yes_no = |bit| if config & bit != 0 { "Yes" } else { "No" };
        keys.retain(|(key, _)| !matches!(*key, "InitialR2T" | "ImmediateData"));
        keys.push(("InitialR2T", yes_no(2)));
        keys.push(("ImmediateData", yes_no(4)));
        keys.push(("iSERHelloRequired", yes_no(8)));
        keys.push(("TaggedBufferForSolicitedDataOnly", "No"));
        let login = run.initiator.login(&keys);
        run.fixture.send(&login).expect("a sensible login");
        assert!(run.fixture.session.parameters().is_some(), "it succeeds");
        if config & 8 != 0 && config & 16 == 0 {
            let hello = Hello::new(4);
            run.fixture
                .send(hello.as_bytes())
                .expect("it was announced");
        }
        run.fixture.inbox.clear();
        run
    }

    /// Carries out the next step; `None` at the end of the script or of the connection.
    fn step(&mut self, script: &mut &[u8]) -> Option<()> {
        let [step, a, b, c] = take(script)?;
        match step % 8 {
            0..=2 => {
                let fields = take(script)?;
                self.command(step, [a, b, c], fields)
            }
            3 => {
                let (offset, len) = (u32::from(b & 0x0F) * 256, usize::from(c) * 16);
                let tag = u32::from(a % TAGS);
                let is_final = b & FINAL != 0;
                let message = IserInitiator::data_out(
                    tag,
                    u32::from(b >> 4 & 7),
                    offset,
                    is_final,
                    &vec![c; len],
                );
                self.send(&message)
            }
            4 => {
                self.fixture.holds_reads = a & 1 != 0;
                let taken = self.fixture.finish_read();
                let ran = self.fixture.run();
                self.check(taken.and(ran))
            }
            5 => {
                let (bytes, rest) = script.split_at(usize::from(a).min(script.len()));
                *script = rest;
                self.is_raw = true;
                let taken = self.fixture.send_bytes(bytes);
                self.check(taken)
            }
            6 => self.control([a, b, c]),
            _ => self.change(a, b),
        }
    }

    /// A command whose fields are mostly in range, and whose buffer has the length in the command.
    fn command(&mut self, step: u8, [a, b, c]: [u8; 3], fields: [u8; 8]) -> Option<()> {
        let (cdb, right, writes) = odd_cdb([b, c], fields);
        let [_, _, _, expected, immediate, kind, ..] = fields;
        let expected_len = match expected >> 6 {
            0 => right.saturating_add(u32::from(expected)).saturating_sub(8),
            _ => right,
        };
        let itt = u32::from(a % TAGS);
        let key = self.next_key;
        self.next_key += 1;
        let base = match self.fixture.layout {
            Layout::Expanded => u64::from(key) << 32,
            Layout::Short => 0,
        };
        let data = match (writes, immediate & 3) {
            (true, 1) => vec![c; (right as usize).min(8192)],
            (true, 2) => vec![c; usize::from(immediate) * 16],
            _ => Vec::new(),
        };
        let tag = Tag { stag: key, base };
        let names = kind & 0x0F != 0;
        if names {
            self.fixture
                .memory
                .push((key, base, vec![c; expected_len as usize]));
            self.named.push((itt, key));
        }
        let named = names.then_some(tag);
        let tags = if writes { (named, None) } else { (None, named) };
        let flags = if b & 0x80 != 0 { 0 } else { FINAL } | if writes { 0x21 } else { 0x41 };
        let mut message = self
            .initiator
            .command((itt, flags), &cdb, expected_len, &data, tags);
        message[28] |= step & 0x40;
        self.send(&message)
    }

    /// NOP-Out, task management, text, logout.
    fn control(&mut self, [a, b, c]: [u8; 3]) -> Option<()> {
        const OPCODES: [u8; 4] = [
            request::NOP_OUT,
            request::TASK_MANAGEMENT,
            request::TEXT,
            request::LOGOUT,
        ];
        let opcode = OPCODES[usize::from(a) % OPCODES.len()];
        let specific = if opcode == request::TASK_MANAGEMENT {
            u32::from(c % TAGS)
        } else {
            NO_TASK_TAG
        };
        let itt = u32::from(c) | 0x80;
        if opcode == request::TASK_MANAGEMENT {
            let is_meant = |of: u32| match b & 0x0F {
                function::ABORT_TASK => of == specific,
                function::ABORT_TASK_SET..=function::TARGET_COLD_RESET => true,
                _ => false,
            };
            let meant = self.named.iter().filter(|(of, _)| is_meant(*of));
            let keys = meant.map(|(_, key)| *key).collect();
            self.aborting.push((itt, keys));
        }
        let message = self
            .initiator
            .control(opcode | b & 0x40, FINAL | b & 0x0F, itt, specific);
        self.send(&message)
    }

    fn change(&mut self, a: u8, b: u8) -> Option<()> {
        let volume = self.target.volume(0);
        match a % 7 {
            0 => volume.resize(u64::from(b) + 1),
            1 => volume.set_read_only(b & 1 == 1),
            2 => {
                let until = self.fixture.now + Duration::from_micros(b.into());
                volume.set_admission(Admission::NotBefore(until));
            }
            3 => volume.set_admission(Admission::Now),
            4 => volume.set_failure((b & 1 == 1).then_some(block::Status::CapacityExceeded)),
            5 => self.fixture.posted.depth_max = 1 + usize::from(b % 8),
            _ => self.fixture.now += Duration::from_millis(u64::from(b) * 100),
        }
        let IserBed {
            session,
            backend,
            now,
            ..
        } = &mut self.fixture;
        let woken = session.handle_wake(*now, backend);
        let late = session.handle_timeout(*now, backend);
        let ran = self.fixture.run();
        self.check(woken.and(late).and(ran))
    }

    fn send(&mut self, message: &[u8]) -> Option<()> {
        let taken = self.fixture.send(message);
        self.check(taken)
    }

    /// The initiator reuses the buffers of answered commands: later accesses are rejected.
    fn check(&mut self, taken: Result<(), PeerError>) -> Option<()> {
        if !self.is_raw {
            assert_eq!(
                self.fixture.refused,
                [],
                "reached what is not named any more"
            );
        }
        while let Some(answer) = self.fixture.inbox.pop_front() {
            let tag = answer.bhs.itt.get();
            match answer.bhs.opcode() {
                response::SCSI_RESPONSE => self.answered(tag),
                response::TASK_MANAGEMENT if answer.status().0 == function_response::COMPLETE => {
                    self.aborted(tag);
                }
                response::TASK_MANAGEMENT
                | response::NOP_IN
                | response::TEXT
                | response::LOGOUT
                | response::REJECT
                | response::ASYNC => {}
                other => panic!("opcode {other:#x} was not expected"),
            }
        }
        taken.ok()?;
        (!self.fixture.session.is_closing() && self.fixture.refused.is_empty()).then_some(())
    }

    /// A command has ended: its buffer is reused, unless another command has the same tag.
    fn answered(&mut self, tag: u32) {
        let mut of_tag = self.named.iter().filter(|(itt, _)| *itt == tag);
        if let (Some(&(_, key)), None) = (of_tag.next(), of_tag.next()) {
            self.take_back(&[key]);
        }
    }

    /// Tasks were aborted, as the request of this tag asked.
    fn aborted(&mut self, tag: u32) {
        let mut of_tag = self.aborting.iter().filter(|(itt, _)| *itt == tag);
        if let (Some((_, keys)), None) = (of_tag.next(), of_tag.next()) {
            let keys = keys.clone();
            self.take_back(&keys);
        }
        self.aborting.retain(|(itt, _)| *itt != tag);
    }

    fn take_back(&mut self, keys: &[u32]) {
        self.named.retain(|(_, key)| !keys.contains(key));
        self.fixture.memory.retain(|(key, ..)| !keys.contains(key));
    }
}
