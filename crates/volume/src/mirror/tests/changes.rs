//! Replacing and comparing members of mirrors.

use super::*;

fn named(name: &str, volume: &Arc<dyn ManagedVolume>) -> Member {
    Member {
        name: name.to_owned(),
        volume: Arc::clone(volume),
    }
}

#[test]
fn a_member_is_not_replaced_by_one_that_does_not_fit_nor_if_it_has_the_last_good_copy() {
    for fixture in Fixture::pairs() {
        fixture.mirror().fail_member("m1").expect("m0 is in sync");
        let small = fixture
            .mirror()
            .replace_member("m1", named("s", &ram(BLOCKS - 1)));
        assert!(
            matches!(small, Err(VolumeError::SmallReplacement { .. })),
            "{small:?}"
        );
        let last = fixture
            .mirror()
            .replace_member("m0", named("s", &ram(BLOCKS)));
        assert!(
            matches!(last, Err(VolumeError::LastCopy { .. })),
            "{last:?}"
        );
        fixture.mirror().return_member("m1").expect("a member");
        fixture.wait_until_in_sync();
    }
}

#[test]
fn a_scrub_reports_and_repairs_what_differs_while_hosts_write() {
    for fixture in Fixture::pairs() {
        let differing = [3, 200, 300, 3 * REGION];
        for lba in differing {
            // The other member is not notified.
            let extent = Extent::new(Lba(lba), Blocks(1));
            let data = &[0xBD; 512];
            fixture.members[1]
                .execute(Op::Write { extent, data })
                .expect("in range");
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut driver = fixture.driver();
                let mut byte = 0_u8;
                while !is_over.load(Ordering::Acquire) {
                    byte = byte.wrapping_add(1);
                    // Not in the pieces that differ.
                    let extent = Extent::new(Lba(REGION), Blocks(256));
                    let data = vec![byte; 256 * 512];
                    driver
                        .write(extent, &data, Persistence::Volatile)
                        .expect("both take it");
                }
            });
            let scrub = |repair| {
                let mut last = 0;
                let report = fixture.mirror().scrub(repair, &mut |progress| {
                    last = progress.done_bytes;
                    ControlFlow::Continue(())
                });
                assert_eq!(last, BLOCKS * 512);
                report.expect("both can be read")
            };
            let found = scrub(Repair::No);
            assert_eq!(found.compared_bytes, BLOCKS * 512);
            let starts: Vec<_> = found
                .ranges
                .iter()
                .map(|range| range.offset / 512)
                .collect();
            // 128 blocks are a piece; the first three are one range.
            assert_eq!(
                (starts, found.differing_bytes),
                (vec![0, 3 * REGION], 4 * (64 << 10))
            );
            assert_eq!((found.repaired_bytes, fixture.held(1, 3)), (0, 0xBD));
            let repaired = scrub(Repair::Yes);
            assert_eq!(repaired.repaired_bytes, 4 * (64 << 10));
            assert_eq!(scrub(Repair::No).differing_bytes, 0);
            is_over.store(true, Ordering::Release);
            writer.join().expect("no panic");
        });
        assert!(contents(&*fixture.members[0]) == contents(&*fixture.members[1]));
        assert_eq!(fixture.held(1, 3), 0);
    }
}

#[test]
fn a_scrub_leaves_what_cannot_be_read_to_the_resync() {
    let fixture = Fixture::new(2, 0b10);
    let late = fixture.late[0].volume();
    late.set_lateness(Lateness::Never);
    fixture.write(3, 1).expect("both take it");
    late.disk().set_failure(Some(Status::ReadError));
    let report = fixture
        .mirror()
        .scrub(Repair::Yes, &mut no_progress)
        .expect("m0 can be read");
    assert_eq!(report.differing_bytes, 0);
    assert_eq!(fixture.member(1).role, Role::Absent);
    late.disk().set_failure(None);
    fixture.wait_until_in_sync();
}

#[test]
fn a_member_is_replaced_while_hosts_write_and_the_old_one_is_left_alone() {
    for fixture in Fixture::pairs() {
        fixture.write(0, 1).expect("both take it");
        let new = ram(2 * BLOCKS);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut driver = fixture.driver();
                for (round, byte) in (0..).zip((1..=255).cycle()) {
                    if is_over.load(Ordering::Acquire) {
                        return;
                    }
                    let extent = Extent::new(Lba(round * 37 % BLOCKS), Blocks(1));
                    let data = [byte; 512];
                    driver
                        .write(extent, &data, Persistence::Volatile)
                        .expect("one takes it");
                }
            });
            fixture
                .mirror()
                .replace_member("m0", named("new", &new))
                .expect("it fits");
            let before = contents(&*fixture.members[0]);
            fixture.wait_until_in_sync();
            assert!(
                contents(&*fixture.members[0]) == before,
                "it is no member any more"
            );
            is_over.store(true, Ordering::Release);
            writer.join().expect("no panic");
        });
        let names: Vec<_> = fixture
            .mirror()
            .info()
            .members
            .into_iter()
            .map(|of| of.name)
            .collect();
        assert_eq!(names, ["m1", "new"]);
        assert!(contents(&*new) == contents(&*fixture.members[1]));
        fixture.mirror().fail_member("m1").expect("new is in sync");
        assert_eq!(fixture.mirror.geometry().blocks.0, BLOCKS);
        fixture.write(9, 9).expect("new takes it");
        assert_eq!(fixture.read(9), Ok(9));
    }
}

/// Members of memory become one that waits and one of memory, while clients compare what they read
/// with what they wrote. A command that the first replacement overtakes fails such that hosts
/// retry.
#[test]
fn members_of_memory_are_replaced_by_one_that_waits_while_clients_use_the_mirror() {
    for seed in 1..=6 {
        let mut fixture = Fixture::new(2, 0);
        let late = Arc::new(Managed::new(LateVolume::new(BlockSize::B512, BLOCKS)));
        fixture.late.push(Arc::clone(&late));
        let late: Arc<dyn ManagedVolume> = late;
        let (fails_of, is_over, is_answered) = (
            AtomicU32::new(0),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
        let last = ram(BLOCKS);
        thread::scope(|scope| {
            scope.spawn(|| complete(&fixture, &mut Random(seed), &fails_of, &is_answered));
            let clients = (0..CLIENTS).map(|index| {
                let mut client = Client::new(&fixture, index, seed);
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Acquire) {
                        client.step();
                    }
                    client
                })
            });
            let clients: Vec<_> = clients.collect();
            for (old, new, volume) in [("m0", "late", &late), ("m1", "last", &last)] {
                thread::sleep(Duration::from_millis(5));
                let replaced = fixture.mirror().replace_member(old, named(new, volume));
                replaced.expect("of any kind");
                fixture.wait_until_in_sync();
            }
            is_over.store(true, Ordering::Release);
            let clients = clients.into_iter();
            let clients = clients.map(|client| client.join().expect("no panic"));
            clients.for_each(|mut client| client.read_all());
            is_answered.store(true, Ordering::Release);
        });
        assert_eq!(fixture.late[0].volume().leases(), 0);
        fixture.late[0].volume().set_lateness(Lateness::Never);
        assert!(contents(&*late) == contents(&*last), "members differ");
        let names = fixture.mirror().info().members.into_iter();
        let names: Vec<_> = names.map(|member| member.name).collect();
        assert_eq!(names, ["late", "last"]);
    }
}
