//! Queue pairs by number.

use std::collections::VecDeque;
use std::time::Instant;

use super::{EndpointConfig, boxed};
use crate::qp::{QpConfig, QueuePair};
use crate::wire::Qpn;
use crate::wire::cm::CommId;

/// A place for a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SlotIndex(u32);

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) qp: Option<Box<QueuePair>>,
    pub(super) conn: Option<CommId>,
    /// Whether it is in the queue of those that may have something to send.
    pub(super) is_ready: bool,
    /// Whether the connection manager knows that the peer has sent something.
    pub(super) has_reported_traffic: bool,
    /// For when its timer is set.
    pub(super) armed: Option<Instant>,
    generation: u32,
}

/// No queue pair can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} queue pairs exist, the maximum; raise the limit of queue pairs")]
pub struct CreateError(u32);

/// Queue pairs. A number is `offset + stride * (generation << slot_bits | slot)`: the slot is found
/// without searching, and a number is used again only after all generations of its slot.
#[derive(Debug)]
pub(super) struct Slots {
    table: Vec<Slot>,
    /// Slots whose queue pair was destroyed, oldest first.
    free: VecDeque<SlotIndex>,
    qps_max: u32,
    slot_bits: u32,
    stride: u32,
    offset: u32,
    generations: u32,
    first_generation: u32,
    /// The last slot that was found: packets and requests of one queue pair arrive together.
    last: (Qpn, SlotIndex),
}

impl Slots {
    /// Queue pair numbers have 24 bits.
    const NUMBERS: u32 = 1 << 24;

    pub(super) fn new(config: &EndpointConfig, random: u64) -> Self {
        let slot_bits = config.qps_max.max(2).next_power_of_two().trailing_zeros();
        assert!(
            config.number_offset < config.number_stride,
            "an offset is less than its stride"
        );
        let generations = (Self::NUMBERS / config.number_stride) >> slot_bits;
        assert!(
            generations >= 2,
            "{} queue pairs with every {}th number leave no number unused",
            config.qps_max,
            config.number_stride
        );
        Self {
            table: Vec::new(),
            free: VecDeque::new(),
            qps_max: config.qps_max,
            slot_bits,
            stride: config.number_stride,
            offset: config.number_offset,
            generations,
            first_generation: 1 + (random % u64::from(generations - 1)) as u32,
            last: (Qpn::GSI, SlotIndex(0)),
        }
    }

    pub(super) fn create(&mut self, config: QpConfig) -> Result<Qpn, CreateError> {
        let index = if (self.table.len() as u32) < self.qps_max {
            // Slots are used for the first time before any is used again: numbers rest as long as
            // they can.
            let index = SlotIndex(self.table.len() as u32);
            self.table.push(Slot {
                qp: None,
                conn: None,
                is_ready: false,
                has_reported_traffic: false,
                armed: None,
                generation: self.first_generation,
            });
            index
        } else {
            self.free.pop_front().ok_or(CreateError(self.qps_max))?
        };
        let generation = self.at(index).generation;
        let number = self.offset + self.stride * (generation << self.slot_bits | index.0);
        let qpn = Qpn::new(number);
        self.at(index).qp = Some(boxed(qpn, config));
        Ok(qpn)
    }

    pub(super) fn destroy(&mut self, index: SlotIndex) {
        let generations = self.generations;
        let slot = self.at(index);
        slot.qp = None;
        slot.conn = None;
        slot.has_reported_traffic = false;
        // Generation 0 is left out: its numbers may be those of the general services.
        slot.generation = slot.generation % (generations - 1) + 1;
        self.free.push_back(index);
    }

    #[inline]
    pub(super) fn at(&mut self, index: SlotIndex) -> &mut Slot {
        &mut self.table[index.0 as usize]
    }

    #[inline]
    pub(super) fn find(&mut self, qpn: Qpn) -> Option<(SlotIndex, &mut QueuePair)> {
        if self.last.0 != qpn {
            self.last = (qpn, self.index_of(qpn)?);
        }
        let (_, index) = self.last;
        let qp = self.table.get_mut(index.0 as usize)?.qp.as_deref_mut()?;
        (qp.qpn() == qpn).then_some((index, qp))
    }

    /// The slot of a queue pair number.
    fn index_of(&self, qpn: Qpn) -> Option<SlotIndex> {
        let number = qpn.get().checked_sub(self.offset)? / self.stride;
        Some(SlotIndex(number & ((1 << self.slot_bits) - 1)))
    }

    /// The queue pair of a connection; looked up when connections are made and ended only.
    pub(super) fn of_connection(&self, id: CommId) -> Option<Qpn> {
        let slot = self.table.iter().find(|slot| slot.conn == Some(id))?;
        slot.qp.as_ref().map(|qp| qp.qpn())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn slots(qps_max: u32, stride: u32, offset: u32) -> Slots {
        let config = EndpointConfig {
            qps_max,
            number_stride: stride,
            number_offset: offset,
            ..EndpointConfig::default()
        };
        Slots::new(&config, 12345)
    }

    #[test]
    fn numbers_are_of_their_end_and_rest_before_they_come_again() {
        let mut slots = slots(4, 8, 3);
        let mut seen = HashMap::new();
        for round in 0..10_000 {
            let qpn = slots.create(QpConfig::default()).unwrap();
            assert_eq!(qpn.get() % 8, 3);
            assert!(qpn.get() >= 2);
            assert_eq!(seen.insert(qpn, round), None);
            let (index, _) = slots.find(qpn).unwrap();
            slots.destroy(index);
            assert!(slots.find(qpn).is_none());
        }
    }

    #[test]
    fn queue_pairs_are_bounded_and_found_by_their_whole_number() {
        let mut slots = slots(3, 1, 0);
        let made: Vec<Qpn> = (0..3)
            .map(|_| slots.create(QpConfig::default()).unwrap())
            .collect();
        let error = slots.create(QpConfig::default()).unwrap_err();
        assert_eq!(error, CreateError(3));
        for qpn in &made {
            assert_eq!(slots.find(*qpn).unwrap().1.qpn(), *qpn);
            let other_generation = Qpn::new(qpn.get() ^ 1 << 20);
            assert!(slots.find(other_generation).is_none());
        }
        for number in [0, 1, 2, 3, 0x00FF_FFFF] {
            assert!(slots.find(Qpn::new(number)).is_none());
        }
    }
}
