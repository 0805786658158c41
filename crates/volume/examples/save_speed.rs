//! What saving and restoring cost: the figures of `docs/design/0020-saves.md`.
//!
//! `cargo run --release -p volume --example save_speed FOLDER [MIB]`

#![expect(clippy::cast_precision_loss, reason = "figures for people to read")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use block::{Blocks, Completion, Completions, Extent, Lba, Op};
use volume::{
    Budget, HostMemory, ManagedVolume, Origin, Platform, Relay, Replace, SaveId, SaveMode, Target,
    VolumeSpec, Wanted,
};

const MIB: usize = 1 << 20;
/// A part of each block of 4 KiB that LZ4 cannot shorten, in bytes, for each row.
const NOISE: [usize; 3] = [4096, 2048, 0];

struct Nobody;

impl Completions for Nobody {
    fn done(&self, _: Completion) {}
}

fn main() {
    let mut words = std::env::args().skip(1);
    let folder = words.next().expect("a folder");
    let mib = words.next();
    let mib: u64 = mib.map_or(1024, |word| word.parse().expect("a number of MiB"));
    let len_bytes = mib * MIB as u64;
    let path = Path::new(&folder).join("save_speed.save");
    for noise_bytes in NOISE {
        let data = data(noise_bytes);
        println!("{noise_bytes} of 4096 bytes are noise, {mib} MiB");
        plain(&path, &data, len_bytes);
        let volume = filled(&data, len_bytes);
        save(&path, &volume, len_bytes);
        // Its memory is used again, as that of a daemon that was restarted.
        drop(volume);
        restore(&path, len_bytes);
        fs::remove_file(&path).expect("removed");
    }
}

/// A MiB of blocks.
fn data(noise_bytes: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9ABC_DEF1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let byte = |at: usize| if at % 4096 < noise_bytes { next() } else { 7 };
    (0..MIB).map(byte).collect()
}

/// As `dd bs=1M conv=fsync`, and the way back with an empty page cache.
fn plain(path: &Path, data: &[u8], len_bytes: u64) {
    let begin = Instant::now();
    let mut file = File::create(path).expect("created");
    for _ in 0..len_bytes / MIB as u64 {
        file.write_all(data).expect("written");
    }
    file.sync_data().expect("synced");
    report("plain write", len_bytes, begin.elapsed());
    forget(path);
    let begin = Instant::now();
    let mut file = File::open(path).expect("opened");
    let mut buffer = vec![0; MIB];
    while file.read(&mut buffer).expect("read") > 0 {}
    report("plain read", len_bytes, begin.elapsed());
    fs::remove_file(path).expect("removed");
}

/// Drops a file's pages.
fn forget(path: &Path) {
    let file = path.display();
    let told = std::process::Command::new("dd")
        .args([
            &format!("if={file}"),
            "iflag=nocache",
            "count=0",
            "status=none",
        ])
        .status();
    assert!(told.expect("there is dd").success());
}

fn volume(len_bytes: u64) -> Arc<dyn ManagedVolume> {
    let host = HostMemory::probe().expect("Linux");
    let platform = Platform {
        budget: Arc::new(Budget::for_host(4 * len_bytes, &host)),
        relay: Relay::new(Arc::new(Nobody)),
        lanes: Arc::default(),
        record: None,
    };
    let spec = VolumeSpec::thin(volume::ByteSize(len_bytes));
    let progress = &mut |_| ControlFlow::Continue(());
    volume::create(&spec, Origin::New, &platform, progress).expect("thin")
}

fn filled(data: &[u8], len_bytes: u64) -> Arc<dyn ManagedVolume> {
    let volume = volume(len_bytes);
    let begin = Instant::now();
    for lba in (0..len_bytes / 512).step_by(MIB / 512) {
        write(&*volume, lba, data);
    }
    report("first writes", len_bytes, begin.elapsed());
    volume
}

fn write(volume: &dyn ManagedVolume, lba: u64, data: &[u8]) {
    let extent = Extent::new(Lba(lba), Blocks(data.len() as u64 / 512));
    volume.execute(Op::Write { extent, data }).expect("fits");
}

fn save(path: &Path, volume: &Arc<dyn ManagedVolume>, len_bytes: u64) {
    let save = || {
        let id = SaveId::first();
        let target = Target {
            path,
            replace: Replace::AnySave,
            mode: SaveMode::Single,
            prepare: background,
        };
        let progress = &mut |_| ControlFlow::Continue(());
        volume::save(&**volume, "v", id, &target, progress).expect("saved")
    };
    let begin = Instant::now();
    let saved = save();
    report("save", len_bytes, begin.elapsed());
    println!("  file: {} MiB", saved.file_bytes >> 20);
    let quiet = latencies(volume, len_bytes, || thread::sleep(Duration::from_secs(2)));
    let busy = latencies(volume, len_bytes, || {
        save();
    });
    for (what, mut sorted) in [("alone", quiet), ("during a save", busy)] {
        sorted.sort();
        let at = |per_mille: usize| sorted[sorted.len() * per_mille / 1000].as_secs_f64() * 1e6;
        println!(
            "  writes of 4 KiB {what}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us",
            at(500),
            at(990),
            at(999)
        );
    }
}

/// As the daemon's thread does, except for its time slice.
fn background() {
    let _as_it_is = rustix::process::setpriority_process(None, 19);
}

/// How long random writes of 4 KiB take, one each 100 us, while `work` runs in another thread.
fn latencies(
    volume: &Arc<dyn ManagedVolume>,
    len_bytes: u64,
    work: impl FnOnce() + Send,
) -> Vec<Duration> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            work();
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut all, mut state) = (Vec::new(), 1_u64);
        while !is_over.load(Ordering::Relaxed) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let lba = (state >> 20) % (len_bytes / 4096) * 8;
            let begin = Instant::now();
            write(&**volume, lba, &[9; 4096]);
            all.push(begin.elapsed());
            thread::sleep(Duration::from_micros(100));
        }
        worker.join().expect("it ends");
        all
    })
}

fn restore(path: &Path, len_bytes: u64) {
    forget(path);
    let volume = volume(len_bytes);
    let begin = Instant::now();
    let progress = &mut |_| ControlFlow::Continue(());
    volume::restore(&*volume, path, Wanted::default(), progress).expect("restored");
    report("restore", len_bytes, begin.elapsed());
}

fn report(what: &str, len_bytes: u64, took: Duration) {
    let mib = (len_bytes >> 20) as f64;
    println!(
        "  {what}: {:.0} MiB/s ({took:.1?})",
        mib / took.as_secs_f64()
    );
}
