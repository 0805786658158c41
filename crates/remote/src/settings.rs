//! What a remote volume is to be: its URLs and time limit.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use initiator::{Backoff, DeviceOptions, OnLoss, Url};
use volume::VolumeKind;

use crate::error::RemoteError;
use crate::limits::{IO_TIMEOUT_MAX, IO_TIMEOUT_MIN, URLS_MAX};

/// Commands in flight on one path.
pub(crate) const DEPTH: u16 = 64;
/// The longest transfer of one command, which is also the size of the window's frames.
pub(crate) const TRANSFER_BYTES: u32 = 64 << 10;
/// How long a step of connecting may take at most.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest silence of the other side.
const KEEP_ALIVE_MAX: Duration = Duration::from_secs(15);
/// Waits between attempts to connect.
pub(crate) const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(50),
    max: Duration::from_secs(5),
    // Paths make their connections again themselves.
    give_up_after: Duration::ZERO,
    seed: 0x7265_6d6f_7465,
};

/// The settings of a volume, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) urls: Vec<Url>,
    /// How long a command may take, with all its repetitions.
    pub(crate) io_timeout: Duration,
    /// The disk that the volume had before, if that is known.
    pub(crate) disk: Option<String>,
}

impl Settings {
    /// Those of a volume of kind remote.
    pub(crate) fn of(kind: &VolumeKind) -> Result<Self, RemoteError> {
        let VolumeKind::Remote {
            urls,
            io_timeout,
            disk,
        } = kind
        else {
            unreachable!("the caller looks at the kind first");
        };
        if urls.is_empty() || urls.len() > URLS_MAX {
            return Err(RemoteError::UrlCount { count: urls.len() });
        }
        if !(IO_TIMEOUT_MIN..=IO_TIMEOUT_MAX).contains(io_timeout) {
            return Err(RemoteError::IoTimeout { given: *io_timeout });
        }
        Ok(Self {
            urls: urls
                .iter()
                .map(|url| parse(url))
                .collect::<Result<_, _>>()?,
            io_timeout: *io_timeout,
            disk: disk.clone(),
        })
    }

    /// How long a command may be in flight on one path before the path counts as lost: half of its
    /// time, so that it can be tried once more.
    pub(crate) fn path_timeout(&self) -> Duration {
        self.io_timeout / 2
    }

    /// The options of the path with this number.
    pub(crate) fn device_options(&self, session_qualifier: [u8; 3]) -> DeviceOptions {
        DeviceOptions {
            queues: 1,
            depth: DEPTH,
            buffer_bytes: TRANSFER_BYTES as usize,
            on_loss: OnLoss::Fail,
            backoff: BACKOFF,
            connect_timeout: CONNECT_TIMEOUT,
            keep_alive: self.path_timeout().min(KEEP_ALIVE_MAX),
            // The worker notices earlier.
            command_timeout: self.io_timeout,
            session_qualifier: Some(session_qualifier),
        }
    }
}

/// Checks the URL of a remote volume, and returns it as it is stored and shown.
///
/// # Errors
/// If it is no URL of a disk, or contains a secret.
pub fn check_url(text: &str) -> Result<String, RemoteError> {
    Ok(parse(text)?.to_string())
}

fn parse(text: &str) -> Result<Url, RemoteError> {
    let url: Url = text.parse()?;
    if url.secret().is_some() {
        return Err(RemoteError::SecretInUrl);
    }
    if let Some(path) = url.secret_files().find(|path| path.is_relative()) {
        return Err(RemoteError::RelativeSecrets {
            path: path.to_owned(),
        });
    }
    Ok(url)
}

/// Refuses a file of secrets that other users can access. Whether it can be read shows when it is.
pub(crate) fn check_secrets(url: &Url) -> Result<(), RemoteError> {
    const OTHERS: u32 = 0o077;
    let is_exposed = |path: &&Path| {
        let metadata = std::fs::metadata(path);
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & OTHERS != 0)
    };
    match url.secret_files().find(is_exposed) {
        Some(path) => Err(RemoteError::ExposedSecrets {
            path: path.to_owned(),
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::IO_TIMEOUT_DEFAULT;

    fn kind(urls: &[&str], io_timeout: Duration) -> VolumeKind {
        VolumeKind::Remote {
            urls: urls.iter().map(ToString::to_string).collect(),
            io_timeout,
            disk: None,
        }
    }

    #[test]
    fn invalid_settings_are_refused_with_a_hint() {
        let url = "nvme+tcp://h/nqn.x:y";
        for (urls, io_timeout, hint) in [
            (vec![], IO_TIMEOUT_DEFAULT, "give 1 to 8"),
            (vec![url; 9], IO_TIMEOUT_DEFAULT, "9 URLs were given"),
            (vec![url], Duration::from_millis(10), "from 1 s to 3600 s"),
            (vec!["h/rd0"], IO_TIMEOUT_DEFAULT, "no scheme"),
            (
                vec!["iscsi://alice%secret@h/iqn.x:y/0"],
                IO_TIMEOUT_DEFAULT,
                "chap=/ABSOLUTE/PATH",
            ),
            (
                vec!["iscsi://h/iqn.x:y/0?chap=secrets"],
                IO_TIMEOUT_DEFAULT,
                "not absolute",
            ),
        ] {
            let error = Settings::of(&kind(&urls, io_timeout)).expect_err(hint);
            let text = error.to_string();
            assert!(text.contains(hint), "{text}");
            assert!(!text.contains("alice%secret"), "{text}");
        }
        assert!(Settings::of(&kind(&[url], IO_TIMEOUT_DEFAULT)).is_ok());
    }

    #[test]
    fn a_file_of_secrets_that_others_can_read_is_refused() {
        let path = std::env::temp_dir().join(format!("remote-chap-{}", std::process::id()));
        std::fs::write(&path, "alice\nsecret\n").expect("written");
        let url = parse(&format!("iscsi://h/iqn.x:y/0?chap={}", path.display())).expect("a URL");
        let set = |mode| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).expect("ours");
        };
        set(0o640);
        let refused = check_secrets(&url).expect_err("the group can read it");
        assert!(refused.to_string().contains("chmod 600"));
        set(0o600);
        check_secrets(&url).expect("only its owner can read it");
        std::fs::remove_file(&path).expect("it exists");
    }
}
