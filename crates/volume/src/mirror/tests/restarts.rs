//! Mirrors after restarts and crashes.

use std::path::Path;

use block::testing::{Folder, VecVolume};
use image::HostFiles;

use super::super::record::{Record, RecordFile};
use super::*;

/// Two members that outlive the program, and the file with the record.
struct PersistentMembers {
    folder: Folder,
    fixture: Fixture,
}

impl PersistentMembers {
    fn new() -> Self {
        let disks = [(); 2].map(|()| Arc::new(VecVolume::new(BlockSize::B512, BLOCKS)));
        let folder = Folder::new();
        let record = folder.join("records/m");
        let fixture = Self::fixture(disks, &record, Origin::New, &[]).expect("it is new");
        fixture.wait_until_in_sync();
        let it = Self { folder, fixture };
        let until = Instant::now() + PATIENCE;
        while it.record().in_sync.len() < 2 {
            assert!(Instant::now() < until, "{:?}", it.record());
            thread::sleep(Duration::from_millis(1));
        }
        it
    }

    /// A mirror of which the members in these places are offline.
    fn fixture(
        disks: [Arc<VecVolume>; 2],
        record: &Path,
        origin: Origin,
        offline: &[usize],
    ) -> Result<Fixture, Arc<dyn ManagedVolume>> {
        let relay = Relay::new(Arc::<Reports>::default());
        let late = disks.map(|disk| {
            let late = LateVolume::over(disk);
            late.set_lateness(Lateness::Never);
            Arc::new(Managed::new(late))
        });
        for place in offline {
            late[*place]
                .controls()
                .set_availability(Availability::Offline);
        }
        let members: Vec<_> = late.iter().map(|late| Arc::clone(late) as _).collect();
        let mirror = mirror_in(&members, &relay, origin, Some(record.to_owned()));
        let mirror = mirror.expect("the members fit");
        if mirror.storage().mirror().is_none() {
            return Err(mirror);
        }
        Ok(Fixture {
            relay,
            members,
            late: late.to_vec(),
            mirror,
        })
    }

    fn record(&self) -> Record {
        let file = RecordFile::new(HostFiles, self.folder.join("records/m"));
        file.read(Division::new(BLOCKS * 512)).expect("it is whole")
    }

    fn disk(&self, member: usize) -> &VecVolume {
        self.fixture.late[member].volume().disk()
    }

    /// The mirror as it is after a crash at this moment.
    fn after_a_crash(&self) -> Result<Fixture, Arc<dyn ManagedVolume>> {
        self.after_a_crash_without(&[])
    }

    /// The same, while the members in these places are offline.
    fn after_a_crash_without(&self, offline: &[usize]) -> Result<Fixture, Arc<dyn ManagedVolume>> {
        let disks = [0, 1].map(|member| {
            let disk = VecVolume::new(BlockSize::B512, BLOCKS);
            disk.fill(0, &self.disk(member).contents());
            Arc::new(disk)
        });
        let copy = self.folder.join("copy");
        std::fs::copy(self.folder.join("records/m"), &copy).expect("it exists");
        Self::fixture(disks, &copy, Origin::Restored, offline)
    }
}

#[test]
fn a_member_out_of_sync_is_not_read_after_a_crash_either() {
    let it = PersistentMembers::new();
    it.disk(0).set_failure(Some(Status::NotReady));
    it.fixture.write(5, 1).expect("m1 takes it");
    // The write was answered, so the record does not name m0 any more.
    assert_eq!(it.record().in_sync, ["m1"]);
    let after = it.after_a_crash().expect("m1 is in sync");
    assert_eq!(after.read(5), Ok(1));
    after.wait_until_in_sync();
    assert_eq!(after.held(0, 5), 1);
}

#[test]
fn a_region_is_recorded_before_it_is_written_and_only_such_regions_are_copied_after_a_crash() {
    let it = PersistentMembers::new();
    let until = Instant::now() + PATIENCE;
    // Regions of the first copies are forgotten in the background.
    while !it.record().regions.is_empty() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(20));
    }
    it.fixture.late[0].volume().stop_next_write();
    thread::scope(|scope| {
        let writer = scope.spawn(|| it.fixture.write(REGION + 1, 7));
        while !it.fixture.late[0].volume().is_stopped() || it.fixture.held(1, REGION + 1) != 7 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(it.record().regions.next(0), Some(1));
        // What nobody wrote, to see what is copied.
        it.disk(1).fill(3 * 512, &[9; 512]);
        let after = it.after_a_crash().expect("both were in sync");
        after.wait_until_in_sync();
        let held = [0, 1].map(|member| after.held(member, REGION + 1));
        assert_eq!(held[0], held[1]);
        assert_eq!((after.held(0, 3), after.held(1, 3)), (0, 9));
        it.fixture.late[0].volume().go_on();
        writer.join().expect("no panic").expect("both take it");
    });
}

#[test]
fn the_first_member_in_sync_that_can_be_used_has_the_contents_after_a_crash() {
    let it = PersistentMembers::new();
    it.fixture.write(5, 1).expect("both take it");
    for first in [0, 1] {
        let after = it
            .after_a_crash_without(&[0, 1])
            .expect("both were in sync");
        assert!(!after.mirror.is_ready());
        thread::scope(|scope| {
            let writer = scope.spawn(|| after.write(6, 2));
            thread::sleep(Duration::from_millis(20));
            after.late[first]
                .controls()
                .set_availability(Availability::Online);
            writer.join().expect("no panic").expect("it waits for that");
        });
        assert_eq!(after.read(5), Ok(1));
        let copy = RecordFile::new(HostFiles, it.folder.join("copy"));
        let record = copy.read(Division::new(BLOCKS * 512)).expect("whole");
        assert_eq!(record.in_sync, [["m0"], ["m1"]][first]);
        let other = 1 - first;
        let disk = after.late[other].volume().disk();
        assert_eq!(disk.contents()[6 * 512], 0);
        after.late[other]
            .controls()
            .set_availability(Availability::Online);
        after.wait_until_in_sync();
        assert_eq!(after.held(other, 6), 2);
    }
}

#[test]
fn as_long_as_no_member_in_sync_can_be_used_the_record_stays_and_changes_fail() {
    let it = PersistentMembers::new();
    it.fixture.write(5, 1).expect("both take it");
    let after = it
        .after_a_crash_without(&[0, 1])
        .expect("both were in sync");
    let record = std::fs::read(it.folder.join("copy")).expect("it exists");
    assert!(after.write(5, 2).is_err());
    drop(after);
    assert_eq!(
        std::fs::read(it.folder.join("copy")).expect("it exists"),
        record
    );
}

#[test]
fn a_mirror_that_is_released_is_there_after_a_crash_though_its_members_were_used_otherwise() {
    let it = PersistentMembers::new();
    it.fixture.write(5, 1).expect("both take it");
    it.fixture.mirror.free_members();
    assert!(it.fixture.read(5).is_err());
    assert_eq!(it.record().in_sync, ["m0", "m1"]);
    // One of them is written by itself.
    it.disk(1).fill(3 * 512, &[9; 512]);
    let after = it.after_a_crash().expect("the record stays");
    after.wait_until_in_sync();
    assert_eq!(after.read(5), Ok(1));
    assert_eq!(after.held(0, 3), after.held(1, 3));
}

#[test]
fn a_mirror_that_ended_in_order_copies_nothing_and_a_removed_one_leaves_no_record() {
    let it = PersistentMembers::new();
    it.fixture.write(5, 1).expect("both take it");
    it.fixture
        .mirror()
        .fail_member("m1")
        .expect("m0 is in sync");
    it.fixture.write(2 * REGION, 2).expect("m0 takes it");
    let disks = [0, 1].map(|member| {
        let disk = VecVolume::new(BlockSize::B512, BLOCKS);
        disk.fill(0, &it.disk(member).contents());
        Arc::new(disk)
    });
    let path = it.folder.join("records/m");
    drop(it.fixture);
    let again =
        PersistentMembers::fixture(disks, &path, Origin::Restored, &[]).expect("m0 is in sync");
    again.wait_until_in_sync();
    assert_eq!(again.mirror().info().resynced_bytes, MIB);
    assert_eq!(again.held(1, 2 * REGION), 2);
    again.mirror.remove();
    assert!(!path.exists());
}

#[test]
fn a_mirror_without_a_record_that_can_be_used_is_offline_and_says_why() {
    let it = PersistentMembers::new();
    std::fs::write(it.folder.join("records/m"), "ramport-mirror 1\n").expect("it exists");
    let offline = it.after_a_crash().err().expect("it is damaged");
    let problem = offline.storage().problem().expect("it is offline");
    assert!(problem.contains("is missing or damaged"), "{problem}");
    assert!(!offline.is_ready());
}

#[test]
fn a_mirror_whose_record_cannot_be_written_fails_writes_and_recovers() {
    let it = PersistentMembers::new();
    let (folder, away) = (it.folder.join("records"), it.folder.join("away"));
    std::fs::rename(&folder, &away).expect("it exists");
    it.disk(0).set_failure(Some(Status::NotReady));
    assert!(it.fixture.write(0, 1).is_err());
    let problem = it
        .fixture
        .mirror
        .storage()
        .problem()
        .expect("it cannot write");
    assert!(problem.starts_with("cannot "), "{problem}");
    it.disk(0).set_failure(None);
    std::fs::rename(&away, &folder).expect("it exists");
    let until = Instant::now() + PATIENCE;
    while it.fixture.write(0, 2).is_err() {
        assert!(Instant::now() < until);
        thread::sleep(Duration::from_millis(20));
    }
    it.fixture.wait_until_in_sync();
    assert_eq!((it.fixture.held(0, 0), it.fixture.held(1, 0)), (2, 2));
}

/// A mirror of memory has no record until a member is replaced by one that outlives the program.
#[test]
fn a_mirror_of_memory_has_a_record_once_a_member_outlives_the_program() {
    let folder = Folder::new();
    let path = folder.join("records/m");
    let relay = Relay::new(Arc::<Reports>::default());
    let members = [ram(BLOCKS), ram(BLOCKS)];
    let mirror = mirror_in(&members, &relay, Origin::New, Some(path.clone()));
    let fixture = Fixture {
        relay: Arc::clone(&relay),
        members: members.to_vec(),
        late: Vec::new(),
        mirror: mirror.expect("they fit"),
    };
    fixture.wait_until_in_sync();
    fixture.write(5, 1).expect("both take it");
    assert!(!path.exists(), "there is nothing to be recorded");
    let disk = Arc::new(VecVolume::new(BlockSize::B512, BLOCKS));
    let lasting = || {
        let late = LateVolume::over(Arc::clone(&disk));
        late.set_lateness(Lateness::Never);
        Arc::new(Managed::new(late)) as Arc<dyn ManagedVolume>
    };
    let new = Member {
        name: "m0".to_owned(),
        volume: lasting(),
    };
    fixture.mirror().replace_member("m0", new).expect("it fits");
    fixture.wait_until_in_sync();
    fixture.write(6, 2).expect("both take it");
    let record = || {
        let file = RecordFile::new(HostFiles, path.clone());
        file.read(Division::new(BLOCKS * 512)).expect("it is whole")
    };
    assert_eq!(record().members, ["m1", "m0"]);
    assert_eq!(record().in_sync, ["m1", "m0"]);
    // After a crash, the member that outlives the program has everything.
    let copy = folder.join("copy");
    std::fs::copy(&path, &copy).expect("it exists");
    let after = [lasting(), ram(BLOCKS)];
    let mirror = mirror_in(&after, &relay, Origin::Restored, Some(copy));
    let mirror = mirror.expect("the members fit");
    let mut driver = Driver::new(&relay, mirror, PATIENCE);
    for (lba, byte) in [(5, 1), (6, 2)] {
        let mut buffer = [0; 512];
        let read = driver.read(Extent::new(Lba(lba), Blocks(1)), &mut buffer);
        read.expect("m0 is in sync");
        assert_eq!(buffer, [byte; 512]);
    }
}
