//! Lists of what to send: bytes of headers and small data, and placements of data that stay where
//! they are.

use std::collections::VecDeque;

use block::ByteRange;

/// Names memory that outgoing bytes are in: one of a connection's volumes, by an index that the
/// backend assigned, or a buffer of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceId(pub u32);

/// Where data are that will be sent without a copy: a byte range of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The volume.
    pub source: SourceId,
    /// The bytes inside it.
    pub range: ByteRange,
}

impl Placement {
    /// No bytes: a placeholder.
    pub const NOWHERE: Self = Self {
        source: SourceId(0),
        range: ByteRange { offset: 0, len: 0 },
    };
}

/// One stretch of a [`SendList`], in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Bytes that the list itself holds.
    Bytes(&'a [u8]),
    /// Bytes of a volume.
    Place(Placement),
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Bytes { len: usize },
    Place(Placement),
}

/// What a session has to send, in order. Bounded: bytes by the capacity given at creation, parts by
/// [`SendList::PARTS_MAX`]. A runtime reuses one list for many connections as long as each drains
/// it.
#[derive(Debug)]
pub struct SendList {
    bytes: Box<[u8]>,
    /// `bytes[head..tail]` are not yet sent.
    head: usize,
    tail: usize,
    parts: VecDeque<Part>,
    len_bytes: u64,
}

impl SendList {
    /// The most parts a list takes.
    pub const PARTS_MAX: usize = 512;

    /// A list that holds up to `capacity_bytes` of its own bytes.
    pub fn with_capacity(capacity_bytes: usize) -> Self {
        Self {
            bytes: vec![0; capacity_bytes].into_boxed_slice(),
            head: 0,
            tail: 0,
            parts: VecDeque::with_capacity(Self::PARTS_MAX),
            len_bytes: 0,
        }
    }

    /// How many more bytes fit, if parts are left.
    pub fn free_bytes(&self) -> usize {
        if self.parts.len() >= Self::PARTS_MAX {
            0
        } else {
            self.bytes.len() - self.tail
        }
    }

    /// How many more parts fit.
    pub fn free_parts(&self) -> usize {
        Self::PARTS_MAX - self.parts.len()
    }

    /// Whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Bytes left to send, placements included.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Appends room for `len` bytes, for the caller to fill in at once; `None`, and no change, if
    /// it does not fit. The room holds old bytes, so fill all of it.
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        if len > self.free_bytes() {
            return None;
        }
        match self.parts.back_mut() {
            Some(Part::Bytes { len: last }) => *last += len,
            _ => self.parts.push_back(Part::Bytes { len }),
        }
        let start = self.tail;
        self.tail += len;
        self.len_bytes += len as u64;
        Some(&mut self.bytes[start..self.tail])
    }

    /// Appends a copy of `bytes`; `false`, and no change, if it does not fit.
    #[must_use]
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        match self.reserve(bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }

    /// Takes the last `len` own bytes back, which [`reserve`](Self::reserve) has just given out
    /// (the data could not be read after all).
    pub fn retract(&mut self, len: usize) {
        let Some(Part::Bytes { len: last }) = self.parts.back_mut() else {
            panic!("only bytes just reserved can be retracted");
        };
        assert!(*last >= len, "only bytes just reserved can be retracted");
        *last -= len;
        if *last == 0 {
            self.parts.pop_back();
        }
        self.tail -= len;
        self.len_bytes -= len as u64;
        self.rewind_if_empty();
    }

    /// Appends bytes that stay in a volume; `false`, and no change, where no more parts fit.
    #[must_use]
    pub fn place(&mut self, placement: Placement) -> bool {
        if self.parts.len() >= Self::PARTS_MAX {
            return false;
        }
        self.parts.push_back(Part::Place(placement));
        self.len_bytes += placement.range.len;
        true
    }

    /// What is left to send, in order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut at = self.head;
        self.parts.iter().map(move |part| match *part {
            Part::Bytes { len } => {
                let start = at;
                at += len;
                Segment::Bytes(&self.bytes[start..at])
            }
            Part::Place(placement) => Segment::Place(placement),
        })
    }

    /// The next `sent_bytes` bytes have been sent.
    pub fn consume(&mut self, sent_bytes: u64) {
        assert!(sent_bytes <= self.len_bytes, "more was sent than there was");
        self.len_bytes -= sent_bytes;
        let mut left = sent_bytes;
        while left > 0 {
            let part = self
                .parts
                .front_mut()
                .expect("parts hold len_bytes bytes in all");
            let (part_len, done) = match part {
                Part::Bytes { len } => {
                    let take = left.min(*len as u64);
                    self.head += take as usize;
                    *len -= take as usize;
                    (take, *len == 0)
                }
                Part::Place(placement) => {
                    let take = left.min(placement.range.len);
                    placement.range.offset += take;
                    placement.range.len -= take;
                    (take, placement.range.len == 0)
                }
            };
            left -= part_len;
            if done {
                self.parts.pop_front();
            }
        }
        self.rewind_if_empty();
    }

    fn rewind_if_empty(&mut self) {
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(list: &SendList) -> Vec<String> {
        list.segments()
            .map(|s| match s {
                Segment::Bytes(b) => String::from_utf8_lossy(b).into_owned(),
                Segment::Place(p) => format!("{}+{}", p.range.offset, p.range.len),
            })
            .collect()
    }

    fn place(offset: u64, len: u64) -> Placement {
        Placement {
            source: SourceId(0),
            range: ByteRange { offset, len },
        }
    }

    #[test]
    fn consuming_in_any_steps_keeps_order_and_sums() {
        let mut list = SendList::with_capacity(16);
        assert!(list.push(b"head"));
        assert!(list.place(place(512, 100)));
        assert!(list.push(b"tail"));
        assert_eq!(list.len_bytes(), 108);
        list.consume(2);
        assert_eq!(flat(&list), ["ad", "512+100", "tail"]);
        list.consume(12);
        assert_eq!(flat(&list), ["522+90", "tail"]);
        list.consume(91);
        assert_eq!(flat(&list), ["ail"]);
        list.consume(3);
        assert!(list.is_empty());
        assert_eq!(list.free_bytes(), 16);
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut list = SendList::with_capacity(4);
        assert!(list.push(b"abc"));
        assert!(!list.push(b"de"));
        assert_eq!(flat(&list), ["abc"]);
        assert!(list.push(b"d"));
        assert_eq!(flat(&list), ["abcd"]);
    }

    #[test]
    fn retract_undoes_the_last_reserve() {
        let mut list = SendList::with_capacity(8);
        assert!(list.push(b"abc"));
        list.reserve(4).expect("fits");
        list.retract(4);
        assert_eq!(flat(&list), ["abc"]);
        list.retract(3);
        assert!(list.is_empty());
        assert_eq!(list.free_bytes(), 8);
    }
}
