//! A send queue that keeps what is posted to it.

use crate::{RemoteBuffer, RemoteKey, WorkList};

/// Something that a session has posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// An RDMA WRITE.
    Write {
        /// The remote memory.
        to: RemoteBuffer,
        /// The bytes.
        data: Vec<u8>,
    },
    /// An RDMA READ.
    Read {
        /// The tag that is returned with its data.
        tag: u64,
        /// The remote memory.
        from: RemoteBuffer,
    },
    /// A message.
    Send {
        /// The bytes.
        message: Vec<u8>,
        /// The key that it invalidates.
        invalidate: Option<RemoteKey>,
    },
}

/// A [`WorkList`] for tests, which rejects requests beyond its bounds.
#[derive(Clone, Debug)]
pub struct PostedWork {
    work: Vec<Work>,
    /// The most requests.
    pub depth_max: usize,
    /// The longest write or read, in bytes.
    pub piece_max_bytes: u32,
    /// The longest message, in bytes.
    pub message_max_bytes: u32,
}

impl Default for PostedWork {
    fn default() -> Self {
        Self {
            work: Vec::new(),
            depth_max: 1024,
            piece_max_bytes: 64 << 10,
            message_max_bytes: 8 << 10,
        }
    }
}

impl PostedWork {
    /// Takes the requests posted since the last call, in order, and empties the queue.
    pub fn take(&mut self) -> Vec<Work> {
        std::mem::take(&mut self.work)
    }

    fn has_room(&self) -> bool {
        self.work.len() < self.depth_max
    }
}

impl WorkList for PostedWork {
    fn piece_max_bytes(&self) -> u32 {
        self.piece_max_bytes
    }

    fn write(&mut self, to: RemoteBuffer) -> Option<&mut [u8]> {
        assert!(to.len_bytes <= self.piece_max_bytes, "writes go in pieces");
        if !self.has_room() {
            return None;
        }
        // Old bytes, as in a reused buffer.
        let data = vec![0xA5; to.len_bytes as usize];
        self.work.push(Work::Write { to, data });
        match self.work.last_mut() {
            Some(Work::Write { data, .. }) => Some(data),
            _ => None,
        }
    }

    fn retract(&mut self) {
        let last = self.work.pop();
        assert!(
            matches!(last, Some(Work::Write { .. })),
            "only a write that was just posted can be taken back"
        );
    }

    fn read(&mut self, tag: u64, from: RemoteBuffer) -> bool {
        assert!(from.len_bytes <= self.piece_max_bytes, "reads go in pieces");
        if !self.has_room() {
            return false;
        }
        self.work.push(Work::Read { tag, from });
        true
    }

    fn send(&mut self, len_bytes: u32, invalidate: Option<RemoteKey>) -> Option<&mut [u8]> {
        assert!(
            len_bytes <= self.message_max_bytes,
            "messages fit the peer's receives"
        );
        if !self.has_room() {
            return None;
        }
        self.work.push(Work::Send {
            message: vec![0xA5; len_bytes as usize],
            invalidate,
        });
        match self.work.last_mut() {
            Some(Work::Send { message, .. }) => Some(message),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_changes_nothing_and_fits_later() {
        let mut posted = PostedWork {
            depth_max: 2,
            ..PostedWork::default()
        };
        let buffer = RemoteBuffer {
            address: 64,
            key: RemoteKey(1),
            len_bytes: 4,
        };
        posted.write(buffer).expect("room").copy_from_slice(b"lost");
        posted.retract();
        posted.write(buffer).expect("room").copy_from_slice(b"data");
        assert!(posted.read(9, buffer));
        assert_eq!(posted.send(1, None), None);
        assert!(!posted.read(10, buffer));
        let write = Work::Write {
            to: buffer,
            data: b"data".to_vec(),
        };
        let read = Work::Read {
            tag: 9,
            from: buffer,
        };
        assert_eq!(posted.take(), [write, read]);
        let key = Some(RemoteKey(1));
        posted.send(2, key).expect("room").copy_from_slice(b"ok");
        let send = Work::Send {
            message: b"ok".to_vec(),
            invalidate: key,
        };
        assert_eq!(posted.take(), [send]);
    }
}
