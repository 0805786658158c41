use block::{BlockSize, Blocks, Geometry};
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::wire::StatusCode;
use crate::wire::identify::IdentifyNamespace;

const TIMEOUT: Duration = Duration::from_secs(15);
const NAMESPACE_CHANGED: u64 = 0x04_00_02;

struct Fixture {
    upkeep: Upkeep,
    buffers: Buffers,
    now: Instant,
}

impl Fixture {
    fn new(keep_alive_timeout: Duration) -> Self {
        let now = Instant::now();
        let nsid = Nsid(1);
        Self {
            upkeep: Upkeep::new(
                now,
                UpkeepConfig {
                    keep_alive_timeout,
                    nsid,
                },
            ),
            buffers: Buffers::new(Upkeep::KEYS, DATA_BYTES),
            now,
        }
    }

    /// Opcodes of what is to be submitted now.
    fn opcodes(&mut self) -> Vec<u8> {
        let commands = std::iter::from_fn(|| self.upkeep.poll_command(self.now));
        commands.map(|(_, command)| command.sqe.opcode).collect()
    }

    fn end(
        &mut self,
        key: CommandKey,
        status: Status,
        result: u64,
    ) -> Result<Option<UpkeepEvent>, UpkeepError> {
        let outcome = Outcome {
            key,
            status,
            result,
        };
        self.upkeep
            .handle_outcome(self.now, &outcome, &self.buffers)
    }

    fn ok(&mut self, key: CommandKey, result: u64) -> Option<UpkeepEvent> {
        self.end(key, Status::SUCCESS, result).unwrap()
    }

    fn set_blocks(&mut self, blocks: u64) {
        let mut id = IdentifyNamespace::new_zeroed();
        id.size_blocks = U64::new(blocks);
        id.formats[0].data_shift = 9;
        let slot = self.buffers.slot_mut(Upkeep::READ_KEY.0);
        slot.copy_from_slice(id.as_bytes());
    }
}

#[test]
fn keep_alives_are_sent_at_a_third_of_the_timeout_one_at_a_time() {
    let mut fixture = Fixture::new(TIMEOUT);
    assert_eq!(fixture.opcodes(), [opcode::ASYNC_EVENT_REQUEST]);
    let due = fixture.now + TIMEOUT / 3;
    assert_eq!(fixture.upkeep.poll_timeout(), Some(due));
    fixture.now = due;
    assert_eq!(fixture.opcodes(), [opcode::KEEP_ALIVE]);
    assert_eq!(fixture.opcodes(), []);
    fixture.ok(Upkeep::KEEP_ALIVE_KEY, 0);
    assert_eq!(fixture.upkeep.poll_timeout(), Some(due + TIMEOUT / 3));
}

#[test]
fn a_controller_that_does_not_answer_a_keep_alive_is_silent() {
    let mut fixture = Fixture::new(TIMEOUT);
    fixture.now += TIMEOUT / 3;
    fixture.opcodes();
    let late = fixture.now + TIMEOUT;
    assert_eq!(fixture.upkeep.check(fixture.now), Ok(()));
    assert_eq!(
        fixture.upkeep.check(late),
        Err(UpkeepError::Silent { timeout: TIMEOUT })
    );
    let status = Status::from(StatusCode::InvalidOpcode);
    assert_eq!(
        fixture.end(Upkeep::KEEP_ALIVE_KEY, status, 0),
        Err(UpkeepError::KeepAliveRefused { status })
    );
}

#[test]
fn without_a_timeout_nothing_is_kept_alive() {
    let mut fixture = Fixture::new(Duration::ZERO);
    assert_eq!(fixture.upkeep.poll_timeout(), None);
    fixture.now += TIMEOUT;
    assert_eq!(fixture.opcodes(), [opcode::ASYNC_EVENT_REQUEST]);
}

#[test]
fn a_namespace_event_leads_to_the_new_geometry_and_the_next_request() {
    let mut fixture = Fixture::new(TIMEOUT);
    fixture.opcodes();
    assert_eq!(fixture.ok(Upkeep::EVENT_KEY, NAMESPACE_CHANGED), None);
    assert_eq!(
        fixture.opcodes(),
        [opcode::ASYNC_EVENT_REQUEST, opcode::GET_LOG_PAGE]
    );
    assert_eq!(fixture.ok(Upkeep::READ_KEY, 0), None);
    assert_eq!(fixture.opcodes(), [opcode::IDENTIFY]);
    fixture.set_blocks(77);
    let Some(UpkeepEvent::Namespace(facts)) = fixture.ok(Upkeep::READ_KEY, 0) else {
        panic!("the namespace was identified");
    };
    let geometry = Geometry::new(BlockSize::B512, Blocks(77));
    assert_eq!(facts.geometry, geometry);
    assert_eq!(fixture.opcodes(), []);
}

#[test]
fn an_event_during_a_read_leads_to_another_read() {
    let mut fixture = Fixture::new(TIMEOUT);
    fixture.opcodes();
    fixture.ok(Upkeep::EVENT_KEY, NAMESPACE_CHANGED);
    fixture.opcodes();
    fixture.ok(Upkeep::READ_KEY, 0);
    assert_eq!(fixture.opcodes(), [opcode::IDENTIFY]);
    fixture.ok(Upkeep::EVENT_KEY, NAMESPACE_CHANGED);
    fixture.set_blocks(1);
    fixture.ok(Upkeep::READ_KEY, 0);
    assert_eq!(
        fixture.opcodes(),
        [opcode::ASYNC_EVENT_REQUEST, opcode::GET_LOG_PAGE]
    );
}

#[test]
fn a_namespace_without_blocks_is_gone() {
    let mut fixture = Fixture::new(TIMEOUT);
    fixture.opcodes();
    fixture.ok(Upkeep::EVENT_KEY, NAMESPACE_CHANGED);
    fixture.opcodes();
    fixture.ok(Upkeep::READ_KEY, 0);
    fixture.opcodes();
    fixture.set_blocks(0);
    assert_eq!(
        fixture.ok(Upkeep::READ_KEY, 0),
        Some(UpkeepEvent::NamespaceGone)
    );
}

#[test]
fn a_change_of_the_discovery_log_is_reported() {
    let mut fixture = Fixture::new(TIMEOUT);
    fixture.opcodes();
    assert_eq!(
        fixture.ok(Upkeep::EVENT_KEY, 0x70_F0_02),
        Some(UpkeepEvent::DiscoveryLog)
    );
}

#[test]
fn a_controller_that_refuses_requests_for_events_is_not_asked_again() {
    let mut fixture = Fixture::new(TIMEOUT);
    fixture.opcodes();
    let status = StatusCode::AsyncEventLimitExceeded.into();
    assert_eq!(fixture.end(Upkeep::EVENT_KEY, status, 0), Ok(None));
    assert_eq!(fixture.opcodes(), []);
}
