//! A stream of changes: JSON documents, one a line.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::error::EtcdError;
use super::wire::{Int, Streamed, WatchCreateRequest, WatchRequest, WatchResponse};
use super::{Entry, bytes, end_of, entry};
use crate::connection::{Connection, Fault};
use crate::url::EtcdUrl;

/// The longest document.
const LINE_MAX_BYTES: usize = 16 << 20;

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key has this value now.
    Put(Entry),
    /// The key was removed, or its lease ended.
    Deleted {
        /// The key.
        key: String,
        /// The revision of the store.
        revision: i64,
    },
}

/// Changes that follow each other.
#[derive(Debug)]
pub struct Watch {
    // Ends the stream when it is dropped.
    _connection: Connection,
    url: EtcdUrl,
    body: Incoming,
    unread: Lines,
}

impl Watch {
    pub(super) async fn open(
        mut connection: Connection,
        url: &EtcdUrl,
        prefix: &str,
        revision: i64,
    ) -> Result<Self, Fault> {
        let request = WatchRequest {
            create_request: WatchCreateRequest {
                key: bytes(prefix),
                range_end: end_of(prefix),
                start_revision: Int(revision),
            },
        };
        let body = serde_json::to_vec(&request).expect("requests are structs that serialise");
        let response = connection.send(url, "/v3/watch", &body).await?;
        Ok(Self {
            _connection: connection,
            url: url.clone(),
            body: response.into_body(),
            unread: Lines::default(),
        })
    }

    /// Waits for the next changes. Returns none of them if there are none within `limit`; the watch
    /// can be used further. After an error it cannot.
    pub async fn next(&mut self, limit: Duration) -> Result<Vec<Change>, EtcdError> {
        match timeout(limit, self.read()).await {
            Ok(read) => read,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Loses nothing if it is dropped while it waits.
    async fn read(&mut self) -> Result<Vec<Change>, EtcdError> {
        loop {
            while let Some(line) = self.unread.pop() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let changes = changes(&line)?;
                if !changes.is_empty() {
                    return Ok(changes);
                }
            }
            let lost = |reason: String| EtcdError::Unreachable {
                url: self.url.clone(),
                reason,
            };
            let Some(frame) = self.body.frame().await else {
                return Err(lost("the stream of changes ended".to_owned()));
            };
            let frame = frame.map_err(|error| lost(error.to_string()))?;
            if !self.unread.push(frame.data_ref().map_or(&[], |data| data)) {
                return Err(EtcdError::NotUnderstood { what: "watch" });
            }
        }
    }
}

fn changes(line: &[u8]) -> Result<Vec<Change>, EtcdError> {
    let not_understood = EtcdError::NotUnderstood { what: "watch" };
    let Ok(message) = serde_json::from_slice::<Streamed<WatchResponse>>(line) else {
        return Err(not_understood);
    };
    let response = message.result;
    if response.compact_revision.0 > 0 {
        let oldest = response.compact_revision.0;
        return Err(EtcdError::Compacted { oldest });
    }
    if response.canceled {
        return Err(not_understood);
    }
    let revision = response.header.revision.0;
    let events = response.events.into_iter().map(|event| {
        let is_deleted = event.kind.as_deref() == Some("DELETE");
        let entry = entry(event.kv)?;
        Ok(if is_deleted {
            let key = entry.key;
            let revision = entry.revision.max(revision);
            Change::Deleted { key, revision }
        } else {
            Change::Put(entry)
        })
    });
    events.collect()
}

/// Cuts a stream into lines.
#[derive(Debug, Default)]
struct Lines {
    unread: Vec<u8>,
    /// Bytes at the beginning of `unread` that have no line's end.
    searched: usize,
}

impl Lines {
    /// Returns whether there is room for the bytes.
    fn push(&mut self, bytes: &[u8]) -> bool {
        self.unread.extend_from_slice(bytes);
        self.unread.len() <= LINE_MAX_BYTES
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let found = self.unread[self.searched..]
            .iter()
            .position(|b| *b == b'\n');
        let Some(end) = found else {
            self.searched = self.unread.len();
            return None;
        };
        let rest = self.unread.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.unread, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_cut_out_of_any_chunks() {
        let stream = b"{\"a\":1}\n\n{}\nunfinished";
        for len in 1..stream.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for part in stream.chunks(len) {
                assert!(lines.push(part));
                while let Some(line) = lines.pop() {
                    found.push(line);
                }
            }
            assert_eq!(found, [&b"{\"a\":1}\n"[..], b"\n", b"{}\n"], "{len}");
        }
        assert!(!Lines::default().push(&vec![b' '; LINE_MAX_BYTES + 1]));
    }

    #[test]
    fn events_are_puts_or_deletions_and_a_compaction_is_an_error() {
        let line = br#"{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"YQ==","value":"eA==","mod_revision":"8"}},{"type":"DELETE","kv":{"key":"Yg==","mod_revision":"9"}}]}}"#;
        let found = changes(line).expect("read");
        let put = Change::Put(Entry {
            key: "a".to_owned(),
            value: b"x".to_vec(),
            revision: 8,
            lease: None,
        });
        let deleted = Change::Deleted {
            key: "b".to_owned(),
            revision: 9,
        };
        assert_eq!(found, [put, deleted]);
        let line = br#"{"result":{"canceled":true,"compact_revision":"12"}}"#;
        let error = changes(line).expect_err("compacted");
        assert!(matches!(error, EtcdError::Compacted { oldest: 12 }));
        for line in [&b"{\"result\":{\"canceled\":true}}"[..], b"{}", b"x"] {
            let error = changes(line).expect_err("no changes");
            assert!(matches!(error, EtcdError::NotUnderstood { .. }), "{line:?}");
        }
    }
}
