//! The file that notes which clients of NFS may hold state, and the thread that saves it.
//!
//! ```text
//! ramport nfs clients 2
//! state 5                                    of NSM: odd, and another one after each start ([`next_state`])
//! 192.0.2.7 000000000000002a 4c696e7578      address, verifier and name of a client of version 4
//! nlm 192.0.2.8 192.0.2.1 686f7374           address of a client of NLM, ours that it knows, and its name
//! ```
//!
//! The file is replaced as a whole. An open or a lock that depends on a record is answered only
//! after the file with that record is on stable storage (RFC 8881 section 8.4.3).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use ::nfs::{ClientRecord, Clients, LockHost, RestartNotice};

use super::restart_notices;
use crate::nfs::{NfsClients, Noted};
use crate::private_file::replace_private;

/// The thread, which ends when this is dropped.
pub(super) struct ClientRecords {
    clients: Arc<NfsClients>,
    thread: Option<JoinHandle<()>>,
}

/// The first line.
const HEAD: &str = "ramport nfs clients 2";
/// The same before clients of NLM were noted.
const HEAD_BEFORE: &str = "ramport nfs clients 1";
/// The longest line of a client, in bytes: an address, a verifier or another address, and a name.
const LINE_BYTES_MAX: usize = 64 + 64 + 2 * ClientRecord::OWNER_BYTES_MAX;
const _: () = assert!(LockHost::NAME_BYTES_MAX <= ClientRecord::OWNER_BYTES_MAX);
/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 64 + (Clients::RECORDS_MAX + LockHost::HOSTS_MAX) * LINE_BYTES_MAX;

/// What is in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Notes {
    noted: Noted,
    /// The state number of the present start in notifications to clients of NLM: see
    /// [`RestartNotice::new`].
    state: u32,
}

impl ClientRecords {
    /// Begins the grace period of the clients that the file names, and starts the thread. Without a
    /// file there is neither.
    pub(super) fn start(path: Option<PathBuf>, clients: Arc<NfsClients>) -> io::Result<Self> {
        let thread = path.map(|path| Self::spawn(path, &clients)).transpose()?;
        Ok(Self { clients, thread })
    }

    fn spawn(path: PathBuf, clients: &Arc<NfsClients>) -> io::Result<JoinHandle<()>> {
        let mut notes = read(&path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "cannot read which clients of NFS held state: their opens and locks are lost");
            Notes::default()
        });
        notes.state = next_state(notes.state, SystemTime::now());
        clients.begin_grace(notes.noted.clone());
        let of_thread = Arc::clone(clients);
        thread::Builder::new()
            .name("client-records".to_owned())
            .spawn(move || serve(&path, &of_thread, notes))
    }
}

impl Drop for ClientRecords {
    fn drop(&mut self) {
        self.clients.stop();
        if let Some(thread) = self.thread.take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// The state number of a start whose predecessor is known, or 0. Without one it is the time in
/// seconds, since a client that knows the number from an earlier start would ignore it: starts are
/// more than two seconds apart on average, so the time is ahead of every number that was used.
fn next_state(before: u32, now: SystemTime) -> u32 {
    if before > 0 {
        return before.wrapping_add(2) | 1;
    }
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    // The number is one of 32 bits, and clients only compare numbers for equality.
    since.map_or(0, |since| since.as_secs() as u32) | 1
}

/// Saves records until it is stopped.
fn serve(path: &Path, clients: &Arc<NfsClients>, notes: Notes) {
    let Notes { noted, state } = notes;
    if !noted.hosts.is_empty() {
        // A client ignores a state that it knows, so this one is not used again whatever happens
        // from now on.
        save(path, &noted, state);
        let hosts = noted.hosts.into_iter();
        let notices = hosts.map(|host| RestartNotice::new(host, state));
        restart_notices::send(notices.collect(), Arc::clone(clients));
    }
    let mut saved = 0;
    while let Some((number, noted)) = clients.wait_for_records(saved) {
        save(path, &noted, state);
        saved = number;
        clients.note_saved(number);
    }
}

fn save(path: &Path, noted: &Noted, state: u32) {
    if let Err(error) = write(path, noted, state) {
        // Clients go on: only what they reclaim after a restart depends on this.
        let path = path.display();
        tracing::error!(%path, %error, "cannot save which clients of NFS hold state; free space, or repair the disk");
    }
}

/// What a file says; nothing if it does not exist.
fn read(path: &Path) -> io::Result<Notes> {
    let mut text = String::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Notes::default()),
        file => file?
            .take(FILE_BYTES_MAX as u64)
            .read_to_string(&mut text)?,
    };
    let mut lines = text.lines();
    let is_ours = lines
        .next()
        .is_some_and(|head| [HEAD, HEAD_BEFORE].contains(&head));
    let mut notes = Notes::default();
    if is_ours && lines.all(|line| notes.take(line).is_some()) {
        return Ok(notes);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "it has another form",
    ))
}

impl Notes {
    /// Takes what a line says; `None` if it has another form.
    fn take(&mut self, line: &str) -> Option<()> {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["state", state] => self.state = state.parse().ok()?,
            ["nlm", address, local, name] => self.noted.hosts.push(LockHost {
                address: address.parse().ok()?,
                local: local.parse().ok()?,
                name: parse_name(name)?,
            }),
            [address, verifier, owner] => self.noted.clients.push(ClientRecord {
                address: address.parse().ok()?,
                verifier: u64::from_str_radix(verifier, 16).ok()?.to_be_bytes(),
                owner: parse_name(owner)?,
            }),
            _ => return None,
        }
        Some(())
    }
}

/// The bytes of a name, two digits each.
fn parse_name(name: &str) -> Option<Box<[u8]>> {
    let (pairs, rest) = name.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let name: Box<[u8]> = pairs.iter().map(byte).collect::<Option<_>>()?;
    let is_whole = rest.is_empty() && name.len() <= ClientRecord::OWNER_BYTES_MAX;
    is_whole.then_some(name)
}

/// Replaces the file. Only the daemon's user may read it.
fn write(path: &Path, noted: &Noted, state: u32) -> io::Result<()> {
    let mut text = format!("{HEAD}\nstate {state}\n").into_bytes();
    for client in &noted.clients {
        let verifier = u64::from_be_bytes(client.verifier);
        write!(text, "{} {verifier:016x} ", client.address)?;
        write_name(&mut text, &client.owner)?;
    }
    for host in &noted.hosts {
        write!(text, "nlm {} {} ", host.address, host.local)?;
        write_name(&mut text, &host.name)?;
    }
    replace_private(path, &text)
}

fn write_name(text: &mut Vec<u8>, name: &[u8]) -> io::Result<()> {
    for byte in name {
        write!(text, "{byte:02x}")?;
    }
    text.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    fn record(address: &str, owner: &[u8]) -> ClientRecord {
        ClientRecord {
            address: address.parse().expect("an address"),
            verifier: *b"\0verify\xff",
            owner: owner.into(),
        }
    }

    #[test]
    fn a_state_number_is_not_used_again_when_the_last_one_is_lost() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(next_state(5, at(2_000_000_000)), 7);
        assert_eq!(next_state(u32::MAX, at(0)), 1);
        let first = next_state(0, at(2_000_000_000));
        assert_eq!(first, 2_000_000_001);
        // Ten restarts in a minute, and the file is lost.
        let last = (0..10).fold(first, |state, _| next_state(state, at(0)));
        assert!(next_state(0, at(2_000_000_060)) > last);
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let path = std::env::temp_dir().join(format!("ramport-clients-{}", std::process::id()));
        assert_eq!(read(&path).expect("no file is none"), Notes::default());
        let longest = [b' '; ClientRecord::OWNER_BYTES_MAX];
        let clients = vec![
            record("192.0.2.7", b"Linux NFSv4.1 host\n"),
            record("2001:db8::7", &longest),
            record("::1", b""),
        ];
        let hosts = vec![LockHost {
            address: "192.0.2.8".parse().expect("an address"),
            local: "2001:db8::1".parse().expect("an address"),
            name: b"host"[..].into(),
        }];
        for noted in [Noted { clients, hosts }, Noted::default()] {
            write(&path, &noted, 7).expect("written");
            let state = 7;
            assert_eq!(read(&path).expect("read"), Notes { noted, state });
        }
        fs::write(&path, "ramport nfs clients 1\n192.0.2.7 2a 4c\n").expect("written");
        let before = read(&path).expect("read");
        assert_eq!((before.noted.clients.len(), before.state), (1, 0));
        for text in [
            "",
            "another file\n",
            "ramport nfs clients 1\n192.0.2.7 2a\n",
            "ramport nfs clients 1\nhost 2a 4c\n",
            "ramport nfs clients 1\n192.0.2.7 2a 4\n",
            "ramport nfs clients 1\n192.0.2.7 2a 4c 4c\n",
            "ramport nfs clients 2\nstate -1\n",
            "ramport nfs clients 2\nnlm 192.0.2.7 host 4c\n",
            "ramport nfs clients 3\n",
        ] {
            fs::write(&path, text).expect("written");
            assert!(read(&path).is_err(), "{text:?}");
        }
        fs::remove_file(&path).expect("removed");
    }
}
