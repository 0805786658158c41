//! Calls to the system fail, one after the other, or the process or the machine ends there: what is
//! read afterwards is the state before a change or after it.

use image::testing::{Crash, SimFiles, SimNew};

use super::*;

impl Files for &SimFiles {
    type File = SimNew;
    type Lock = ();

    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<()>> {
        Ok(Some(()))
    }

    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        // Opening is the call that may fail.
        let old = image::Files::open(*self, path)?;
        Ok(old.and_then(|_| self.bytes(path)))
    }

    fn open(&self, path: &Path) -> io::Result<SimNew> {
        self.open_to_append(path)
    }

    fn create(&self, path: &Path) -> io::Result<SimNew> {
        image::Files::create(*self, path)
    }

    fn append(&self, file: &mut SimNew, bytes: &[u8]) -> io::Result<()> {
        image::Files::append(*self, file, bytes)
    }

    fn cut(&self, file: &mut SimNew, len_bytes: u64) -> io::Result<()> {
        SimFiles::cut(self, file, usize::try_from(len_bytes).expect("short"))
    }

    fn sync(&self, file: &mut SimNew) -> io::Result<()> {
        image::Files::sync(*self, file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        image::Files::rename(*self, from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        image::Files::sync_folder(*self, folder)
    }
}

/// What happens to a state.
enum Step {
    Append(Vec<Change>),
    Compact,
    Restart,
}

/// Each kind of step behind each other.
fn steps() -> Vec<Step> {
    let removal = Change::RemoveVolume(Text("b".parse().expect("a name")));
    vec![
        Step::Restart,
        Step::Append(vec![volume("a")]),
        Step::Append(vec![volume("b"), volume("c"), removal]),
        Step::Compact,
        Step::Append(vec![volume("d")]),
        Step::Restart,
        Step::Append(vec![volume("e")]),
        Step::Compact,
        Step::Restart,
        Step::Append(vec![volume("f"), volume("g")]),
    ]
}

fn path() -> PathBuf {
    "/srv/state".into()
}

/// A daemon's part in a state, and what was acknowledged to it.
struct Daemon<'a> {
    files: &'a SimFiles,
    store: Option<Store<&'a SimFiles>>,
    saved: SavedState,
    /// What the state may be instead: a change has failed, and so did taking it back.
    not_taken_back: Option<SavedState>,
}

impl<'a> Daemon<'a> {
    fn new(files: &'a SimFiles) -> Self {
        Self {
            files,
            store: None,
            saved: SavedState::default(),
            not_taken_back: None,
        }
    }

    fn take(&mut self, step: &Step) -> Result<(), StoreError> {
        if let Step::Restart = step {
            let (mut store, saved) = Store::open_in(self.files, &path())?;
            assert!(
                saved == self.saved || Some(&saved) == self.not_taken_back.as_ref(),
                "{saved:?}"
            );
            self.saved = saved;
            store.settle()?;
            self.store = Some(store);
            return Ok(());
        }
        let store = self.store.as_mut().expect("it was started");
        match step {
            Step::Append(changes) => {
                store.append(changes)?;
                self.saved = self.saved_with(step);
                self.not_taken_back = None;
            }
            Step::Compact | Step::Restart => store.compact(&self.saved)?,
        }
        Ok(())
    }

    /// The state when this step is done, too.
    fn saved_with(&self, step: &Step) -> SavedState {
        let mut saved = self.saved.clone();
        if let Step::Append(changes) = step {
            for change in changes {
                saved.make(change.clone());
            }
        }
        saved
    }
}

/// What a daemon reads that starts after this crash.
fn after(files: &SimFiles, crash: Crash) -> SavedState {
    let files = files.after(crash);
    let (_store, saved) = Store::open_in(&files, &path()).expect("it can be read");
    saved
}

#[test]
fn a_crash_at_any_call_leaves_the_state_before_the_change_or_after_it() {
    let mut outcomes = [0, 0];
    for call in 0.. {
        let files = SimFiles::default();
        files.fail_from(call);
        let mut daemon = Daemon::new(&files);
        let steps = steps();
        let failed = steps.iter().find(|step| daemon.take(step).is_err());
        let (old, new) = match failed {
            Some(step) => (daemon.saved.clone(), daemon.saved_with(step)),
            None => (daemon.saved.clone(), daemon.saved.clone()),
        };
        for crash in Crash::ALL {
            let left = after(&files, crash);
            assert!(
                left == old || left == new,
                "call {call}, {crash:?}: {left:?}"
            );
            outcomes[usize::from(left == new)] += 1;
            goes_on(&files.after(crash), left);
        }
        if failed.is_none() {
            assert!(!files.has_failed());
            assert!(call > 30, "there are so many calls");
            break;
        }
    }
    assert!(outcomes.iter().all(|&count| count > 0), "{outcomes:?}");
}

/// The next daemon changes a state that a crash has left, and nothing takes that back.
fn goes_on(files: &SimFiles, left: SavedState) {
    let mut daemon = Daemon::new(files);
    daemon.saved = left;
    daemon.take(&Step::Restart).expect("starts");
    let more = Step::Append(vec![volume("z")]);
    daemon.take(&more).expect("appended");
    for crash in Crash::ALL {
        assert_eq!(after(files, crash), daemon.saved, "{crash:?}");
    }
}

#[test]
fn calls_that_fail_change_nothing_and_the_next_change_is_durable() {
    for count in 1..4 {
        for call in 0.. {
            let files = SimFiles::default();
            files.fail(call..call + count);
            let mut daemon = Daemon::new(&files);
            for step in steps() {
                // A start is tried again; a change that fails is given up.
                while daemon.take(&step).is_err() {
                    if count > 1 && matches!(step, Step::Append(_)) {
                        daemon.not_taken_back = Some(daemon.saved_with(&step));
                    }
                    if !matches!(step, Step::Restart) {
                        break;
                    }
                }
            }
            let has_failed = files.has_failed();
            let last = Step::Append(vec![volume("z")]);
            while daemon.take(&last).is_err() {}
            for crash in Crash::ALL {
                let left = after(&files, crash);
                assert_eq!(left, daemon.saved, "calls from {call}, {crash:?}");
            }
            if !has_failed {
                break;
            }
        }
    }
}
