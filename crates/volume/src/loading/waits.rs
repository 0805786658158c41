//! Commands that wait for chunks.

use std::collections::BTreeMap;

use block::Ticket;

/// The most pairs of a command and a chunk that it waits for, so that hosts cannot make the list
/// longer than a few MiB.
const PAIRS_MAX: usize = 1 << 16;

/// Which commands wait for which chunks.
#[derive(Debug, Default)]
pub(super) struct Waits {
    commands: BTreeMap<u32, Vec<Ticket>>,
    chunks: BTreeMap<Ticket, Vec<u32>>,
    pairs: usize,
}

impl Waits {
    /// Makes a command wait for `chunks`, of which there is at least one and each is there once.
    /// Returns whether there was room.
    pub(super) fn insert(&mut self, ticket: Ticket, chunks: Vec<u32>) -> bool {
        if self.pairs + chunks.len() > PAIRS_MAX {
            return false;
        }
        self.pairs += chunks.len();
        for &chunk in &chunks {
            self.commands.entry(chunk).or_default().push(ticket);
        }
        self.chunks.insert(ticket, chunks);
        true
    }

    /// Forgets a command.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        let chunks = self.chunks.remove(&ticket).unwrap_or_default();
        self.pairs -= chunks.len();
        for chunk in chunks {
            let Some(commands) = self.commands.get_mut(&chunk) else {
                continue;
            };
            commands.retain(|&waiting| waiting != ticket);
            if commands.is_empty() {
                self.commands.remove(&chunk);
            }
        }
    }

    /// A chunk is there: returns the commands that wait for no other.
    pub(super) fn chunk_came(&mut self, chunk: u32) -> Vec<Ticket> {
        let mut ready = self.commands.remove(&chunk).unwrap_or_default();
        self.pairs -= ready.len();
        ready.retain(|ticket| {
            let Some(chunks) = self.chunks.get_mut(ticket) else {
                return false;
            };
            chunks.retain(|&missing| missing != chunk);
            chunks.is_empty()
        });
        for ticket in &ready {
            self.chunks.remove(ticket);
        }
        ready
    }

    /// A chunk will not come: returns the commands that waited for it, and forgets them.
    pub(super) fn chunk_failed(&mut self, chunk: u32) -> Vec<Ticket> {
        let failed = self.commands.get(&chunk).cloned().unwrap_or_default();
        for &ticket in &failed {
            self.remove(ticket);
        }
        failed
    }

    /// The first chunk from `from` on that a command waits for, else the first of all.
    pub(super) fn next(&self, from: u32) -> Option<u32> {
        let mut later = self.commands.range(from..);
        let next = later.next().or_else(|| self.commands.first_key_value());
        next.map(|(&chunk, _)| chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(slot: u32) -> Ticket {
        Ticket {
            connection: 7,
            slot,
            generation: 1,
        }
    }

    #[test]
    fn a_command_is_ready_when_its_last_chunk_came() {
        let mut waits = Waits::default();
        assert!(waits.insert(ticket(1), vec![4, 5]));
        assert!(waits.insert(ticket(2), vec![5]));
        assert_eq!((waits.next(5), waits.next(6)), (Some(5), Some(4)));
        assert_eq!(waits.chunk_came(5), [ticket(2)]);
        assert_eq!(waits.chunk_came(4), [ticket(1)]);
        assert_eq!((waits.next(0), waits.pairs), (None, 0));
    }

    #[test]
    fn a_released_command_leaves_nothing() {
        let mut waits = Waits::default();
        assert!(waits.insert(ticket(1), vec![4, 5]));
        assert_eq!(waits.chunk_came(4), []);
        waits.remove(ticket(1));
        waits.remove(ticket(1));
        assert_eq!((waits.next(0), waits.pairs), (None, 0));
        assert!(waits.chunks.is_empty());
    }

    #[test]
    fn a_failed_chunk_fails_commands_that_wait_for_others_too() {
        let mut waits = Waits::default();
        assert!(waits.insert(ticket(1), vec![4, 5]));
        assert_eq!(waits.chunk_failed(5), [ticket(1)]);
        assert_eq!(waits.chunk_came(4), []);
        assert_eq!(waits.pairs, 0);
    }

    #[test]
    fn the_list_is_bounded() {
        let mut waits = Waits::default();
        let all = (0..PAIRS_MAX as u32).collect();
        assert!(waits.insert(ticket(1), all));
        assert!(!waits.insert(ticket(2), vec![0]));
        waits.remove(ticket(1));
        assert!(waits.insert(ticket(2), vec![0]));
    }
}
