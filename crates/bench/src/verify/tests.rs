use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::Duration,
};

use super::{pattern::Stamp, *};
use crate::{End, Source};

struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("verify-{}-{name}", std::process::id()));
        let file = File::create(&path).expect("temp folder takes files");
        file.set_len(LEN_BYTES).expect("length can be set");
        Self(path)
    }

    fn plan(&self, rw: &str) -> Plan {
        Plan {
            pattern: rw.parse().expect("known"),
            end: End::OnePass,
            seed: 99,
            depth: 8,
            jobs: 2,
            ..Plan::new(vec![Source::Path(self.0.clone())])
        }
    }

    fn write(&self, offset_bytes: u64, bytes: &[u8]) {
        let file = OpenOptions::new().write(true).open(&self.0).expect("opens");
        file.write_all_at(bytes, offset_bytes).expect("writes");
    }

    fn read(&self, offset_bytes: u64, bytes: &mut [u8]) {
        let file = File::open(&self.0).expect("opens");
        file.read_exact_at(bytes, offset_bytes).expect("reads");
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const LEN_BYTES: u64 = 4 << 20;
const UNITS: u64 = LEN_BYTES / 4096;

fn verified(plan: &Plan) -> VerifyReport {
    verify(plan, &ProgressBar::hidden()).expect("runs")
}

#[test]
fn what_was_written_is_found_in_every_order() {
    for rw in ["write", "randwrite", "rw", "randrw"] {
        let file = TempFile::new(rw);
        let report = verified(&file.plan(rw));
        assert_eq!((report.differing_blocks, report.errors), (0, 0), "{report}");
        assert!(report.written_blocks >= UNITS && report.checked_blocks >= UNITS);
        let again = verified(&file.plan("randread"));
        assert_eq!(again.differing_blocks, 0, "{again}");
        assert_eq!(again.written_blocks, 0);
        assert_eq!(
            again.checked_blocks,
            report.written_blocks.min(again.checked_blocks)
        );
    }
}

#[test]
fn blocks_are_rewritten_until_time_is_up() {
    let file = TempFile::new("again");
    let blocks = UNITS * 4096 / block_bytes(&file);
    let mut time = Duration::from_millis(300);
    loop {
        let report = verified(&Plan {
            end: End::After(time),
            ..file.plan("randrw")
        });
        assert_eq!(report.differing_blocks, 0, "{report}");
        assert!(report.elapsed_s >= time.as_secs_f64(), "{report}");
        if report.written_blocks > 2 * blocks {
            return;
        }
        assert!(time < Duration::from_secs(30), "{report}");
        time *= 2;
    }
}

fn block_bytes(file: &TempFile) -> u64 {
    let plan = file.plan("read");
    u64::from(attach(&plan).expect("attaches")[0].unit_bytes)
}

#[test]
fn the_first_differing_lba_is_shown_with_both_contents() {
    let file = TempFile::new("damage");
    verified(&file.plan("write"));
    let block = block_bytes(&file);
    file.write(3 << 20, &[0xee]);
    file.write((1 << 20) + 100, &[0xee, 0xff]);
    let report = verified(&file.plan("read"));
    assert_eq!(report.differing_blocks, 2);
    let first = report.first_difference.expect("two blocks differ");
    assert_eq!((first.lba, first.byte), ((1 << 20) / block, 100));
    assert!(first.found[12..].starts_with("ee ff"), "{}", first.found);
    assert_eq!(first.found[18..], first.expected[18..]);
    assert!(first.explanation.contains("rest"), "{}", first.explanation);
}

#[test]
fn misplaced_missing_and_foreign_blocks_are_distinguished() {
    let file = TempFile::new("kinds");
    verified(&file.plan("write"));
    let block = block_bytes(&file) as usize;
    let explanation = || {
        let report = verified(&file.plan("read"));
        assert_eq!(report.differing_blocks, 1);
        report.first_difference.expect("one differs").explanation
    };
    let mut right = vec![0; block];
    file.read(8192, &mut right);
    let mut other = vec![0; block];
    file.read(65536, &mut other);
    file.write(8192, &other);
    assert_eq!(
        explanation(),
        format!("it belongs to LBA {}", 65536 / block)
    );
    file.write(8192, &vec![0; block]);
    assert_eq!(explanation(), "it reads as zeros");
    let stamp = Stamp {
        lba: 8192 / block as u64,
        seed: 5,
        generation: 1,
    };
    stamp.fill(&mut other);
    file.write(8192, &other);
    assert_eq!(explanation(), "it was written with --randseed 5");
    file.write(8192, &right);
    assert_eq!(verified(&file.plan("read")).differing_blocks, 0);
}

#[test]
fn a_lost_write_shows_as_a_stale_generation() {
    let stamp = Stamp {
        lba: 4,
        seed: 1,
        generation: 1,
    };
    let mut block = vec![0; 512];
    stamp.fill(&mut block);
    let expected = Stamp {
        generation: 2,
        ..stamp
    };
    let byte = expected.first_difference(&block).expect("differs");
    let mismatch = Mismatch::new(&block, expected, byte);
    assert_eq!(
        mismatch.explanation,
        "it is stale: generation 1 instead of 2"
    );
}
