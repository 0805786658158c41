//! The file that notes which clients of NFS version 4 may hold state, and the thread that saves it.
//!
//! ```text
//! ramport nfs clients 1
//! 192.0.2.7 000000000000002a 4c696e7578      address, verifier and name of a client
//! ```
//!
//! The file is replaced as a whole. An open or a lock that depends on a record is answered only after the file with that record is
//! on stable storage (RFC 8881 section 8.4.3).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use ::nfs::{ClientRecord, Clients};

use crate::nfs::NfsClients;
use crate::private_file::replace_private;

/// The thread, which ends when this is dropped.
pub(super) struct ClientRecords {
    clients: Arc<NfsClients>,
    thread: Option<JoinHandle<()>>,
}

/// The first line.
const HEAD: &str = "ramport nfs clients 1";
/// The longest line of a client, in bytes: an address, a verifier and a name.
const LINE_BYTES_MAX: usize = 64 + 16 + 2 * ClientRecord::OWNER_BYTES_MAX;
/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 64 + Clients::RECORDS_MAX * LINE_BYTES_MAX;

impl ClientRecords {
    /// Begins the grace period of the clients that the file names, and starts the thread. Without a file there is neither.
    pub(super) fn start(path: Option<PathBuf>, clients: Arc<NfsClients>) -> io::Result<Self> {
        let thread = path.map(|path| Self::spawn(path, &clients)).transpose()?;
        Ok(Self { clients, thread })
    }

    fn spawn(path: PathBuf, clients: &Arc<NfsClients>) -> io::Result<JoinHandle<()>> {
        let records = read(&path).unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%path, %error, "cannot read which clients of NFS held state: their opens and locks are lost");
            Vec::new()
        });
        clients.begin_grace(records);
        let of_thread = Arc::clone(clients);
        thread::Builder::new()
            .name("client-records".to_owned())
            .spawn(move || serve(&path, &of_thread))
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

/// Saves records until it is stopped.
fn serve(path: &Path, clients: &NfsClients) {
    let mut saved = 0;
    while let Some((number, records)) = clients.wait_for_records(saved) {
        if let Err(error) = write(path, &records) {
            // Clients go on: only what they reclaim after a restart depends on this.
            let path = path.display();
            tracing::error!(%path, %error, "cannot save which clients of NFS hold state; free space, or repair the disk");
        }
        saved = number;
        clients.note_saved(number);
    }
}

/// The records of a file; none if it does not exist.
fn read(path: &Path) -> io::Result<Vec<ClientRecord>> {
    let mut text = String::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?
            .take(FILE_BYTES_MAX as u64)
            .read_to_string(&mut text)?,
    };
    let mut lines = text.lines();
    let records = (lines.next() == Some(HEAD))
        .then(|| lines.map(parse).collect::<Option<Vec<_>>>())
        .flatten();
    records.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it has another form"))
}

/// The record in a line.
fn parse(line: &str) -> Option<ClientRecord> {
    let mut words = line.split(' ');
    let address = words.next()?.parse().ok()?;
    let verifier = u64::from_str_radix(words.next()?, 16).ok()?;
    let name = words.next()?.as_bytes();
    let (pairs, rest) = name.as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let owner: Box<[u8]> = pairs.iter().map(byte).collect::<Option<_>>()?;
    let is_whole = rest.is_empty() && owner.len() <= ClientRecord::OWNER_BYTES_MAX;
    (is_whole && words.next().is_none()).then_some(ClientRecord {
        address,
        verifier: verifier.to_be_bytes(),
        owner,
    })
}

/// Replaces the file. Clients are no secret, but nobody's business either.
fn write(path: &Path, records: &[ClientRecord]) -> io::Result<()> {
    let mut text = format!("{HEAD}\n").into_bytes();
    for record in records {
        let verifier = u64::from_be_bytes(record.verifier);
        write!(text, "{} {verifier:016x} ", record.address)?;
        for byte in &record.owner {
            write!(text, "{byte:02x}")?;
        }
        text.push(b'\n');
    }
    replace_private(path, &text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn record(address: &str, owner: &[u8]) -> ClientRecord {
        ClientRecord {
            address: address.parse().expect("an address"),
            verifier: *b"\0verify\xff",
            owner: owner.into(),
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let path = std::env::temp_dir().join(format!("ramport-clients-{}", std::process::id()));
        assert_eq!(read(&path).expect("no file is none"), []);
        let longest = [b' '; ClientRecord::OWNER_BYTES_MAX];
        let records = [
            record("192.0.2.7", b"Linux NFSv4.1 host\n"),
            record("2001:db8::7", &longest),
            record("::1", b""),
        ];
        write(&path, &records).expect("written");
        assert_eq!(read(&path).expect("read"), records);
        write(&path, &records[..1]).expect("replaced");
        assert_eq!(read(&path).expect("read"), records[..1]);
        for text in [
            "",
            "another file\n",
            "ramport nfs clients 1\n192.0.2.7 2a\n",
            "ramport nfs clients 1\nhost 2a 4c\n",
            "ramport nfs clients 1\n192.0.2.7 2a 4\n",
            "ramport nfs clients 1\n192.0.2.7 2a 4c 4c\n",
        ] {
            fs::write(&path, text).expect("written");
            assert!(read(&path).is_err(), "{text:?}");
        }
        fs::remove_file(&path).expect("removed");
    }
}
