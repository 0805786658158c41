use std::ops::ControlFlow;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::testing::{Crash, SimFiles, SimOld, VecSource};
use crate::{CHUNK_BYTES, Increment, Replace, WriteError, Written, write, write_increment};

const CHUNK: usize = CHUNK_BYTES as usize;

fn path() -> PathBuf {
    "/srv/saves/rd0.save".into()
}

fn label(source: &VecSource, sequence: u64) -> Label {
    Label {
        volume: "rd0".to_owned(),
        size_bytes: source.0.len() as u64,
        block_bytes: 512,
        lineage: Uuid::from_u128(7),
        sequence,
        moment_unix_ns: 1_700_000_000_000_000_000 + sequence,
    }
}

fn complete(files: &SimFiles, source: &VecSource, sequence: u64) -> Result<Tail, WriteError> {
    let label = label(source, sequence);
    let progress = &mut |_| ControlFlow::Continue(());
    let written = write(
        files,
        &path(),
        &label,
        source,
        Replace::SameLineage,
        progress,
    );
    written.map(|written| written.tail)
}

fn increment(
    files: &SimFiles,
    source: &VecSource,
    sequence: u64,
    tail: Tail,
    changed: &[u32],
) -> Result<Written, WriteError> {
    let label = label(source, sequence);
    let progress = &mut |_| ControlFlow::Continue(());
    let increment = Increment { tail, changed };
    write_increment(files, &path(), &label, source, increment, progress)
}

fn open(files: &SimFiles, if_broken: IfBroken) -> Result<Chain<SimOld>, ImageError> {
    Chain::open(files, &path(), |_| Ok::<(), ImageError>(()), if_broken)
}

/// What the files of a folder show; `None` if a chunk is damaged.
fn shown(files: &SimFiles, if_broken: IfBroken) -> Result<Option<Vec<u8>>, ImageError> {
    let chain = open(files, if_broken)?;
    let mut bytes = vec![0; chain.label().size_bytes as usize];
    let (mut is_whole, mut held_bytes) = (true, 0);
    chain.read(&mut |chunk| {
        held_bytes += chunk.range.len;
        let dest = &mut bytes[chunk.range.offset as usize..][..chunk.range.len as usize];
        match chunk.bytes {
            Some(held) => dest.copy_from_slice(held),
            None => is_whole = false,
        }
        Ok::<(), ImageError>(())
    })?;
    assert_eq!(held_bytes, chain.held_bytes());
    Ok(is_whole.then_some(bytes))
}

/// A volume of four chunks and a half at four moments: what stands in each chunk; 0 is zeros.
fn moment(number: usize) -> VecSource {
    let fills: [[u8; 5]; 4] = [
        [1, 2, 3, 0, 5],
        [1, 9, 3, 0, 5],
        [1, 9, 0, 4, 5],
        [7, 9, 0, 4, 6],
    ];
    let mut bytes = vec![0; 4 * CHUNK + CHUNK / 2];
    for (fill, chunk) in fills[number].into_iter().zip(bytes.chunks_mut(CHUNK)) {
        chunk[10..90].fill(fill);
    }
    VecSource(bytes)
}

/// What changes between these moments, and more that does not.
const CHANGED: [&[u32]; 4] = [&[], &[1, 2], &[2, 3], &[0, 4]];

/// A complete file and its first `count` increments.
fn chain_of(files: &SimFiles, count: usize) -> Tail {
    let mut tail = complete(files, &moment(0), 1).expect("saved");
    for (number, changed) in CHANGED.into_iter().enumerate().take(count + 1).skip(1) {
        let source = moment(number);
        let written = increment(files, &source, 1 + number as u64, tail, changed);
        tail = written.expect("saved").tail;
    }
    tail
}

#[test]
fn a_chain_shows_its_last_moment() {
    for count in 0..4 {
        let files = SimFiles::default();
        let tail = chain_of(&files, count);
        assert_eq!(files.count(), 1 + count);
        let chain = open(&files, IfBroken::Refuse).expect("whole");
        assert_eq!(chain.tail(), tail);
        assert_eq!(chain.label(), &label(&moment(count), 1 + count as u64));
        let bytes = shown(&files, IfBroken::Refuse).expect("whole");
        assert!(bytes == Some(moment(count).0), "{count}");
    }
}

#[test]
fn a_complete_save_removes_the_increments_of_the_former_one() {
    let files = SimFiles::default();
    chain_of(&files, 3);
    complete(&files, &moment(1), 9).expect("saved");
    assert_eq!(files.count(), 1);
    let bytes = shown(&files, IfBroken::Refuse).expect("whole");
    assert!(bytes == Some(moment(1).0));
}

/// Kills and power cuts at each call of an increment or of the complete save after some.
#[test]
fn a_kill_at_any_call_leaves_the_old_moment_or_the_new_one() {
    for count in 0..3 {
        for is_complete in [false, true] {
            let mut outcomes = [0, 0];
            for call in 0.. {
                let files = SimFiles::default();
                let tail = chain_of(&files, count);
                let (new, sequence) = (moment(count + 1), 2 + count as u64);
                // Left from an older file, where the next increment goes.
                let stale = SimFiles::default();
                chain_of(&stale, 0);
                let other = Tail {
                    increments: count as u32,
                    ..Tail::of_complete(FileId {
                        crc: 1,
                        ..tail.base
                    })
                };
                increment(&files, &moment(3), 77, other, &[0]).expect("saved");
                files.fail_from(call);
                let result = if is_complete {
                    complete(&files, &new, sequence).map(drop)
                } else {
                    increment(&files, &new, sequence, tail, CHANGED[count + 1]).map(drop)
                };
                for crash in Crash::ALL {
                    let after = files.after(crash);
                    let bytes = shown(&after, IfBroken::Refuse).expect("no gap");
                    let bytes = bytes.expect("undamaged");
                    let is_new = bytes == new.0;
                    let what = format!("{count}, {is_complete}, call {call}, {crash:?}");
                    assert!(is_new || bytes == moment(count).0, "{what}: a mixture");
                    assert!(is_new || result.is_err(), "{what}: lost");
                    outcomes[usize::from(is_new)] += 1;
                    // What is there is continued, and what a kill left is removed.
                    let tail = open(&after, IfBroken::Refuse).expect("whole").tail();
                    increment(&after, &moment(3), 50, tail, &[0, 1, 2, 3, 4]).expect("continued");
                    let bytes = shown(&after, IfBroken::Refuse).expect("whole");
                    assert!(bytes == Some(moment(3).0), "{what}");
                    complete(&after, &moment(0), 51).expect("saved");
                    assert_eq!(after.count(), 1, "{what}");
                }
                if !files.has_failed() {
                    assert!(call > 5, "there are so many calls");
                    break;
                }
            }
            assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
        }
    }
}

#[test]
fn a_missing_foreign_or_damaged_increment_ends_the_chain_before_it() {
    let files = SimFiles::default();
    chain_of(&files, 3);
    let second = increment_path(&path(), 2);
    let others = SimFiles::default();
    let tail = chain_of(&others, 1);
    increment(&others, &moment(0), 40, tail, &[1]).expect("saved");
    let foreign = others.bytes(&second).expect("there");
    let whole = files.bytes(&second).expect("there");
    let mut cases = vec![
        ("cut", whole[..whole.len() - 1].to_vec()),
        ("no save", b"a diary".to_vec()),
        ("complete", files.bytes(&path()).expect("there")),
        ("its content is another's", foreign),
    ];
    for at in [9, 100, 130, 250, whole.len() - 70, whole.len() - 30] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        cases.push(("bit", bytes));
    }
    for (what, bytes) in cases {
        let broken = files.after(Crash::Kill);
        broken.set(&second, &bytes);
        // What follows the second, or the second itself, does not fit.
        let error = open(&broken, IfBroken::Refuse).expect_err(what);
        assert!(
            matches!(error, ImageError::Broken { .. }),
            "{what}: {error}"
        );
        let chain = open(&broken, IfBroken::EndBefore).expect("the rest fits");
        assert!(chain.broken().is_some());
        let bytes = shown(&broken, IfBroken::EndBefore).expect("the rest fits");
        let number = chain.tail().increments as usize;
        let moments = [moment(1).0, [moment(1).0, moment(0).0].concat()];
        let is_one = number == 1 && bytes.as_ref() == Some(&moments[0]);
        let is_foreign = what == "its content is another's";
        assert!(is_one || is_foreign, "{what}: {number}");
    }
    let missing = files.after(Crash::Kill);
    missing.remove(&second).expect("there");
    let error = open(&missing, IfBroken::Refuse).expect_err("a gap");
    assert!(
        error.to_string().contains("rd0.save.inc2 is missing"),
        "{error}"
    );
    let bytes = shown(&missing, IfBroken::EndBefore).expect("the rest fits");
    assert!(bytes == Some(moment(1).0));
}

#[test]
fn damage_in_an_increment_is_not_replaced_by_what_was_before() {
    let files = SimFiles::default();
    chain_of(&files, 1);
    let first = increment_path(&path(), 1);
    let mut bytes = files.bytes(&first).expect("there");
    bytes[260] ^= 4;
    files.set(&first, &bytes);
    let chain = open(&files, IfBroken::Refuse).expect("its index is whole");
    let mut damaged = Vec::new();
    let read = chain.read(&mut |chunk| {
        if chunk.bytes.is_none() {
            damaged.push(chunk.range.offset / CHUNK_BYTES);
        }
        Ok::<(), ImageError>(())
    });
    read.expect("readable");
    assert_eq!(damaged, [1]);
}

#[test]
fn an_increment_is_no_complete_save_and_replaces_no_other_file() {
    let files = SimFiles::default();
    let tail = chain_of(&files, 1);
    let first = files.bytes(&increment_path(&path(), 1)).expect("there");
    let opened = Image::open(first.as_slice(), |_| Ok::<(), ImageError>(()));
    assert!(matches!(opened, Err(ImageError::Increment)));
    files.set(&increment_path(&path(), 2), b"a diary");
    let refused = increment(&files, &moment(2), 3, tail, CHANGED[2]);
    assert!(matches!(refused, Err(WriteError::NotAnIncrement { .. })));
    complete(&files, &moment(2), 3).expect("saved");
    assert_eq!(files.count(), 2, "the diary stays");
}

#[test]
fn a_chain_has_a_bound() {
    let files = SimFiles::default();
    let mut tail = complete(&files, &moment(0), 1).expect("saved");
    for sequence in 2.. {
        if !tail.has_room() {
            break;
        }
        let number = sequence as usize % 4;
        let written = increment(&files, &moment(number), sequence, tail, &[0, 1, 2, 3, 4]);
        tail = written.expect("saved").tail;
    }
    assert_eq!(tail.increments, INCREMENTS_MAX);
    let bytes = shown(&files, IfBroken::Refuse).expect("whole");
    let last = (1 + INCREMENTS_MAX) as usize % 4;
    assert!(bytes == Some(moment(last).0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(32)))]

    #[test]
    fn any_changes_are_read_back(
        steps in prop::collection::vec(prop::collection::vec((0..9_u32, any::<u8>()), 0..6), 1..8),
    ) {
        let files = SimFiles::default();
        let mut source = VecSource(vec![0; 8 * CHUNK + 4096]);
        let mut tail = complete(&files, &source, 1).expect("saved");
        for (sequence, step) in (2..).zip(steps) {
            let mut changed: Vec<u32> = step.iter().map(|&(number, _)| number).collect();
            changed.sort_unstable();
            changed.dedup();
            for (number, fill) in step {
                let fill = if fill % 3 == 0 { 0 } else { fill };
                source.0[number as usize * CHUNK..][..4096].fill(fill);
            }
            tail = increment(&files, &source, sequence, tail, &changed).expect("saved").tail;
            let bytes = shown(&files, IfBroken::Refuse).expect("whole");
            prop_assert!(bytes.as_ref() == Some(&source.0));
        }
    }
}
