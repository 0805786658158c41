//! Fixtures that tests of this crate share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use server::{Cores, ServerConfig};

/// A folder for one test, removed when this drops.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("ramport-control-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder can be written");
        Self(path)
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The configuration of a small server.
pub(crate) fn server_config() -> ServerConfig {
    ServerConfig {
        cores: Cores::Count(1),
        memory_bytes: Some(256 << 20),
        ..ServerConfig::default()
    }
}
