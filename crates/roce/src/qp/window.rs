//! The window: how many packets may be in flight.

/// A congestion window in packets: it halves on loss and grows by one per window that is
/// acknowledged.
#[derive(Debug)]
pub(super) struct Window {
    packets: u32,
    acknowledged: u32,
}

impl Window {
    /// The maximum of the window and its initial value: the socket buffers of peers hold this many
    /// packets.
    const PACKETS_MAX: u32 = 256;
    const PACKETS_FIRST: u32 = 128;
    const PACKETS_MIN: u32 = 4;

    pub(super) const fn new() -> Self {
        Self {
            packets: Self::PACKETS_FIRST,
            acknowledged: 0,
        }
    }

    pub(super) const fn packets(&self) -> u64 {
        self.packets as u64
    }

    pub(super) fn on_acknowledged(&mut self, packets: u64) {
        self.acknowledged += packets.min(u64::from(Self::PACKETS_MAX)) as u32;
        if self.acknowledged >= self.packets {
            self.acknowledged -= self.packets;
            self.packets = (self.packets + 1).min(Self::PACKETS_MAX);
        }
    }

    pub(super) fn on_loss(&mut self) {
        self.packets = (self.packets / 2).max(Self::PACKETS_MIN);
        self.acknowledged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_halves_and_a_window_of_acknowledgements_adds_one() {
        let mut window = Window::new();
        window.on_loss();
        assert_eq!(window.packets(), 64);
        window.on_acknowledged(63);
        assert_eq!(window.packets(), 64);
        window.on_acknowledged(1);
        assert_eq!(window.packets(), 65);
        for _ in 0..20 {
            window.on_loss();
        }
        assert_eq!(window.packets(), u64::from(Window::PACKETS_MIN));
        for _ in 0..100_000 {
            window.on_acknowledged(1);
        }
        assert_eq!(window.packets(), u64::from(Window::PACKETS_MAX));
    }
}
