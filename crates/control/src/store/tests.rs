use std::fs::{self, File};

use uuid::Uuid;

use super::*;
use crate::definitions::{Definitions, Volume};
use crate::testing::Folder;
use crate::text::Text;

mod crashes;

fn volume(name: &str) -> Change {
    let volume: Volume = serde_json::from_str(r#"{"size": "1 MiB"}"#).expect("a volume");
    Change::SetVolume(Text(name.parse().expect("a name")), volume)
}

fn names(definitions: &Definitions) -> Vec<String> {
    definitions
        .volumes
        .keys()
        .map(ToString::to_string)
        .collect()
}

/// An open state file that transactions are written to.
fn settled(folder: &Folder) -> (Store, SavedState) {
    let (mut store, saved) = Store::open(&folder.state()).expect("opens");
    store.settle().expect("written");
    (store, saved)
}

fn reopened(path: &Path) -> Vec<String> {
    let (_store, saved) = Store::open(path).expect("opens");
    names(&saved.definitions)
}

#[test]
fn what_was_appended_is_there_after_reopening() {
    let folder = Folder::new();
    let (mut store, saved) = settled(&folder);
    assert_eq!(saved, SavedState::default());
    store.append(&[volume("a"), volume("b")]).expect("appended");
    store.append(&[volume("c")]).expect("appended");
    let removal = Change::RemoveVolume(Text("b".parse().expect("a name")));
    store.append(&[removal]).expect("appended");
    drop(store);
    assert_eq!(reopened(&folder.state()), ["a", "c"]);
}

#[test]
fn a_file_cut_anywhere_holds_the_transactions_before_the_cut() {
    let folder = Folder::new();
    let (mut store, _) = settled(&folder);
    let mut ends = vec![store.len_bytes];
    for name in ["a", "b", "c"] {
        store.append(&[volume(name)]).expect("appended");
        ends.push(store.len_bytes);
    }
    drop(store);
    let whole = fs::read(folder.state()).expect("read");
    for cut in HEADER.len()..=whole.len() {
        fs::write(folder.state(), &whole[..cut]).expect("written");
        let saved = ends.iter().filter(|&&end| end <= cut as u64).count() - 1;
        assert_eq!(
            reopened(&folder.state()),
            ["a", "b", "c"][..saved],
            "cut at {cut}"
        );
        // What is appended after a cut follows the last whole transaction.
        let (mut store, _) = settled(&folder);
        store.append(&[volume("z")]).expect("appended");
        drop(store);
        assert_eq!(
            reopened(&folder.state()).last().map(String::as_str),
            Some("z")
        );
    }
}

#[test]
fn damage_before_the_last_line_stops_the_start() {
    let folder = Folder::new();
    let (mut store, _) = settled(&folder);
    store.append(&[volume("a")]).expect("appended");
    store.append(&[volume("b")]).expect("appended");
    drop(store);
    let bytes = fs::read(folder.state()).expect("read");
    let error = damaged(&folder, &bytes, HEADER.len() + 12);
    assert!(
        matches!(error, StoreError::Damaged { line: 2, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("line 2 is damaged: its checksum is wrong; restore")
    );
}

/// The message about a file in which the byte at `at` was damaged. The file is not changed.
fn damaged(folder: &Folder, bytes: &[u8], at: usize) -> StoreError {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    fs::write(folder.state(), &bytes).expect("written");
    let error = Store::open(&folder.state()).expect_err("damaged");
    assert_eq!(fs::read(folder.state()).expect("read"), bytes);
    error
}

#[test]
fn damage_anywhere_in_a_complete_last_line_stops_the_start() {
    let folder = Folder::new();
    let (mut store, _) = settled(&folder);
    store.append(&[volume("a")]).expect("appended");
    let last = usize::try_from(store.len_bytes).expect("short");
    store.append(&[volume("b")]).expect("appended");
    drop(store);
    let whole = fs::read(folder.state()).expect("read");
    for at in last..whole.len() {
        let error = damaged(&folder, &whole, at);
        let last = Place::Last;
        assert!(
            matches!(error, StoreError::Damaged { line: 3, place, .. } if place == last),
            "{at}: {error}"
        );
        assert!(
            error
                .to_string()
                .contains("delete this last line to go back"),
            "{error}"
        );
    }
}

#[test]
fn a_start_that_is_not_settled_leaves_the_file_unchanged() {
    let folder = Folder::new();
    let (mut store, _) = settled(&folder);
    store.append(&[volume("a")]).expect("appended");
    drop(store);
    let mut torn = fs::read(folder.state()).expect("read");
    torn.extend_from_slice(b"0123");
    fs::write(folder.state(), &torn).expect("written");
    let (mut store, _) = Store::open(&folder.state()).expect("opens");
    store.append(&[volume("b")]).expect("collected");
    drop(store);
    assert_eq!(fs::read(folder.state()).expect("read"), torn);
    let (mut store, _) = Store::open(&folder.state()).expect("opens");
    store.append(&[volume("b")]).expect("collected");
    store.append(&[volume("c")]).expect("collected");
    store.settle().expect("written");
    drop(store);
    assert_eq!(reopened(&folder.state()), ["a", "b", "c"]);
}

#[test]
fn an_unknown_field_is_an_error() {
    let folder = Folder::new();
    let json = r#"[{"set_volume":["a",{"size":"1 MiB","colour":"red"}]}]"#;
    let line = format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes()));
    fs::write(folder.state(), format!("{HEADER}{line}")).expect("written");
    let error = Store::open(&folder.state())
        .expect_err("unknown field")
        .to_string();
    assert!(error.contains("unknown field `colour`"), "{error}");
}

#[test]
fn a_file_of_another_format_is_not_changed() {
    let folder = Folder::new();
    fs::write(folder.state(), "ramport-state 2\nwhatever\n").expect("written");
    let error = Store::open(&folder.state()).expect_err("another version");
    assert!(matches!(error, StoreError::Format { .. }));
    let text = fs::read_to_string(folder.state()).expect("read");
    assert_eq!(text, "ramport-state 2\nwhatever\n");
}

#[test]
fn a_kill_between_the_steps_of_a_compaction_loses_nothing() {
    let folder = Folder::new();
    let (mut store, mut saved) = settled(&folder);
    for name in ["a", "b"] {
        store.append(&[volume(name)]).expect("appended");
        saved.make(volume(name));
    }
    // Killed while the new file was being written: half of it lies beside the old one.
    fs::write(folder.join("state.new"), "ramport-state 1\n1234").expect("written");
    drop(store);
    assert_eq!(reopened(&folder.state()), ["a", "b"]);
    let (mut store, saved) = settled(&folder);
    store.compact(&saved).expect("compacted");
    store
        .append(&[volume("c")])
        .expect("appended after compaction");
    drop(store);
    assert_eq!(reopened(&folder.state()), ["a", "b", "c"]);
    assert!(!folder.join("state.new").exists());
}

#[test]
fn churn_is_compacted_and_the_file_stays_short() {
    let folder = Folder::new();
    let (mut store, mut saved) = settled(&folder);
    let mut compactions = 0;
    let batch: Vec<_> = (0..500).map(|n| volume(&format!("v{n}"))).collect();
    for _ in 0..40 {
        store.append(&batch).expect("appended");
        for change in &batch {
            saved.make(change.clone());
        }
        if store.wants_compaction() {
            store.compact(&saved).expect("compacted");
            compactions += 1;
        }
    }
    assert!(compactions >= 2, "{compactions}");
    assert!(store.len_bytes < 2 * COMPACT_MIN_BYTES + 100_000);
}

#[test]
fn a_second_daemon_is_kept_off_the_state() {
    let folder = Folder::new();
    let first = settled(&folder);
    let error = Store::open(&folder.state()).expect_err("in use");
    assert!(matches!(error, StoreError::InUse { .. }));
    drop(first);
    Store::open(&folder.state()).expect("free again");
}

#[test]
fn a_failed_write_leaves_the_state_unchanged() {
    let folder = Folder::new();
    let (mut store, _) = settled(&folder);
    store.append(&[volume("a")]).expect("appended");
    // A descriptor that cannot be written, as on a full or broken disk.
    let unwritable = File::open(folder.state()).expect("opens for reading");
    let writable = store.file.replace(unwritable);
    let error = store.append(&[volume("b")]).expect_err("not writable");
    assert!(error.to_string().contains("Bad file descriptor"), "{error}");
    store.file = writable;
    store.append(&[volume("c")]).expect("appended");
    drop(store);
    assert_eq!(reopened(&folder.state()), ["a", "c"]);
}

#[test]
fn what_identifiers_are_derived_from_outlives_compaction() {
    let folder = Folder::new();
    let (mut store, mut saved) = settled(&folder);
    let change = Change::SetMachine(Uuid::from_u128(7));
    store
        .append(std::slice::from_ref(&change))
        .expect("appended");
    saved.make(change);
    store.compact(&saved).expect("compacted");
    drop(store);
    let (_store, again) = settled(&folder);
    assert_eq!(again.definitions.machine, Some(Uuid::from_u128(7)));
}
