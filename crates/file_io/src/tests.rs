use std::{fs::File, time::Duration};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    Caching, FileAccess, FileCompletion, FileEngine, FileError, FileIo, FileIoOptions, FileOp,
};

struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str, len_bytes: u64) -> Self {
        let path = std::env::temp_dir().join(format!("file-io-{}-{name}", std::process::id()));
        let file = File::create(&path).expect("temp folder takes files");
        file.set_len(len_bytes).expect("length can be set");
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options(depth: u16) -> FileIoOptions {
    FileIoOptions {
        depth,
        buffer_bytes: 4096,
        access: FileAccess::ReadWrite,
        caching: Caching::DirectWherePossible,
        engine: None,
    }
}

fn on_threads(depth: u16) -> FileIoOptions {
    FileIoOptions {
        engine: Some(FileEngine::Threads),
        ..options(depth)
    }
}

fn drain(io: &mut FileIo) -> Vec<FileCompletion> {
    let mut done = Vec::new();
    while io.in_flight() > 0 {
        io.wait(Some(Duration::from_secs(5)), &mut done)
            .expect("waits");
    }
    done
}

fn write_then_read_back(io: &mut FileIo) {
    for slot in 0..8 {
        io.buffer_mut(slot).fill(slot as u8 + 1);
        io.submit(slot, FileOp::Write, u64::from(slot) * 4096, 4096);
    }
    assert!(drain(io).iter().all(|done| done.result.is_ok()));
    for slot in 0..8 {
        io.buffer_mut(slot).fill(0);
        io.submit(slot, FileOp::Read, u64::from(7 - slot) * 4096, 4096);
    }
    assert_eq!(drain(io).len(), 8);
    for slot in 0..8 {
        assert!(io.buffer(slot).iter().all(|&b| b == 8 - slot as u8));
    }
}

#[test]
fn what_was_written_is_read_back_from_another_thread() {
    let file = TempFile::new("thread", 64 * 1024);
    let mut io = FileIo::open(&file.0, &options(8)).expect("opens");
    std::thread::spawn(move || write_then_read_back(&mut io))
        .join()
        .expect("no panic");
}

#[test]
fn threads_do_the_same_without_io_uring() {
    let file = TempFile::new("threads", 64 * 1024);
    let mut io = FileIo::open(&file.0, &on_threads(8)).expect("opens");
    assert_eq!(io.engine(), FileEngine::Threads);
    write_then_read_back(&mut io);
}

#[test]
fn threads_carry_out_more_requests_than_there_are_threads() {
    let depth = 4 * FileIo::THREADS_MAX as u16;
    let file = TempFile::new("many", u64::from(depth) * 4096);
    let mut io = FileIo::open(&file.0, &on_threads(depth)).expect("opens");
    let last = 20;
    for round in 0..=last {
        for slot in 0..depth {
            io.buffer_mut(slot).fill(slot as u8 ^ round);
            io.submit(slot, FileOp::Write, u64::from(slot) * 4096, 4096);
        }
        assert_eq!(drain(&mut io).len(), usize::from(depth));
    }
    let bytes = std::fs::read(&file.0).expect("reads");
    for (slot, block) in bytes.chunks(4096).enumerate() {
        assert!(
            block.iter().all(|&byte| byte == slot as u8 ^ last),
            "{slot}"
        );
    }
}

#[test]
fn waiting_for_nothing_returns_at_once() {
    let file = TempFile::new("nothing", 4096);
    for options in [options(1), on_threads(1)] {
        let mut io = FileIo::open(&file.0, &options).expect("opens");
        let count = io.wait(None, &mut Vec::new()).expect("waits");
        assert_eq!(count, 0);
    }
}

#[test]
fn completions_make_the_descriptor_readable() {
    let file = TempFile::new("announce", 4096);
    for options in [options(1), on_threads(1)] {
        let mut io = FileIo::open(&file.0, &options).expect("opens");
        io.announce().expect("there is a descriptor left");
        io.submit(0, FileOp::Read, 0, 4096);
        let descriptor = io.descriptor().expect("it was asked for");
        let mut entries = [PollFd::new(&descriptor, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut entries, Some(&patience)), Ok(1), "{options:?}");
        assert_eq!(drain(&mut io).len(), 1);
    }
}

#[test]
fn discarded_bytes_read_as_zeros() {
    let file = TempFile::new("discard", 64 * 1024);
    let mut io = FileIo::open(&file.0, &options(1)).expect("opens");
    io.buffer_mut(0).fill(7);
    for op in [FileOp::Write, FileOp::Flush, FileOp::Discard, FileOp::Read] {
        io.submit(0, op, 8192, 4096);
        assert!(drain(&mut io)[0].result.is_ok(), "{op:?}");
    }
    assert!(io.buffer(0).iter().all(|&b| b == 0));
}

#[test]
fn a_read_across_the_end_is_short() {
    let file = TempFile::new("short", 512);
    let mut io = FileIo::open(&file.0, &options(1)).expect("opens");
    io.submit(0, FileOp::Read, 0, 4096);
    let done = drain(&mut io);
    assert!(
        matches!(
            done[0].result,
            Err(FileError::Short {
                done_bytes: 512,
                wanted_bytes: 4096
            })
        ),
        "{done:?}"
    );
}

#[test]
#[should_panic(expected = "the kernel's")]
fn the_buffer_of_a_slot_in_flight_is_not_lent() {
    let file = TempFile::new("lent", 4096);
    let mut io = FileIo::open(&file.0, &options(1)).expect("opens");
    io.submit(0, FileOp::Read, 0, 4096);
    let _ = io.buffer(0);
}

#[test]
fn requests_in_flight_are_waited_for_on_drop() {
    let file = TempFile::new("drop", 1 << 20);
    for round in 0..50 {
        let options = [options(64), on_threads(64)][round % 2];
        let mut io = FileIo::open(&file.0, &options).expect("opens");
        for slot in 0..64 {
            io.submit(slot, FileOp::Read, u64::from(slot) * 4096, 4096);
        }
        io.poll(&mut Vec::new()).expect("polls");
    }
}

#[test]
fn a_waker_ends_a_wait_from_another_thread() {
    let file = TempFile::new("waker", 4096);
    for options in [options(1), on_threads(1)] {
        let mut io = FileIo::open(&file.0, &options).expect("opens");
        for _ in 0..3 {
            let waker = io.waker().expect("there is a descriptor left");
            let waking = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            let count = io.wait(None, &mut Vec::new()).expect("waits");
            assert_eq!(count, 0, "{options:?}");
            waking.join().expect("no panic");
        }
        io.submit(0, FileOp::Read, 0, 4096);
        assert_eq!(drain(&mut io).len(), 1);
    }
}

#[test]
fn zeroed_and_durable_writes_do_what_they_say() {
    let file = TempFile::new("zeroed", 64 * 1024);
    for options in [options(1), on_threads(1)] {
        let mut io = FileIo::open(&file.0, &options).expect("opens");
        for (op, byte) in [(FileOp::WriteDurable, 7), (FileOp::WriteZeroes, 0)] {
            io.buffer_mut(0).fill(7);
            io.submit(0, op, 8192, 4096);
            assert!(drain(&mut io)[0].result.is_ok(), "{op:?}");
            io.submit(0, FileOp::Read, 8192, 4096);
            drain(&mut io);
            assert!(io.buffer(0).iter().all(|&b| b == byte), "{op:?}");
        }
    }
}

mod disks {
    //! Files as disks.

    use super::*;
    use crate::{HostDisk, HostDiskError, NewFile};

    const LEN: u64 = 1 << 20;

    fn new(len_bytes: u64) -> NewFile {
        NewFile {
            len_bytes,
            allocate: false,
        }
    }

    #[test]
    fn a_disk_is_for_one_user_and_free_again_after_it() {
        let file = TempFile::new("one-user", LEN);
        let first = HostDisk::open(&file.0, 4096, None).expect("opens");
        assert_eq!(first.len_bytes(), LEN);
        let second = HostDisk::open(&file.0, 4096, None);
        assert!(matches!(second, Err(HostDiskError::InUse)), "{second:?}");
        drop(first);
        HostDisk::open(&file.0, 4096, None).expect("opens again");
    }

    #[test]
    fn a_missing_file_is_created_only_if_asked_and_grows() {
        let file = TempFile::new("created", 0);
        std::fs::remove_file(&file.0).expect("it exists");
        let missing = HostDisk::open(&file.0, 4096, None);
        assert!(
            matches!(missing, Err(HostDiskError::Missing)),
            "{missing:?}"
        );
        let disk = HostDisk::open(&file.0, 4096, Some(new(LEN))).expect("is created");
        assert_eq!((disk.len_bytes(), disk.allocated_bytes()), (LEN, 0));
        let grown = NewFile {
            len_bytes: 2 * LEN,
            allocate: true,
        };
        disk.grow(grown).expect("there is space");
        assert_eq!(HostDisk::len_of(&file.0).expect("it exists"), 2 * LEN);
        assert!(disk.allocated_bytes() >= LEN);
    }

    #[test]
    fn what_is_no_disk_is_refused_and_nothing_is_left_of_a_failed_creation() {
        let folder = std::env::temp_dir();
        let refused = HostDisk::open(&folder, 4096, None);
        assert!(
            matches!(refused, Err(HostDiskError::NotADisk)),
            "{refused:?}"
        );
        let terminal = HostDisk::len_of(std::path::Path::new("/dev/null"));
        assert!(
            matches!(terminal, Err(HostDiskError::NotADisk)),
            "{terminal:?}"
        );
        let file = TempFile::new("too-long", 0);
        std::fs::remove_file(&file.0).expect("it exists");
        let refused = HostDisk::open(&file.0, 4096, Some(new(u64::MAX)));
        assert!(
            matches!(refused, Err(HostDiskError::Create(_))),
            "{refused:?}"
        );
        assert!(!file.0.exists());
    }
}
