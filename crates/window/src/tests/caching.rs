//! What a cache keeps, and what it answers when.

use super::*;

/// Writes one sector, and settles the command.
fn write_one(window: &Window, slot: u32, lba: u64, value: u8) -> Result<Settled, Status> {
    let extents = [extent(lba, 1)];
    assert_eq!(admit(window, slot, DataUse::Overwrite, &extents), NOW);
    write(window, lba, value, 1).expect("it has its frame");
    window.settle(ticket(slot))
}

/// Reads one frame that is not in memory.
fn read_missing(window: &Window, disk: &Disk, slot: u32, frame: u64) {
    let extents = [extent(frame * 4, 4)];
    assert_eq!(admit(window, slot, DataUse::Read, &extents), LATER);
    complete(window, disk, None);
    window.release(ticket(slot));
}

fn flush(window: &Window, slot: u32) {
    assert_eq!(admit(window, slot, DataUse::Flush, &[]), NOW);
    assert_eq!(window.settle(ticket(slot)), Ok(Settled::Later));
}

#[test]
fn what_was_read_stays_until_it_makes_room() {
    let (window, disk, _) = cache(8, 2, CacheMode::WriteThrough);
    for frame in 0..3 {
        read_missing(&window, &disk, frame as u32, frame);
    }
    assert_eq!(window.in_use(), (2, 0), "as many as it keeps");
    assert_eq!(admit(&window, 9, DataUse::Read, &[extent(8, 4)]), NOW);
    assert_eq!(admit(&window, 10, DataUse::Read, &[extent(4, 8)]), NOW);
    let counts = window.cache_statistics();
    assert_eq!((counts.read_misses, counts.read_hits), (3, 2));
    assert_eq!((counts.evictions, counts.resident_bytes), (1, 2 * 2048));
}

#[test]
fn writes_stay_in_write_through_and_not_in_write_around() {
    for (mode, kept) in [(CacheMode::WriteThrough, 2), (CacheMode::WriteAround, 1)] {
        let (window, disk, reports) = cache(8, 4, mode);
        read_missing(&window, &disk, 0, 0);
        // One that is there is updated, in either mode.
        for (slot, lba) in [(1, 0), (2, 4)] {
            assert_eq!(write_one(&window, slot, lba, 7), Ok(Settled::Later));
            complete(&window, &disk, None);
            assert_eq!(reports.take().len(), if slot == 1 { 2 } else { 1 });
            window.release(ticket(slot));
        }
        assert_eq!(window.in_use().0, kept, "{mode:?}");
        assert_eq!(admit(&window, 3, DataUse::Read, &[extent(0, 4)]), NOW);
        assert_eq!(read(&window, 0, 1), Ok(vec![7; SECTOR]));
    }
}

#[test]
fn written_back_is_what_a_flush_or_the_background_writes_in_ascending_order() {
    let (window, disk, reports) = cache(10, 9, CacheMode::WriteBack);
    for (slot, lba) in [(0, 12), (1, 4), (2, 20)] {
        assert_eq!(write_one(&window, slot, lba, 7), Ok(Settled::Done));
        window.release(ticket(slot));
    }
    assert!(
        disk.requests().is_empty(),
        "answered before the disk has it"
    );
    assert_eq!(window.cache_statistics().dirty_bytes, 3 * 2048);
    assert!(disk.sectors().is_cleaner_awake);
    assert!(window.clean(8, 2), "three are dirty");
    let offsets = disk
        .requests()
        .iter()
        .map(|it| it.range.offset / 512)
        .collect::<Vec<_>>();
    assert_eq!(offsets, [4, 12]);
    flush(&window, 3);
    assert_eq!(disk.requests().len(), 3, "the flush writes the rest");
    for _ in 0..3 {
        assert!(reports.take().is_empty());
        complete(&window, &disk, None);
    }
    complete(&window, &disk, None);
    assert_eq!(reports.take().len(), 1);
    let counts = window.cache_statistics();
    assert_eq!((counts.dirty_bytes, counts.write_backs), (0, 2));
    assert_eq!(counts.slower_written_bytes, 3 * SECTOR as u64);
    assert!(!window.clean(8, 2), "the cleaner sleeps");
}

#[test]
fn a_durable_write_reaches_the_disk_before_its_answer() {
    let (window, disk, _) = cache(8, 4, CacheMode::WriteBack);
    let durable = Persistence::Durable;
    let extents = [extent(0, 1)];
    assert_eq!(
        admit_as(&window, 0, DataUse::Overwrite, &extents, durable),
        NOW
    );
    write(&window, 0, 7, 1).expect("it has its frame");
    assert_eq!(window.settle(ticket(0)), Ok(Settled::Later));
    let request = complete(&window, &disk, None);
    assert_eq!(request.op, crate::backing::BackingOp::Write(durable));
}

#[test]
fn dirty_data_are_bounded_and_writes_beyond_wait_for_the_disk() {
    let (window, disk, _) = cache(8, 4, CacheMode::WriteBack);
    for slot in 0..2 {
        assert_eq!(
            write_one(&window, slot, u64::from(slot) * 4, 7),
            Ok(Settled::Done)
        );
        window.release(ticket(slot));
    }
    assert_eq!(
        write_one(&window, 2, 8, 7),
        Ok(Settled::Later),
        "half of the cache"
    );
    complete(&window, &disk, None);
}

#[test]
fn what_could_not_be_written_back_stays_and_fails_the_flush() {
    let (window, disk, reports) = cache(8, 4, CacheMode::WriteBack);
    assert_eq!(write_one(&window, 0, 5, 7), Ok(Settled::Done));
    window.release(ticket(0));
    assert!(window.clean(8, 1));
    complete(&window, &disk, Some(BackingError::Medium));
    assert_eq!(window.cache_statistics().failed_write_backs, 1);
    flush(&window, 1);
    complete(&window, &disk, Some(BackingError::NoSpace));
    complete(&window, &disk, None);
    let results: Vec<_> = reports.take().iter().map(|done| done.result).collect();
    assert_eq!(results, [Err(Status::CapacityExceeded)]);
    assert_eq!(admit(&window, 2, DataUse::Read, &[extent(5, 1)]), NOW);
    assert_eq!(read(&window, 5, 1), Ok(vec![7; SECTOR]));
    flush(&window, 3);
    complete(&window, &disk, None);
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].result, Ok(()));
    assert_eq!(window.cache_statistics().dirty_bytes, 0);
}

#[test]
fn long_sequential_streams_leave_nothing_behind() {
    let (window, disk, _) = cache(10, 8, CacheMode::WriteThrough);
    let mut set = options(8, CacheMode::WriteThrough);
    set.bypass_bytes = 8 * SECTOR as u64;
    window.set_cache(set).expect("the budget is large enough");
    for frame in 0..6 {
        read_missing(&window, &disk, frame as u32, frame);
    }
    assert_eq!(window.in_use().0, 2, "the first 8 sectors");
    let counts = window.cache_statistics();
    assert_eq!((counts.read_bypassed, counts.write_bypassed), (4, 0));
    assert_eq!(counts.slower_read_bytes, 6 * 2048);
    // One that is there is used by a stream, too.
    read_missing(&window, &disk, 6, 9);
    assert_eq!(admit(&window, 7, DataUse::Read, &[extent(36, 4)]), NOW);
}

#[test]
fn a_cache_is_charged_as_a_whole_and_changes_its_size() {
    let frame = (SECTOR as u64) << FRAME_SHIFT;
    let disk = Arc::new(Disk::new(SECTORS as usize));
    let shape = Shape {
        sector_shift: 9,
        frame_shift: FRAME_SHIFT,
        frames_max: 16,
    };
    let make = |kept, budget: &Arc<Budget>| {
        Window::with_shape(
            Geometry::new(BlockSize::B512, Blocks(SECTORS)),
            shape,
            Some(options(kept, CacheMode::WriteThrough)),
            Arc::clone(&disk) as Arc<dyn Backing>,
            budget,
            Arc::new(Reports::default()),
        )
    };
    let roomy = Arc::new(Budget::new(1 << 30));
    let three = make(3, &roomy).expect("fits");
    let budget = Arc::new(Budget::new(roomy.used_bytes() + frame));
    drop(three);
    assert!(make(5, &budget).is_err());
    let window = make(3, &budget).expect("fits");
    assert_eq!(budget.free_bytes(), frame);
    for slot in 0..3 {
        read_missing(&window, &disk, slot, u64::from(slot));
    }
    assert!(
        window
            .set_cache(options(5, CacheMode::WriteThrough))
            .is_err()
    );
    assert_eq!(window.in_use().0, 3, "nothing has changed");
    window
        .set_cache(options(1, CacheMode::WriteThrough))
        .expect("smaller");
    assert_eq!(window.in_use().0, 1);
    drop(window);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn a_read_that_hits_keeps_its_frame_as_long_as_it_lasts() {
    let (window, disk, _) = cache(8, 2, CacheMode::WriteThrough);
    for frame in 0..2 {
        read_missing(&window, &disk, frame as u32, frame);
    }
    for slot in [2, 3] {
        assert_eq!(admit(&window, slot, DataUse::Read, &[extent(1, 2)]), NOW);
    }
    for frame in 2..6 {
        read_missing(&window, &disk, 4, frame);
        assert!(read(&window, 1, 2).is_ok(), "another frame is evicted");
    }
    window.release(ticket(2));
    read_missing(&window, &disk, 4, 6);
    assert!(read(&window, 1, 2).is_ok(), "one of two has ended");
    window.release(ticket(3));
    assert_eq!(window.in_use(), (2, 0));
    for frame in 7..10 {
        read_missing(&window, &disk, 4, frame);
    }
    // It was used twice, so others make room.
    assert_eq!(admit(&window, 4, DataUse::Read, &[extent(1, 2)]), NOW);
}

#[test]
fn a_write_that_hits_fails_with_the_erasure_that_may_have_been_its_own() {
    let (window, disk, reports) = cache(8, 4, CacheMode::WriteBack);
    read_missing(&window, &disk, 0, 0);
    reports.take();
    assert_eq!(admit(&window, 1, DataUse::Overwrite, &[extent(1, 1)]), NOW);
    write(&window, 1, 7, 1).expect("it has its frame");
    let all = extent(0, 4);
    assert_eq!(admit(&window, 2, DataUse::Erase, &[all]), NOW);
    window
        .execute(Op::Discard { extent: all })
        .expect("in memory");
    assert_eq!(window.settle(ticket(2)), Ok(Settled::Later));
    complete(&window, &disk, Some(BackingError::Medium));
    assert_eq!(reports.take()[0].result, Err(Status::WriteError));
    assert_eq!(window.settle(ticket(1)), Err(Status::WriteError));
    for slot in [1, 2] {
        window.release(ticket(slot));
    }
    // The frame is not whole any more.
    read_missing(&window, &disk, 3, 0);
}

#[test]
fn writes_that_hit_are_flushed_and_bounded_as_others_are() {
    let (window, disk, reports) = cache(8, 4, CacheMode::WriteBack);
    for frame in 0..3 {
        read_missing(&window, &disk, frame as u32, frame);
    }
    reports.take();
    for slot in 0..2 {
        let settled = write_one(&window, slot, u64::from(slot) * 4, 7);
        assert_eq!(settled, Ok(Settled::Done));
        window.release(ticket(slot));
    }
    assert_eq!(write_one(&window, 2, 8, 7), Ok(Settled::Later));
    complete(&window, &disk, None);
    assert_eq!(reports.take()[0].ticket, ticket(2));
    window.release(ticket(2));
    // Executed, and not settled.
    assert_eq!(admit(&window, 3, DataUse::Overwrite, &[extent(9, 1)]), NOW);
    write(&window, 9, 8, 1).expect("it has its frame");
    flush(&window, 4);
    assert_eq!(disk.requests().len(), 3, "it was executed before");
    assert_eq!(window.settle(ticket(3)), Ok(Settled::Done));
    let counts = window.cache_statistics();
    assert_eq!((counts.write_hits, counts.write_misses), (4, 0));
}
