//! Turns: work that may take long is done in pieces, so that a transport's thread serves others in
//! between.

use crate::response::Response;

/// The work that is left in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// In bytes of memory written.
    left: u64,
}

impl Turn {
    /// What a turn may cost, in bytes of memory written: about a millisecond.
    const COST: u64 = 4 << 20;
    /// What an operation costs besides its bytes.
    const OP_COST: u64 = 8 << 10;

    /// A turn that begins.
    pub const fn new() -> Self {
        Self { left: Self::COST }
    }

    /// Whether the turn is over. Remaining work has to wait.
    pub const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Records an operation that costs as much as writing `len_bytes` bytes.
    pub(crate) fn spend(&mut self, len_bytes: u64) {
        let cost = len_bytes.saturating_add(Self::OP_COST);
        self.left = self.left.saturating_sub(cost);
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

/// The state of a command after its turn.
#[derive(Debug)]
pub enum Step {
    /// It needs another turn.
    More,
    /// It waits for a volume, which reports when it may continue.
    Waits,
    /// It is done.
    Over(Response),
}
