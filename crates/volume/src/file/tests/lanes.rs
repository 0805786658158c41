//! File volumes in threads that drive the file themselves: when they do, and what happens when such
//! a thread or the volume ends.

use std::sync::mpsc;

use block::{Completion, Completions as _};

use super::*;

/// A fixture with a budget that has room for `queues` queues, and 4 MiB of frames.
fn bed_with_room(path: &Path, queues: u64) -> Fixture {
    let bytes = queues * FileQueue::memory_bytes(FRAME_BYTES) + 4 * MIB;
    let budget = Arc::new(Budget::new(bytes));
    Fixture::with(&spec(path, MIB), Origin::New, Drives::Itself, &budget).expect("opens")
}

/// Begins a read that its volume has to wait for.
fn begin_read(fixture: &mut Fixture, at: Extent) -> Ticket {
    fixture.slot += 1;
    let ticket = Ticket {
        connection: Ticket::CONNECTIONS_MIN,
        slot: fixture.slot,
        generation: 0,
    };
    let intent = Intent {
        kind: OpKind::Read,
        extents: &[at],
        len_bytes: 0,
        data_use: DataUse::Read,
        persistence: Persistence::Volatile,
    };
    let admitted = fixture.volume.admit(Instant::now(), &intent, ticket);
    assert_eq!(admitted, Admission::Later(None));
    ticket
}

#[test]
fn a_thread_with_a_lane_completes_its_commands_itself() {
    let folder = Folder::new();
    let mut fixture = Fixture::new(&folder.join("disk"), MIB);
    assert!(fixture.settle_in());
    let here = Some(thread::current().id());
    for number in 0..200_u64 {
        fixture.write(number, &[number as u8; 512]).expect("writes");
        assert_eq!(fixture.reports.reporter(), here, "a write");
        assert_eq!(fixture.read(number, 1), Ok(vec![number as u8; 512]));
        assert_eq!(fixture.reports.reporter(), here, "a read");
        fixture.flush().expect("flushes");
        assert_eq!(fixture.reports.reporter(), here, "a flush");
    }
}

#[test]
fn without_memory_for_a_queue_the_volumes_thread_goes_on() {
    let folder = Folder::new();
    let mut fixture = bed_with_room(&folder.join("disk"), 1);
    let here = Some(thread::current().id());
    for number in 0..200_u64 {
        fixture.write(number, &[7; 512]).expect("writes");
        assert_ne!(fixture.reports.reporter(), here);
    }
    fixture.end();
    let bytes = std::fs::read(folder.join("disk")).expect("reads");
    assert!(bytes[..200 * 512].iter().all(|byte| *byte == 7));
}

#[test]
fn a_queues_memory_is_charged_until_its_thread_ends() {
    let folder = Folder::new();
    let budget = Arc::new(Budget::new(64 * MIB));
    let spec = spec(&folder.join("disk"), MIB);
    let mut fixture = Fixture::with(&spec, Origin::New, Drives::Itself, &budget).expect("opens");
    let before = budget.used_bytes();
    assert!(fixture.settle_in());
    let queue = FileQueue::memory_bytes(FRAME_BYTES);
    assert!(budget.used_bytes() >= before + queue);
    fixture.reactor = None;
    assert!(budget.used_bytes() < before + queue);
}

#[test]
fn what_a_thread_has_not_begun_when_it_ends_is_carried_out() {
    let folder = Folder::new();
    let mut fixture = Fixture::new(&folder.join("disk"), MIB);
    fixture.write(500, &[5; 512]).expect("writes");
    assert!(fixture.settle_in());
    let ticket = begin_read(&mut fixture, extent(500, 1));
    fixture.reactor = None;
    fixture.wait(ticket).expect("the volume's thread reads it");
    let mut buffer = [0; 512];
    let dest = ReadDest::Copy(&mut buffer);
    let at = extent(500, 1);
    fixture
        .volume
        .execute(Op::Read { extent: at, dest })
        .expect("it is in memory");
    fixture.volume.release(ticket);
    assert_eq!(buffer, [5; 512]);
    assert_eq!(fixture.read(500, 1), Ok(vec![5; 512]), "without a lane");
}

#[test]
fn more_requests_than_slots_are_all_carried_out() {
    let folder = Folder::new();
    let size = 200 * u64::from(FRAME_BYTES);
    let mut fixture = Fixture::new(&folder.join("disk"), size);
    assert!(fixture.settle_in());
    let blocks = u64::from(FRAME_BYTES) / 512;
    let tickets: Vec<_> = (0..200)
        .map(|number| begin_read(&mut fixture, extent(number * blocks, 1)))
        .collect();
    for ticket in tickets {
        fixture.wait(ticket).expect("reads");
        fixture.volume.release(ticket);
    }
}

#[test]
fn a_closed_volume_frees_its_file_though_threads_with_queues_sleep() {
    let folder = Folder::new();
    let path = folder.join("disk");
    let last = Completion {
        ticket: Ticket {
            connection: u64::MAX,
            slot: 0,
            generation: 0,
        },
        result: Ok(()),
    };
    let (ready, is_ready) = mpsc::channel();
    let thread_path = path.clone();
    let sleeper = thread::spawn(move || {
        let mut fixture = Fixture::new(&thread_path, MIB);
        assert!(fixture.settle_in());
        let mut reactor = fixture.reactor.take().expect("it has one");
        let parts = (fixture.volume, fixture.reports);
        ready.send(parts).expect("the test waits");
        reactor.wait(last.ticket).expect("as it was reported");
    });
    let (volume, reports) = is_ready.recv().expect("it has settled in");
    let start = Instant::now();
    volume.close();
    assert!(start.elapsed() < Duration::from_secs(4), "it timed out");
    let again = Fixture::open(&path, MIB, Origin::New);
    assert!(again.is_ok(), "the file is free");
    reports.done(last);
    sleeper.join().expect("no panic");
}

#[test]
fn a_thread_with_a_queue_does_not_wait_for_itself_when_it_closes_a_volume() {
    let folder = Folder::new();
    let path = folder.join("disk");
    let mut fixture = Fixture::new(&path, MIB);
    assert!(fixture.settle_in());
    let start = Instant::now();
    fixture.volume.close();
    assert!(start.elapsed() < Duration::from_secs(4), "it waited");
    let mut rounds = 0..2;
    let reactor = fixture.reactor.as_mut().expect("it has one");
    reactor.run(|| rounds.next().is_none().then_some(()));
    let again = Fixture::open(&path, MIB, Origin::Restored);
    assert!(again.is_ok(), "the file is free");
}
