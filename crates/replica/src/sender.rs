//! The primary's end of a stream of entries.

use std::collections::VecDeque;

use crate::ids::{Epoch, LocalTime, Seq, StreamId, WriteNumber};
use crate::message::{Entry, EntryBody};
use crate::settings::Settings;

/// Entries that a peer has not acknowledged, in order. They are sent again until it has.
pub(crate) struct Sender<D> {
    id: StreamId,
    last: Seq,
    queue: VecDeque<Queued<D>>,
    /// Writes and pieces that are not settled yet.
    unsettled: VecDeque<Unsettled>,
    settled: Seq,
    /// When the queue was sent again, an entry became its first, or the first was acknowledged.
    sent_at: LocalTime,
}

struct Queued<D> {
    seq: Seq,
    /// The last write of the term when the entry was made.
    through: WriteNumber,
    body: EntryBody<D>,
}

struct Unsettled {
    seq: Seq,
    /// Settled when this write is: the entry's own, or the last that a piece may contain.
    through: WriteNumber,
    is_piece: bool,
}

/// What an acknowledgement covers.
pub(crate) struct Acked {
    /// Of the last entry.
    pub through: WriteNumber,
    /// Whether [`EntryBody::CopyEnd`] is among the entries.
    pub has_copy_end: bool,
}

impl<D: Clone> Sender<D> {
    /// The stream that the receiver expects as `reported`, opened in `epoch`.
    pub fn new(reported: StreamId, epoch: Epoch) -> Self {
        Self {
            id: StreamId {
                opened: epoch,
                ..reported
            },
            last: Seq::default(),
            queue: VecDeque::new(),
            unsettled: VecDeque::new(),
            settled: Seq::default(),
            sent_at: LocalTime::default(),
        }
    }

    pub fn id(&self) -> StreamId {
        self.id
    }

    pub fn settled(&self) -> Seq {
        self.settled
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many more entries it holds.
    pub fn places(&self, settings: &Settings) -> usize {
        settings.stream_max().saturating_sub(self.queue.len())
    }

    /// How many pieces are in flight: not acknowledged, or not settled.
    pub fn pieces(&self) -> usize {
        let queued = self.queue.iter().filter(|entry| is_piece(&entry.body));
        let unsettled = self.unsettled.iter().filter(|entry| entry.is_piece);
        queued.count().max(unsettled.count())
    }

    /// Adds an entry. Returns it for sending.
    pub fn push(&mut self, now: LocalTime, through: WriteNumber, body: EntryBody<D>) -> Entry<D> {
        self.last.0 += 1;
        if self.queue.is_empty() {
            self.sent_at = now;
        }
        if !matches!(body, EntryBody::CopyEnd { .. }) {
            self.unsettled.push_back(Unsettled {
                seq: self.last,
                through,
                is_piece: is_piece(&body),
            });
        }
        let queued = Queued {
            seq: self.last,
            through,
            body,
        };
        let entry = self.entry(&queued);
        self.queue.push_back(queued);
        entry
    }

    /// Removes entries up to `applied`, and gives the rest the time that a new entry has. `None` if
    /// that covers nothing new, or what was never sent.
    pub fn ack(&mut self, now: LocalTime, applied: Seq) -> Option<Acked> {
        if applied > self.last {
            return None;
        }
        let mut acked = None;
        let mut has_copy_end = false;
        while let Some(entry) = self.queue.front()
            && entry.seq <= applied
        {
            has_copy_end |= matches!(entry.body, EntryBody::CopyEnd { .. });
            acked = Some(entry.through);
            self.sent_at = now;
            self.queue.pop_front();
        }
        acked.map(|through| Acked {
            through,
            has_copy_end,
        })
    }

    /// Records that all members in sync have the writes up to `committed`.
    pub fn settle(&mut self, committed: WriteNumber) {
        while let Some(entry) = self.unsettled.front()
            && entry.through <= committed
        {
            self.settled = entry.seq;
            self.unsettled.pop_front();
        }
    }

    /// All entries of the queue if they are due to be sent again.
    pub fn take_due(&mut self, now: LocalTime, settings: &Settings) -> Vec<Entry<D>> {
        if self.queue.is_empty() || now.since(self.sent_at) < settings.resend_after {
            return Vec::new();
        }
        self.sent_at = now;
        self.queue.iter().map(|queued| self.entry(queued)).collect()
    }

    fn entry(&self, queued: &Queued<D>) -> Entry<D> {
        Entry {
            stream: self.id,
            seq: queued.seq,
            settled: self.settled,
            body: queued.body.clone(),
        }
    }
}

fn is_piece<D>(body: &EntryBody<D>) -> bool {
    matches!(body, EntryBody::Piece { .. })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::settings;

    fn ms(ms: u64) -> LocalTime {
        LocalTime(Duration::from_millis(ms))
    }

    fn sender() -> Sender<u8> {
        let stream = StreamId {
            number: 1,
            opened: Epoch(0),
        };
        Sender::new(stream, Epoch(1))
    }

    fn end() -> EntryBody<u8> {
        let complete_through = Epoch(0);
        EntryBody::CopyEnd { complete_through }
    }

    #[test]
    fn an_entry_is_not_sent_again_before_its_time() {
        let settings = settings();
        let mut sender = sender();
        let mut resent = 0;
        let _ = sender.push(ms(0), WriteNumber(1), end());
        for t in 1..100 {
            let _ = sender.push(ms(t), WriteNumber(1), end());
            let _ = sender.ack(ms(t), Seq(t));
            resent += sender.take_due(ms(t), &settings).len();
        }
        assert_eq!(resent, 0, "each entry was acknowledged after 1 ms");
    }

    #[test]
    fn what_is_not_acknowledged_is_sent_again_in_order() {
        let settings = settings();
        let mut sender = sender();
        for _ in 0..3 {
            let _ = sender.push(ms(0), WriteNumber(1), end());
        }
        assert!(sender.ack(ms(5), Seq(1)).is_some());
        // It covers nothing new, so it moves no time limit.
        assert!(sender.ack(ms(14), Seq(1)).is_none());
        assert_eq!(sender.take_due(ms(14), &settings).len(), 0);
        let due = sender.take_due(ms(15), &settings);
        let due: Vec<Seq> = due.iter().map(|entry| entry.seq).collect();
        assert_eq!(due, [Seq(2), Seq(3)]);
    }
}
