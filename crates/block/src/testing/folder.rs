//! Folders of tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed with everything in it when this drops.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    is_mounted: bool,
}

impl Folder {
    /// A new, empty folder.
    ///
    /// # Panics
    /// If the folder for temporary files cannot be written.
    #[expect(clippy::new_without_default, reason = "it does more than set fields")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ramport-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a new folder");
        Self {
            path,
            is_mounted: false,
        }
    }

    /// A folder that is a file system of 1 MiB (tmpfs); none if tests may not mount it here.
    pub fn of_one_mebibyte() -> Option<Self> {
        let mut folder = Self::new();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "ramport-test"])
            .arg(&folder.path)
            .output();
        folder.is_mounted = mounted.is_ok_and(|output| output.status.success());
        folder.is_mounted.then_some(folder)
    }

    /// The path of a file in the folder.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).output();
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
