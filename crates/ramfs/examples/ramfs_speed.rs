//! How fast the tree is, without any protocol: `cargo run --release -p ramfs --example
//! ramfs_speed`.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use file_tree::{AttributeChanges, Caller, FileId, FileTree, Name, NewFile, Timestamp};
use memory::Budget;
use ramfs::{Quota, RamTree};

const ROOT: &Caller<'_> = &Caller::ROOT;
const FILE_BYTES: u64 = 1 << 30;
const OPERATIONS: u64 = 1_000_000;
const FILES: u64 = 200_000;

fn main() {
    let budget = Arc::new(Budget::new(8 << 30));
    let clock = Arc::new(|| {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp {
            seconds: since.as_secs().try_into().unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        }
    });
    let tree = RamTree::new(Arc::clone(&budget), Quota::UNLIMITED, clock).expect("it fits");
    sequential(&tree);
    random_in(&tree, "filled in order", file(&tree, "sequential"));
    scattered(&tree);
    names(&tree);
    slab(&tree, &budget);
}

fn report(what: &str, count: u64, began: Instant) {
    let each = began.elapsed().as_nanos() as u64 / count;
    println!("{what:44} {each:>8} ns");
}

fn file(tree: &RamTree, text: &str) -> FileId {
    let name = Name::new(text.as_bytes()).expect("a name");
    let created = tree.create(
        ROOT,
        tree.root(),
        name,
        NewFile::Unchecked,
        &AttributeChanges::default(),
    );
    created.expect("it fits").value.attributes.id
}

fn sequential(tree: &RamTree) {
    let file = file(tree, "sequential");
    let data = vec![7; 1 << 20];
    for what in ["first write, 1 MiB", "overwrite, 1 MiB"] {
        let began = Instant::now();
        for i in 0..FILE_BYTES >> 20 {
            tree.write(ROOT, file, i << 20, &data, true)
                .expect("it fits");
        }
        report(what, FILE_BYTES >> 20, began);
    }
    let mut data = data;
    let began = Instant::now();
    for i in 0..FILE_BYTES >> 20 {
        tree.read(ROOT, file, i << 20, &mut data)
            .expect("it exists");
    }
    report("read, 1 MiB", FILE_BYTES >> 20, began);
}

fn random_in(tree: &RamTree, what: &str, file: FileId) {
    let mut page = [1; 4096];
    let mut offset = offsets();
    let began = Instant::now();
    for _ in 0..OPERATIONS {
        tree.read(ROOT, file, offset(), &mut page)
            .expect("it exists");
    }
    report(&format!("random read, 4 KiB, {what}"), OPERATIONS, began);
    let began = Instant::now();
    for _ in 0..OPERATIONS {
        tree.write(ROOT, file, offset(), &page, true)
            .expect("it fits");
    }
    report(&format!("random write, 4 KiB, {what}"), OPERATIONS, began);
}

fn scattered(tree: &RamTree) {
    let file = file(tree, "scattered");
    let mut offset = offsets();
    let began = Instant::now();
    for _ in 0..FILE_BYTES / 4096 {
        tree.write(ROOT, file, offset(), &[1; 4096], true)
            .expect("it fits");
    }
    report("random first write, 4 KiB", FILE_BYTES / 4096, began);
    random_in(tree, "filled at random", file);
}

fn offsets() -> impl FnMut() -> u64 {
    let mut state = 88_172_645_463_325_252_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (FILE_BYTES / 4096) * 4096
    }
}

fn names(tree: &RamTree) {
    let name = |i: u64| format!("file{i:08}");
    let began = Instant::now();
    for i in 0..FILES {
        file(tree, &name(i));
    }
    report("create", FILES, began);
    let began = Instant::now();
    for i in 0..FILES {
        let text = name(i * 7919 % FILES);
        let text = Name::new(text.as_bytes()).expect("a name");
        tree.lookup(ROOT, tree.root(), text).expect("it exists");
    }
    report("lookup", FILES, began);
    let began = Instant::now();
    for i in 0..FILES {
        let text = name(i * 7919 % FILES);
        let text = Name::new(text.as_bytes()).expect("a name");
        tree.remove(ROOT, tree.root(), text).expect("it exists");
    }
    report("remove", FILES, began);
}

/// Each write allocates a slab, and each truncation frees it.
fn slab(tree: &RamTree, budget: &Budget) {
    let file = file(tree, "slab");
    let before = budget.used_bytes();
    let empty = AttributeChanges {
        size_bytes: Some(0),
        ..AttributeChanges::default()
    };
    for (what, len) in [
        ("slab for 256 KiB, there and back", 256 << 10),
        ("slab for 64 KiB, there and back", 64 << 10),
    ] {
        let data = vec![1; len];
        let began = Instant::now();
        for _ in 0..10_000 {
            tree.write(ROOT, file, 0, &data, true).expect("it fits");
            tree.set_attributes(ROOT, file, &empty, None)
                .expect("root may");
        }
        report(what, 10_000, began);
    }
    assert_eq!(budget.used_bytes(), before);
    tree.write(ROOT, file, 0, b"x", true).expect("it fits");
    println!(
        "a file of one byte takes {} bytes of the budget",
        budget.used_bytes() - before
    );
}
