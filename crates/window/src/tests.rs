//! The window against a model, with every operation, any order of completions, and failures.

mod caching;
mod model;
mod play;

use std::sync::{Arc, Mutex};

use block::{
    Admission, BlockSize, Blocks, Completion, Completions, DataUse, Extent, Geometry, Intent, Lba,
    Op, OpKind, Persistence, ReadDest, Settled, Status, Ticket,
};
use memory::Budget;
use proptest::prelude::*;

use crate::backing::{Backing, BackingError, BackingOp, Request};
use crate::cache::{CacheMode, CacheOptions};
use crate::state::Shape;
use crate::window::Window;

use model::Disk;
use play::{Action, Play};

const SECTOR: usize = 512;
/// Sectors of the volume: not a whole number of frames.
const SECTORS: u64 = 42;
const FRAME_SHIFT: u32 = 2;

#[derive(Default)]
struct Reports(Mutex<Vec<Completion>>);

impl Completions for Reports {
    fn done(&self, completion: Completion) {
        self.0.lock().expect("no panic").push(completion);
    }
}

impl Reports {
    fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn window(frames_max: u32, budget_bytes: u64) -> (Arc<Window>, Arc<Disk>, Arc<Reports>) {
    window_with(frames_max, budget_bytes, None)
}

/// A cache that keeps `kept` of its `frames_max` frames.
fn cache(frames_max: u32, kept: u64, mode: CacheMode) -> (Arc<Window>, Arc<Disk>, Arc<Reports>) {
    window_with(frames_max, 1 << 20, Some(options(kept, mode)))
}

fn options(kept: u64, mode: CacheMode) -> CacheOptions {
    CacheOptions {
        mode,
        kept_bytes: kept * ((SECTOR as u64) << FRAME_SHIFT),
        bypass_bytes: 0,
    }
}

fn window_with(
    frames_max: u32,
    budget_bytes: u64,
    cache: Option<CacheOptions>,
) -> (Arc<Window>, Arc<Disk>, Arc<Reports>) {
    let disk = Arc::new(Disk::new(SECTORS as usize));
    let reports = Arc::new(Reports::default());
    let shape = Shape {
        sector_shift: 9,
        frame_shift: FRAME_SHIFT,
        frames_max,
    };
    let window = Window::with_shape(
        Geometry::new(BlockSize::B512, Blocks(SECTORS)),
        shape,
        cache,
        Arc::clone(&disk) as Arc<dyn Backing>,
        &Arc::new(Budget::new(budget_bytes)),
        Arc::clone(&reports) as Arc<dyn Completions>,
    );
    (
        Arc::new(window.expect("the budget is large enough")),
        disk,
        reports,
    )
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent::new(Lba(lba), Blocks(blocks))
}

fn ticket(slot: u32) -> Ticket {
    Ticket {
        connection: 1,
        slot,
        generation: 0,
    }
}

fn admit(window: &Window, slot: u32, data_use: DataUse, extents: &[Extent]) -> Admission {
    admit_as(window, slot, data_use, extents, Persistence::Volatile)
}

fn admit_as(
    window: &Window,
    slot: u32,
    data_use: DataUse,
    extents: &[Extent],
    persistence: Persistence,
) -> Admission {
    let kind = match data_use {
        DataUse::Read | DataUse::Verify => OpKind::Read,
        DataUse::Overwrite | DataUse::Modify | DataUse::Copy => OpKind::Write,
        DataUse::Erase => OpKind::Discard,
        DataUse::Flush => OpKind::Flush,
    };
    let intent = Intent {
        kind,
        extents,
        len_bytes: 0,
        data_use,
        persistence,
    };
    window.admit(&intent, ticket(slot))
}

fn write(window: &Window, lba: u64, value: u8, blocks: u64) -> Result<(), Status> {
    window.execute(Op::Write {
        extent: extent(lba, blocks),
        data: &vec![value; blocks as usize * SECTOR],
    })
}

fn read(window: &Window, lba: u64, blocks: u64) -> Result<Vec<u8>, Status> {
    let mut buffer = vec![0xEE; blocks as usize * SECTOR];
    let dest = ReadDest::Copy(&mut buffer);
    let extent = extent(lba, blocks);
    window.execute(Op::Read { extent, dest })?;
    Ok(buffer)
}

/// Completes the oldest request.
fn complete(window: &Window, disk: &Disk, error: Option<BackingError>) -> Request {
    let request = disk.requests()[0];
    disk.complete(window, 0, error);
    request
}

const NOW: Admission = Admission::NowThenSettle(None);
const LATER: Admission = Admission::Later(None);
const BUSY: Admission = Admission::Fail(Status::Busy, None);

#[test]
fn a_write_needs_no_read_and_settles_when_the_backing_has_it() {
    let (window, disk, reports) = window(4, 1 << 20);
    assert_eq!(admit(&window, 0, DataUse::Overwrite, &[extent(1, 1)]), NOW);
    write(&window, 1, 7, 1).expect("leased");
    assert!(disk.requests().is_empty(), "nothing is read or written yet");
    assert_eq!(window.settle(ticket(0)), Ok(Settled::Later));
    let request = complete(&window, &disk, None);
    assert_eq!((request.range.offset, request.range.len), (512, 512));
    assert_eq!(reports.take().len(), 1);
    window.release(ticket(0));
    assert_eq!(window.in_use(), (0, 0));
}

#[test]
fn overlapping_writes_follow_each_other() {
    let (window, disk, reports) = window(4, 1 << 20);
    for slot in 0..2 {
        assert_eq!(
            admit(&window, slot, DataUse::Overwrite, &[extent(0, 2)]),
            NOW
        );
        write(&window, 0, slot as u8 + 1, 2).expect("leased");
        assert_eq!(window.settle(ticket(slot)), Ok(Settled::Later));
    }
    assert_eq!(disk.requests().len(), 1, "one write of a frame at a time");
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].ticket, ticket(0));
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].ticket, ticket(1));
}

#[test]
fn a_failed_write_fails_whose_data_it_carried_and_nobody_else() {
    let (window, disk, reports) = window(4, 1 << 20);
    for slot in 0..2 {
        let at = u64::from(slot);
        assert_eq!(
            admit(&window, slot, DataUse::Overwrite, &[extent(at, 1)]),
            NOW
        );
        write(&window, at, 9, 1).expect("leased");
    }
    // The first settling has both written; the second one learns of it when it settles.
    assert_eq!(window.settle(ticket(0)), Ok(Settled::Later));
    assert_eq!(admit(&window, 2, DataUse::Overwrite, &[extent(2, 1)]), NOW);
    write(&window, 2, 9, 1).expect("leased");
    complete(&window, &disk, Some(BackingError::NoSpace));
    assert_eq!(reports.take()[0].result, Err(Status::CapacityExceeded));
    assert_eq!(window.settle(ticket(1)), Err(Status::CapacityExceeded));
    assert_eq!(window.settle(ticket(2)), Ok(Settled::Later));
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].result, Ok(()));
    // What was lost is read from the backing again.
    assert_eq!(admit(&window, 3, DataUse::Read, &[extent(0, 3)]), LATER);
    complete(&window, &disk, None);
    let bytes = read(&window, 0, 3).expect("leased");
    assert_eq!((bytes[0], bytes[SECTOR], bytes[2 * SECTOR]), (0, 0, 9));
}

#[test]
fn a_fill_does_not_undo_what_was_written_meanwhile() {
    let (window, disk, reports) = window(4, 1 << 20);
    assert_eq!(admit(&window, 0, DataUse::Read, &[extent(0, 4)]), LATER);
    assert_eq!(admit(&window, 1, DataUse::Overwrite, &[extent(1, 1)]), NOW);
    write(&window, 1, 5, 1).expect("leased");
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].ticket, ticket(0));
    let bytes = read(&window, 0, 4).expect("leased");
    assert_eq!((bytes[0], bytes[SECTOR], bytes[2 * SECTOR]), (0, 5, 0));
}

#[test]
fn a_command_waits_for_frames_that_need_no_peer_and_for_no_others() {
    let (window, disk, reports) = window(2, 1 << 20);
    for slot in 0..2 {
        let at = u64::from(slot) * 4;
        assert_eq!(
            admit(&window, slot, DataUse::Overwrite, &[extent(at, 4)]),
            NOW
        );
        write(&window, at, 1, 4).expect("leased");
    }
    assert_eq!(
        admit(&window, 2, DataUse::Overwrite, &[extent(8, 1)]),
        BUSY,
        "a peer decides when the others end"
    );
    assert_eq!(window.settle(ticket(0)), Ok(Settled::Later));
    assert_eq!(
        admit(&window, 3, DataUse::Overwrite, &[extent(8, 1)]),
        LATER
    );
    assert_eq!(
        admit(&window, 4, DataUse::Overwrite, &[extent(12, 1)]),
        BUSY
    );
    complete(&window, &disk, None);
    let tickets: Vec<_> = reports.take().iter().map(|done| done.ticket).collect();
    assert_eq!(tickets, [ticket(0), ticket(3)]);
    write(&window, 8, 1, 1).expect("it has its frame");
    let all = [extent(0, 12)];
    let too_much = Admission::Fail(Status::Invalid, None);
    assert_eq!(admit(&window, 5, DataUse::Read, &all), too_much);
}

#[test]
fn frames_are_charged_and_a_command_without_memory_is_busy() {
    let frame = (SECTOR as u64) << FRAME_SHIFT;
    let (window, _disk, _reports) = window(4, frame);
    let both = [extent(0, 1), extent(4, 1)];
    assert_eq!(admit(&window, 0, DataUse::Overwrite, &both), BUSY);
    assert_eq!(window.in_use(), (0, 0), "it took nothing");
    assert_eq!(admit(&window, 1, DataUse::Overwrite, &both[..1]), NOW);
}

#[test]
fn a_flush_waits_for_what_was_executed_before_it_and_flushes_share() {
    let (window, disk, reports) = window(4, 1 << 20);
    assert_eq!(admit(&window, 0, DataUse::Overwrite, &[extent(0, 1)]), NOW);
    write(&window, 0, 1, 1).expect("leased");
    for slot in 1..4 {
        assert_eq!(admit(&window, slot, DataUse::Flush, &[]), NOW);
        window.execute(Op::Flush).expect("nothing to do");
        assert_eq!(window.settle(ticket(slot)), Ok(Settled::Later));
    }
    complete(&window, &disk, None);
    assert!(reports.take().is_empty(), "written, but not flushed");
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].ticket, ticket(1));
    complete(&window, &disk, Some(BackingError::Medium));
    let failed: Vec<_> = reports.take().iter().map(|done| done.result).collect();
    assert_eq!(failed, [Err(Status::WriteError); 2], "both share one flush");
    assert!(disk.requests().is_empty());
}

#[test]
fn a_discard_in_pieces_is_one_request_and_no_old_block_comes_back() {
    let (window, disk, reports) = window(4, 1 << 20);
    disk.fill(8);
    assert_eq!(admit(&window, 0, DataUse::Erase, &[extent(0, 40)]), NOW);
    for lba in (0..40).step_by(10) {
        let extent = extent(lba, 10);
        window.execute(Op::Discard { extent }).expect("open");
    }
    assert!(disk.requests().is_empty());
    assert_eq!(admit(&window, 1, DataUse::Read, &[extent(12, 1)]), LATER);
    assert_eq!(disk.requests().len(), 1, "the discard comes first");
    assert_eq!(disk.requests()[0].range.len, 40 * 512);
    complete(&window, &disk, None);
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].ticket, ticket(1));
    assert_eq!(read(&window, 12, 1), Ok(vec![0; SECTOR]));
    assert_eq!(window.settle(ticket(0)), Ok(Settled::Done));
}

#[test]
fn discards_of_aborted_commands_reach_the_backing() {
    let (window, disk, _) = cache(4, 2, CacheMode::WriteThrough);
    for slot in 0..2000 {
        let extents = [extent(u64::from(slot) % SECTORS, 1)];
        assert_eq!(admit(&window, slot, DataUse::Erase, &extents), NOW);
        let extent = extents[0];
        window
            .execute(Op::Discard { extent })
            .expect("a free place");
        window.release(ticket(slot));
        assert_eq!(disk.requests().len(), 1);
        complete(&window, &disk, None);
    }
}

#[test]
fn a_read_in_flight_does_not_bring_back_what_a_second_discard_erases() {
    let (window, disk, reports) = window(4, 1 << 20);
    disk.fill(8);
    assert_eq!(admit(&window, 0, DataUse::Read, &[extent(0, 1)]), LATER);
    let discarded = extent(0, 1);
    for slot in [1, 2] {
        assert_eq!(admit(&window, slot, DataUse::Erase, &[discarded]), NOW);
        window
            .execute(Op::Discard { extent: discarded })
            .expect("a free place");
        window.settle(ticket(slot)).expect("nothing was lost yet");
    }
    let ops: Vec<_> = disk.requests().iter().map(|it| it.op).collect();
    assert_eq!(
        ops,
        [BackingOp::Read, BackingOp::Discard, BackingOp::Discard]
    );
    disk.complete(&window, 1, Some(BackingError::Medium));
    complete(&window, &disk, None); // the read, from before the second discard
    complete(&window, &disk, None);
    while !disk.requests().is_empty() {
        complete(&window, &disk, None);
    }
    assert!(reports.take().contains(&Completion {
        ticket: ticket(0),
        result: Ok(())
    }));
    assert_eq!(read(&window, 0, 1), Ok(vec![0; SECTOR]));
}

#[test]
fn a_closed_window_fails_what_waits_and_everything_after() {
    let (window, disk, reports) = window(1, 1 << 20);
    assert_eq!(admit(&window, 0, DataUse::Read, &[extent(0, 1)]), LATER);
    window.release(ticket(0));
    assert_eq!(admit(&window, 1, DataUse::Read, &[extent(4, 1)]), LATER);
    assert_eq!(admit(&window, 2, DataUse::Flush, &[]), NOW);
    assert_eq!(window.settle(ticket(2)), Ok(Settled::Later));
    window.close();
    let mut gone = reports.take();
    gone.sort_by_key(|done| done.ticket);
    let gone: Vec<_> = gone.iter().map(|it| (it.ticket, it.result)).collect();
    let expected = [1, 2].map(|slot| (ticket(slot), Err(Status::Gone)));
    assert_eq!(gone, expected);
    assert_eq!(read(&window, 0, 1), Err(Status::Gone));
    let refused = Admission::Fail(Status::Gone, None);
    assert_eq!(admit(&window, 3, DataUse::Flush, &[]), refused);
    while !disk.requests().is_empty() {
        complete(&window, &disk, None);
    }
    for slot in [1, 2] {
        window.release(ticket(slot));
    }
    assert!(reports.take().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(2000)))]

    #[test]
    fn the_window_does_what_a_vector_does(
        frames_max in 2_u32..7,
        actions in proptest::collection::vec(any::<Action>(), 1..200),
    ) {
        let mut play = Play::new(frames_max, None);
        for action in actions {
            play.act(action);
        }
        play.finish();
    }

    #[test]
    fn a_cache_does_what_a_vector_does(
        frames_max in 4_u32..9,
        kept in 1_u64..5,
        mode in prop_oneof![
            Just(CacheMode::WriteThrough),
            Just(CacheMode::WriteAround),
            Just(CacheMode::WriteBack),
        ],
        actions in proptest::collection::vec(any::<Action>(), 1..200),
    ) {
        let mut play = Play::new(frames_max, Some(options(kept, mode)));
        for action in actions {
            play.act(action);
        }
        play.finish();
    }
}
