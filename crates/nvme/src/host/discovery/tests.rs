use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::host::CommandKey;
use crate::wire::StatusCode;

const BUFFER_BYTES: usize = 4096;

/// A discovery log as a controller has it.
struct Log {
    generation: u64,
    entries: Vec<DiscoveryEntry>,
}

impl Log {
    fn new(entries: u16) -> Self {
        let entry = |port: u16| {
            let mut entry = DiscoveryEntry::new_zeroed();
            entry.port.set(port);
            entry
        };
        Self {
            generation: 7,
            entries: (0..entries).map(entry).collect(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = DiscoveryHeader::new(self.generation, self.entries.len() as u64)
            .as_bytes()
            .to_vec();
        bytes.extend_from_slice(self.entries.as_bytes());
        bytes
    }
}

const OK: Outcome = Outcome {
    key: CommandKey(0),
    status: Status::SUCCESS,
    result: 0,
};

/// Carries one command out; `false` if there is none.
fn step(reader: &mut LogReader, log: &Log) -> Result<bool, DiscoveryError> {
    let LogStep::Submit(command) = reader.poll() else {
        return Ok(false);
    };
    let get = GetLogPage::parse(&command.sqe);
    assert_eq!(get.page, lid::DISCOVERY);
    assert!(get.len_bytes as usize <= BUFFER_BYTES);
    let bytes = log.bytes();
    let mut buffer = [0xEE; BUFFER_BYTES];
    let from = &bytes[(get.offset_bytes as usize).min(bytes.len())..];
    let len = from.len().min(get.len_bytes as usize);
    buffer[..len].copy_from_slice(&from[..len]);
    reader.handle_outcome(&OK, &buffer)?;
    Ok(true)
}

#[test]
fn a_log_longer_than_the_buffer_is_read_in_pieces_and_in_order() {
    for count in [0, 1, 3, 4, 5, 9] {
        let log = Log::new(count);
        let mut reader = LogReader::new(0, BUFFER_BYTES);
        while step(&mut reader, &log).unwrap() {}
        let ports: Vec<_> = reader
            .into_entries()
            .iter()
            .map(|entry| entry.port.get())
            .collect();
        assert_eq!(ports, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn only_the_last_read_lets_the_next_change_be_reported() {
    let log = Log::new(5);
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    let mut events = Vec::new();
    while let LogStep::Submit(command) = reader.poll() {
        events.push(GetLogPage::parse(&command.sqe).event);
        step(&mut reader, &log).unwrap();
    }
    let last = events.pop();
    assert_eq!(last, Some(RetainEvent::Clear));
    assert!(events.iter().all(|&event| event == RetainEvent::Retain));
}

#[test]
fn a_log_that_changes_while_it_is_read_is_read_again() {
    let mut log = Log::new(6);
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    step(&mut reader, &log).unwrap();
    step(&mut reader, &log).unwrap();
    log = Log::new(2);
    log.generation = 8;
    while step(&mut reader, &log).unwrap() {}
    assert_eq!(reader.into_entries().len(), 2);
}

#[test]
fn a_log_that_never_rests_is_given_up() {
    let mut log = Log::new(1);
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    let error = loop {
        log.generation += 1;
        match step(&mut reader, &log) {
            Ok(more) => assert!(more),
            Err(error) => break error,
        }
    };
    let restarts = LogReader::RESTARTS_MAX;
    assert_eq!(error, DiscoveryError::Unstable { restarts });
}

#[test]
fn a_claim_of_too_many_entries_takes_no_memory() {
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    let head = DiscoveryHeader::new(1, u64::MAX);
    let error = reader.handle_outcome(&OK, head.as_bytes());
    assert_eq!(
        error,
        Err(DiscoveryError::TooLong {
            entries: u64::MAX,
            max: LogReader::ENTRIES_MAX
        })
    );
    assert_eq!(reader.into_entries().capacity(), 0);
}

#[test]
fn another_record_format_and_a_refusal_are_errors() {
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    let mut head = DiscoveryHeader::new(1, 0);
    head.record_format.set(2);
    assert_eq!(
        reader.handle_outcome(&OK, head.as_bytes()),
        Err(DiscoveryError::Format { record_format: 2 })
    );
    let status = Status::from(StatusCode::InvalidLogPage);
    let refused = Outcome { status, ..OK };
    let mut reader = LogReader::new(0, BUFFER_BYTES);
    assert_eq!(
        reader.handle_outcome(&refused, head.as_bytes()),
        Err(DiscoveryError::Refused { status })
    );
}
