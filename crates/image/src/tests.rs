use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use block::every_variant;
use block::testing::{messages, replay};
use proptest::prelude::*;
use uuid::Uuid;

use super::testing::{Crash, SimFiles, VecSource, contents, read_file};
use super::*;

const CHUNK: usize = CHUNK_BYTES as usize;

fn path() -> PathBuf {
    "/srv/saves/rd0.save".into()
}

fn label(source: &VecSource, sequence: u64) -> Label {
    Label {
        volume: "rd0".to_owned(),
        size_bytes: source.0.len() as u64,
        block_bytes: 512,
        lineage: Uuid::from_u128(0x0123_4567_89ab_4def_8123_4567_89ab_cdef),
        sequence,
        moment_unix_ns: 1_700_000_000_123_456_789,
    }
}

fn save_to<F: Files>(
    files: &F,
    path: &Path,
    source: &VecSource,
    sequence: u64,
) -> Result<Written, WriteError> {
    let label = label(source, sequence);
    let progress = &mut |_| ControlFlow::Continue(());
    write(files, path, &label, source, Replace::SameLineage, progress)
}

fn save(files: &SimFiles, source: &VecSource, sequence: u64) -> Result<Written, WriteError> {
    save_to(files, &path(), source, sequence)
}

/// The bytes of a save of `source`.
fn saved(source: &VecSource) -> Vec<u8> {
    let files = SimFiles::default();
    save(&files, source, 1).expect("saved");
    files.bytes(&path()).expect("it is there")
}

/// `len` bytes that LZ4 cannot shorten.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Three chunks and a half: zeros, text, noise, text.
fn mixed() -> VecSource {
    let mut bytes = vec![0; CHUNK];
    bytes.extend(b"all work and no play ".iter().cycle().take(CHUNK));
    bytes.extend(noise(7, CHUNK));
    bytes.extend(b"makes jack ".iter().cycle().take(CHUNK / 2));
    VecSource(bytes)
}

/// Small in a file, with a hole: its header, index and trailer are most of it.
fn small() -> VecSource {
    let mut bytes = vec![0; 2 * CHUNK + 1024];
    bytes[10] = 7;
    bytes[2 * CHUNK + 5] = 9;
    VecSource(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(64)))]
    #[test]
    fn what_is_saved_is_read_back(
        blocks in 1..2000_usize,
        writes in prop::collection::vec((any::<u64>(), 0..1_024_000_usize, 1..300_000_usize), 0..6),
    ) {
        let mut bytes = vec![0; blocks * 512];
        for (seed, at, len) in writes {
            let at = at % bytes.len();
            let len = len.min(bytes.len() - at);
            let data = if seed % 3 == 0 { vec![seed as u8; len] } else { noise(seed, len) };
            bytes[at..at + len].copy_from_slice(&data);
        }
        let source = VecSource(bytes);
        let file = saved(&source);
        prop_assert_eq!(contents(&file).expect("opens"), Some(source.0));
    }
}

#[test]
fn zeros_take_no_room_and_noise_takes_its_own() {
    let source = mixed();
    let files = SimFiles::default();
    let written = save(&files, &source, 3).expect("saved");
    assert_eq!(written.held_bytes, 2 * CHUNK_BYTES + CHUNK_BYTES / 2);
    let bytes = files.bytes(&path()).expect("it is there");
    assert_eq!(written.file_bytes, bytes.len() as u64);
    assert!((CHUNK..CHUNK + CHUNK / 16).contains(&bytes.len()));
    let image = Image::open(bytes.as_slice(), |_| Ok::<(), ImageError>(())).expect("opens");
    assert_eq!(*image.label(), label(&source, 3));
    assert_eq!(image.held_bytes(), written.held_bytes);
}

#[test]
fn a_kill_at_any_call_leaves_the_old_save_or_the_new_one() {
    let (old, new) = (small(), mixed());
    let mut outcomes = [0, 0];
    for call in 0.. {
        let files = SimFiles::default();
        save(&files, &old, 1).expect("saved");
        files.fail_from(call);
        let result = save(&files, &new, 2);
        for crash in Crash::ALL {
            let after = files.after(crash);
            let bytes = after.bytes(&path()).expect("never none");
            let shown = contents(&bytes).expect("complete").expect("undamaged");
            let is_new = shown == new.0;
            assert!(
                is_new || shown == old.0,
                "call {call}, {crash:?}: a mixture"
            );
            outcomes[usize::from(is_new)] += 1;
            assert!(is_new || result.is_err(), "call {call}, {crash:?}: lost");
            // What a kill left is removed by the next save.
            save(&after, &new, 3).expect("the next save succeeds");
            assert_eq!(after.count(), 1, "call {call}, {crash:?}");
        }
        if !files.has_failed() {
            assert!(call > 5, "there are so many calls");
            break;
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

#[test]
fn a_call_that_fails_leaves_no_file_behind() {
    for call in 0.. {
        let files = SimFiles::default();
        save(&files, &small(), 1).expect("saved");
        files.fail_once(call);
        let result = save(&files, &mixed(), 2);
        let has_failed = files.has_failed();
        let (shown, count) = (
            contents(&files.bytes(&path()).expect("there")),
            files.count(),
        );
        assert_eq!(count, 1, "call {call}");
        assert!(shown.expect("complete").is_some());
        if !has_failed {
            assert!(result.is_ok());
            break;
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let file = saved(&mixed());
    let near_ends = (0..400).chain(file.len() - 200..file.len());
    for len in near_ends.chain((0..file.len()).step_by(997)) {
        assert!(contents(&file[..len]).is_err(), "{len} bytes");
    }
    let longer = [&file[..], &[0]].concat();
    assert!(matches!(contents(&longer), Err(ImageError::End { .. })));
}

#[test]
fn no_flipped_bit_changes_what_is_read() {
    let source = small();
    let file = saved(&source);
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            // Two LZ4 blocks may be unpacked to the same bytes.
            if let Ok(Some(shown)) = contents(&damaged) {
                assert!(shown == source.0, "byte {at}, bit {bit}");
            }
        }
    }
    let file = saved(&mixed());
    for at in (0..file.len()).step_by(1009) {
        let mut damaged = file.clone();
        damaged[at] ^= 0x10;
        if let Ok(Some(shown)) = contents(&damaged) {
            assert!(shown == mixed().0, "byte {at}");
        }
    }
}

#[test]
fn damage_is_confined_to_its_chunk() {
    let source = mixed();
    let mut file = saved(&source);
    let end = file.len();
    // In the noise, which is most of the file.
    file[end / 2] ^= 1;
    let image = Image::open(file.as_slice(), |_| Ok::<(), ImageError>(())).expect("opens");
    let mut found = Vec::new();
    let read = image.read(&mut |chunk| {
        let at = chunk.range.offset as usize;
        match chunk.bytes {
            Some(bytes) => assert_eq!(*bytes, source.0[at..at + bytes.len()]),
            None => found.push(at / CHUNK),
        }
        Ok::<(), ImageError>(())
    });
    read.expect("can be read");
    assert_eq!(found, [2]);
}

#[test]
fn two_halves_of_two_saves_are_no_save() {
    let (one, two) = (saved(&mixed()), saved(&small()));
    let joined = [&one[..256], &two[256..]].concat();
    assert!(contents(&joined).is_err());
}

#[test]
fn saves_of_other_contents_and_other_files_are_not_replaced() {
    let files = SimFiles::default();
    let source = small();
    save(&files, &source, 1).expect("saved");
    let other = Label {
        lineage: Uuid::from_u128(1),
        ..label(&source, 1)
    };
    let progress = &mut |_| ControlFlow::Continue(());
    let refused = write(
        &files,
        &path(),
        &other,
        &source,
        Replace::SameLineage,
        progress,
    );
    assert!(matches!(refused, Err(WriteError::OtherSave { .. })));
    write(&files, &path(), &other, &source, Replace::AnySave, progress).expect("forced");
    files.set(&path(), b"a diary");
    let refused = write(&files, &path(), &other, &source, Replace::AnySave, progress);
    assert!(matches!(refused, Err(WriteError::NotASave { .. })));
    assert_eq!(files.bytes(&path()).expect("stays"), b"a diary");
}

#[test]
fn a_cancelled_save_changes_nothing() {
    let files = SimFiles::default();
    save(&files, &small(), 1).expect("saved");
    let label = label(&mixed(), 2);
    let cancel = &mut |offset| {
        if offset > CHUNK_BYTES {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    let cancelled = write(
        &files,
        &path(),
        &label,
        &mixed(),
        Replace::SameLineage,
        cancel,
    );
    assert!(matches!(cancelled, Err(WriteError::Cancelled)));
    let bytes = files.bytes(&path()).expect("stays");
    assert_eq!(contents(&bytes).expect("whole"), Some(small().0));
    assert_eq!(files.count(), 1);
}

/// A folder of this machine that is removed with its files.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("ramport-image-{}", Uuid::new_v4().simple());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _stays = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_of_this_machine_are_written_and_leftovers_removed() {
    let folder = Folder::new();
    let path = folder.0.join("rd0.save");
    fs::write(folder.0.join(".rd0.save.x.partial"), "left by a kill").expect("written");
    let in_progress = HostFiles.create(&folder.0.join(".rd0.save.y.partial"));
    let in_progress = in_progress.expect("created");
    save_to(&HostFiles, &path, &mixed(), 1).expect("saved");
    assert_eq!(folder.names(), [".rd0.save.y.partial", "rd0.save"]);
    drop(in_progress);
    save_to(&HostFiles, &path, &small(), 2).expect("saved");
    assert_eq!(folder.names(), ["rd0.save"]);
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    let bytes = fs::read(&path).expect("readable");
    assert_eq!(contents(&bytes).expect("whole"), Some(small().0));
}

#[test]
fn a_folder_that_does_not_exist_is_named() {
    let folder = Folder::new();
    let path = folder.0.join("none/rd0.save");
    let error = save_to(&HostFiles, &path, &small(), 1).expect_err("no folder");
    let told = error.to_string();
    assert!(told.starts_with("cannot create "), "{told}");
    assert!(told.contains("/none/"), "{told}");
}

/// Files that exist stay readable: the format does not change unnoticed.
#[test]
fn the_format_is_that_of_version_1() {
    let golden = include_bytes!("../../../fuzz/corpus/image_file/small");
    assert_eq!(contents(golden).expect("opens"), Some(small().0));
    let image = Image::open(&golden[..], |_| Ok::<(), ImageError>(())).expect("opens");
    assert_eq!(*image.label(), label(&small(), 1));
    // The compressor may change.
    assert_eq!(saved(&small())[..256], golden[..256]);
}

#[test]
fn the_corpus_passes() {
    assert!(replay("image_file", read_file) >= 4);
}

#[test]
fn messages_of_errors() {
    let source = || io::Error::other("No space left on device");
    let found = Box::new(label(&small(), 4));
    let errors = every_variant!(WriteError {
        WriteError::File { .. } => [WriteError::File { step: FileStep::Write, path: path(), source: source() }],
        WriteError::OtherSave { .. } => [WriteError::OtherSave { path: path(), found: found.clone() }],
        WriteError::NotASave { .. } => [WriteError::NotASave { path: path() }],
        WriteError::NotAnIncrement { .. } => [WriteError::NotAnIncrement { path: "/srv/saves/rd0.save.inc1".into() }],
        WriteError::Source(_) => [WriteError::Source(block::Status::Gone)],
        WriteError::Cancelled => [WriteError::Cancelled],
    });
    let step = FileStep::Open;
    let broken = |fault| ImageError::Broken {
        path: "/srv/saves/rd0.save.inc3".into(),
        fault,
        sequence: 12,
    };
    let of_files = every_variant!(ImageError {
        ImageError::File { .. } => [ImageError::File { step, source: source() }],
        ImageError::NotASave => [ImageError::NotASave],
        ImageError::Version { .. } => [ImageError::Version { found: 3 }],
        ImageError::Increment => [ImageError::Increment],
        ImageError::Broken { .. } => [
            broken(LinkFault::Missing),
            broken(LinkFault::Foreign),
            broken(LinkFault::Unreadable(Box::new(ImageError::Header))),
        ],
        ImageError::Header => [ImageError::Header],
        ImageError::End { .. } => [ImageError::End { len_bytes: 1000 }],
        ImageError::Index { .. } => [ImageError::Index { offset: 256, len_bytes: 24 }],
    });
    insta::assert_snapshot!(format!("{}\n{}", messages(&errors), messages(&of_files)));
}
