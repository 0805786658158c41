//! Records: encryption of what a connection carries once its handshake is done.
//!
//! Read first: RFC 8446, 5 "Record Protocol", 4.6.3 "Key and Initialization Vector Update".
//!
//! Received records are decrypted in place. Records to send are filled by the caller with one copy
//! and encrypted in place.

mod output;

use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey};

pub use self::output::{Output, Sealed};
use crate::suite::{SecretBytes, Suite};

/// A record's header: type, version, length.
pub(crate) const HEADER_BYTES: usize = 5;
/// The longest contents of a record.
pub(crate) const CONTENTS_MAX_BYTES: usize = 16 << 10;
/// The most that encryption may add to contents (RFC 8446, 5.2).
const EXPANSION_MAX_BYTES: usize = 256;
const TAG_BYTES: usize = 16;
/// What our own records add to contents: header, type, tag.
pub(crate) const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// Record types.
pub(crate) const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;

/// Handshake types after the handshake.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// The alert of an orderly end.
const CLOSE_NOTIFY: u8 = 0;

/// Why records end their connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The peer ended the connection in an orderly way.
    #[error("the peer closed the TLS connection")]
    Closed,
    /// The peer reports an error.
    #[error("the peer reported TLS alert {0}")]
    Alert(u8),
    /// The header is invalid.
    #[error("a TLS record has an invalid header")]
    Header,
    /// Its contents were changed, or encrypted with another key.
    #[error("a TLS record cannot be decrypted")]
    Decryption,
    /// Its contents are not what may follow a handshake.
    #[error("a TLS record has unexpected contents of type {0}")]
    Unexpected(u8),
    /// All record numbers were used.
    #[error("the TLS connection has used all record numbers; connect again")]
    Exhausted,
}

/// One direction of a connection.
struct Direction {
    suite: Suite,
    secret: SecretBytes,
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

/// Both directions of a connection.
pub struct Records {
    input: Direction,
    output: Direction,
    /// The start of a record whose rest has not arrived.
    partial: Vec<u8>,
    /// The peer has asked for another key of ours.
    owes_update: bool,
    updates: Updates,
}

/// Whether this side begins key updates. A host does, since Linux's hosts end a connection in which
/// they receive one, and every target knows what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Updates {
    /// It answers those of the peer.
    Answered,
    /// It begins one before a key has encrypted [`KEY_RECORDS_MAX`] records in either direction.
    Begun,
    /// It has begun one, which the peer has not answered.
    Awaited,
}

/// After so many records of a key its user replaces it: less than the 2^24.5 of RFC 8446, 5.5.
const KEY_RECORDS_MAX: u64 = 1 << 24;

/// What a record contained.
enum Contents<'a> {
    Data(&'a [u8]),
    /// The peer uses another key from now on, and may ask for the same.
    KeyUpdate {
        is_requested: bool,
    },
    /// Nothing of interest.
    Ignored,
}

impl Direction {
    fn new(suite: Suite, secret: SecretBytes) -> Self {
        let aead = suite.aead();
        let key = suite.expand_label(&secret, "key", &[], aead.key_len());
        let key = UnboundKey::new(aead, &key).expect("the key has the suite's length");
        let derived = suite.expand_label(&secret, "iv", &[], 12);
        let mut iv = [0; 12];
        iv.copy_from_slice(&derived);
        Self {
            suite,
            secret,
            key: LessSafeKey::new(key),
            iv,
            sequence: 0,
        }
    }

    /// Goes on with the next key.
    fn update(&mut self) {
        let len = self.suite.hash_bytes();
        let next = self
            .suite
            .expand_label(&self.secret, "traffic upd", &[], len);
        *self = Self::new(self.suite, next);
    }

    fn nonce(&mut self) -> Result<Nonce, RecordError> {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        self.sequence = self.sequence.checked_add(1).ok_or(RecordError::Exhausted)?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Encrypts a record in place: header, contents, a byte for their type, room for the tag.
    fn seal(&mut self, kind: u8, record: &mut [u8]) -> Result<(), RecordError> {
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        header.copy_from_slice(&header_of(body.len()));
        let (contents, tag) = body.split_at_mut(body.len() - TAG_BYTES);
        *contents.last_mut().expect("a record has a type") = kind;
        let nonce = self.nonce()?;
        let made = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), contents)
            .map_err(|_| RecordError::Exhausted)?;
        tag.copy_from_slice(made.as_ref());
        Ok(())
    }

    /// Decrypts a whole record in place. Returns the type and the contents.
    fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<(u8, &'a mut [u8]), RecordError> {
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let nonce = self.nonce()?;
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(&*header), body)
            .map_err(|_| RecordError::Decryption)?;
        // Zeros may follow the type.
        let at = opened.iter().rposition(|&byte| byte != 0);
        let at = at.ok_or(RecordError::Unexpected(0))?;
        let kind = opened[at];
        if at > CONTENTS_MAX_BYTES {
            return Err(RecordError::Header);
        }
        Ok((kind, &mut opened[..at]))
    }
}

impl Records {
    /// The most bytes that are worth receiving at least: one record.
    pub const RECORD_MAX_BYTES: usize = HEADER_BYTES + CONTENTS_MAX_BYTES + EXPANSION_MAX_BYTES;

    /// Records of a handshake that is done, under these secrets.
    pub(crate) fn new(
        suite: Suite,
        input: SecretBytes,
        output: SecretBytes,
        updates: Updates,
    ) -> Self {
        Self {
            input: Direction::new(suite, input),
            output: Direction::new(suite, output),
            partial: Vec::new(),
            owes_update: false,
            updates,
        }
    }

    /// The suite in use.
    pub fn suite(&self) -> Suite {
        self.input.suite
    }

    /// Takes all of `input`, in any chunking, decrypts it in place, and gives the contents of
    /// records to `take`, in order.
    pub fn handle_bytes<E: From<RecordError>>(
        &mut self,
        mut input: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut partial = std::mem::take(&mut self.partial);
        while !partial.is_empty() {
            let whole = record_bytes(&partial)?.unwrap_or(HEADER_BYTES);
            if partial.len() < whole && input.is_empty() {
                break;
            }
            let missing = (whole - partial.len()).min(input.len());
            let (head, rest) = input.split_at_mut(missing);
            partial.extend_from_slice(head);
            input = rest;
            if whole > HEADER_BYTES && partial.len() == whole {
                self.handle_record(&mut partial, &mut take)?;
                partial.clear();
            }
        }
        while let Some(whole) = record_bytes(input)?
            && whole <= input.len()
        {
            let (record, rest) = input.split_at_mut(whole);
            input = rest;
            self.handle_record(record, &mut take)?;
        }
        partial.extend_from_slice(input);
        self.partial = partial;
        Ok(())
    }

    fn handle_record<E: From<RecordError>>(
        &mut self,
        record: &mut [u8],
        take: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (kind, contents) = self.input.open(record)?;
        match interpret(kind, contents)? {
            Contents::Data(bytes) => take(bytes)?,
            Contents::KeyUpdate { is_requested } => {
                self.input.update();
                self.owes_update |= is_requested;
                if self.updates == Updates::Awaited {
                    self.updates = Updates::Begun;
                }
            }
            Contents::Ignored => {}
        }
        Ok(())
    }

    /// Encrypts what `output` contains. Returns the records to send, which the caller owns until it
    /// gives them back by [`Output::reuse`].
    pub fn seal(&mut self, output: &mut Output) -> Result<Sealed, RecordError> {
        let mut sealed = output.take();
        for record in sealed.records_mut() {
            self.output.seal(APPLICATION_DATA, record)?;
        }
        let is_due = self.is_update_due();
        if std::mem::take(&mut self.owes_update) || is_due {
            let request = [KEY_UPDATE, 0, 0, 1, is_due.into()];
            sealed.push(&self.control(HANDSHAKE, &request)?);
            self.output.update();
        }
        if is_due {
            self.updates = Updates::Awaited;
        }
        Ok(sealed)
    }

    /// Whether to begin a key update, in both directions.
    fn is_update_due(&self) -> bool {
        let used = self.input.sequence.max(self.output.sequence);
        self.updates == Updates::Begun && used >= KEY_RECORDS_MAX
    }

    /// Whether [`seal`](Self::seal) has something to send although nothing was put into its output.
    pub fn wants_transmit(&self) -> bool {
        self.owes_update
    }

    /// The alert that tells the peer of the orderly end.
    pub fn close(&mut self) -> Result<Vec<u8>, RecordError> {
        const WARNING: u8 = 1;
        self.control(ALERT, &[WARNING, CLOSE_NOTIFY])
    }

    fn control(&mut self, kind: u8, contents: &[u8]) -> Result<Vec<u8>, RecordError> {
        let mut record = vec![0; OVERHEAD_BYTES + contents.len()];
        record[HEADER_BYTES..HEADER_BYTES + contents.len()].copy_from_slice(contents);
        self.output.seal(kind, &mut record)?;
        Ok(record)
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Records")
            .field("suite", &self.input.suite)
            .finish_non_exhaustive()
    }
}

/// The header of a record whose encrypted contents have this length.
fn header_of(len_bytes: usize) -> [u8; HEADER_BYTES] {
    let [high, low] = (len_bytes as u16).to_be_bytes();
    [APPLICATION_DATA, 3, 3, high, low]
}

/// The length of the record that begins here, its header included; `None` if the header is not
/// whole.
fn record_bytes(input: &[u8]) -> Result<Option<usize>, RecordError> {
    let Some(&[kind, _, _, high, low]) = input.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let lens = TAG_BYTES + 1..=CONTENTS_MAX_BYTES + EXPANSION_MAX_BYTES;
    if kind != APPLICATION_DATA || !lens.contains(&len) {
        return Err(RecordError::Header);
    }
    Ok(Some(HEADER_BYTES + len))
}

fn interpret(kind: u8, contents: &[u8]) -> Result<Contents<'_>, RecordError> {
    match (kind, contents) {
        (APPLICATION_DATA, bytes) => Ok(Contents::Data(bytes)),
        (ALERT, [_, CLOSE_NOTIFY]) => Err(RecordError::Closed),
        (ALERT, [_, alert]) => Err(RecordError::Alert(*alert)),
        (HANDSHAKE, [KEY_UPDATE, 0, 0, 1, request @ 0..=1]) => Ok(Contents::KeyUpdate {
            is_requested: *request == 1,
        }),
        // Servers send them for resumption, which hosts of NVMe do not use.
        (HANDSHAKE, [NEW_SESSION_TICKET, ..]) => Ok(Contents::Ignored),
        _ => Err(RecordError::Unexpected(kind)),
    }
}

#[cfg(test)]
mod tests;
