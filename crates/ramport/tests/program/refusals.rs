//! What no volume can be made of or restored from: the message says what is wrong and how to fix
//! it, and nothing has changed.

use std::fs;
use std::path::PathBuf;

use crate::daemon::Daemon;

const LEN: usize = 1 << 20;

/// A daemon with volumes of several forms, of which `a` holds data.
struct Fixture {
    daemon: Daemon,
    contents: Vec<u8>,
}

impl Fixture {
    fn new(name: &str) -> Self {
        let daemon = Daemon::start(name);
        // Neither zeros nor what LZ4 shortens to nothing.
        let byte = |at: usize| (at.wrapping_mul(at | 1) >> 7) as u8;
        let contents: Vec<u8> = (0..LEN).map(byte).collect();
        let it = Self { daemon, contents };
        let create = |name, size, block_size| {
            let form = ["--size", size, "--block-size", block_size];
            it.daemon
                .ok(&[&["volume", "create", name], &form[..]].concat());
        };
        create("a", "1M", "512");
        create("b", "2M", "512");
        create("large-blocks", "1M", "4096");
        fs::write(it.path("contents"), &it.contents).expect("room");
        it.daemon.ok(&["volume", "copy", &it.text("contents"), "a"]);
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.daemon.folder.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Everything that a person sees of the volumes, and what `a` holds.
    fn state(&self) -> (String, String, Vec<u8>) {
        let copy = self.text("copy");
        self.daemon.ok(&["volume", "copy", "a", &copy, "--force"]);
        let held = fs::read(&copy).expect("it was copied");
        fs::remove_file(&copy).expect("it is ours");
        let shown = self.daemon.ok(&["volume", "list"]);
        (self.daemon.ok(&["export"]), shown, held)
    }

    /// Each is refused with both texts, and changes nothing.
    fn refuse(&self, mistakes: &[(&[&str], [&str; 2])]) {
        let before = self.state();
        assert!(before.2 == self.contents);
        for (args, texts) in mistakes {
            let output = self.daemon.run(args);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{args:?}");
            for text in texts {
                assert!(told.contains(text), "{args:?}: {told}");
            }
            assert!(self.state() == before, "{args:?}: something has changed");
        }
    }
}

#[test]
fn volumes_of_what_does_not_fit_are_refused_and_nothing_changes() {
    let it = Fixture::new("refusals");
    let circle = "[volumes.l0]\nkind = \"linear\"\nmembers = [\"l1\"]\n\
        [volumes.l1]\nkind = \"linear\"\nmembers = [\"l0\"]\n";
    fs::write(it.path("circle.toml"), circle).expect("room");
    let (circle, contents) = (it.text("circle.toml"), it.text("contents"));
    let ok = |args: &[&str]| drop(it.daemon.ok(args));
    ok(&["volume", "create", "l9", "--linear", "b"]);
    // The budget is 256 MiB.
    let large = it.text("large");
    ok(&[
        "volume", "create", "large", "--file", &large, "--size", "1G",
    ]);
    let create = ["volume", "create", "m0"];
    let mirror = |members| [&create[..], &["--mirror", members]].concat();
    let stripe = [&create[..], &["--stripe", "a,large-blocks"]].concat();
    let cache = ["--cache-of", "large", "--cache-size", "512M"];
    let file = ["--file", &contents, "--size", "16M"];
    it.refuse(&[
        (&mirror("a,m0"), ["it is made of itself", "name another"]),
        (&mirror("a,a"), ["a is named twice", "a member once"]),
        (&mirror("a,large-blocks"), ["block size", "give 4096"]),
        (&stripe, ["block size", "give 4096"]),
        (
            &["apply", &circle],
            ["it is made of itself", "nothing was changed"],
        ),
        (
            &["volume", "add-member", "l9", "l9"],
            ["cannot be a member of itself", "l9"],
        ),
        (
            &[&create[..], &cache].concat(),
            ["memory budget are free", "raise --memory"],
        ),
        (
            &[&create[..], &file].concat(),
            ["has 1 MiB, not 16 MiB", "leave the size out"],
        ),
    ]);
    ok(&["volume", "create", "m0", "--mirror", "l9,large"]);
    it.refuse(&[(
        &["volume", "mirror", "m0", "--replace", "l9=a"],
        [
            "1 MiB is smaller than the mirror of 2 MiB",
            "at least 2 MiB",
        ],
    )]);
}

#[test]
fn images_that_are_cut_short_damaged_or_foreign_are_refused_and_nothing_changes() {
    let it = Fixture::new("refused-images");
    let save = it.path("a.save");
    it.daemon.ok(&["volume", "save", "a", &it.text("a.save")]);
    let whole = fs::read(save).expect("it was saved");
    let write = |name: &str, bytes: &[u8]| {
        fs::write(it.path(name), bytes).expect("room");
        it.text(name)
    };
    let mut bytes = whole.clone();
    bytes[1000] ^= 0xFF;
    let damaged = write("damaged", &bytes);
    let cut = write("cut", &whole[..whole.len() / 2]);
    let foreign = write("foreign", &it.contents);
    let restore = |name, file| ["volume", "restore", name, file, "--force"];
    let create = |file| ["volume", "create", "new", "--from", file];
    it.refuse(&[
        (&restore("a", &cut), ["is cut short", "use another save"]),
        (
            &restore("a", &foreign),
            ["is no save of a volume", "choose one"],
        ),
        (
            &restore("a", &damaged),
            [
                "bytes 0 to 262143 of the volume cannot be read",
                "--zero-damaged",
            ],
        ),
        (
            &restore("b", &it.text("a.save")),
            [
                "of a volume of 1 MiB, and this one has 2 MiB",
                "resize it to 1 MiB",
            ],
        ),
        (&create(&cut), ["is cut short", "use another save"]),
        (&create(&foreign), ["is no save of a volume", "choose one"]),
        (
            &create(&damaged),
            [
                "bytes 0 to 262143 of the volume cannot be read",
                "restore another save",
            ],
        ),
    ]);
}
