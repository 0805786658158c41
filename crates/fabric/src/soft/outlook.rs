//! Whether a second look at the socket is worth it.

/// Learns from looks at a socket whether more waits behind the first arrival of a round.
///
/// Under load it does; where one request or answer is on its way at a time it hardly ever does, and the look in vain delays
/// what is to be done about the one.
#[derive(Debug)]
pub(super) struct Outlook {
    /// The second look found something, when one was taken last.
    expects_more: bool,
    /// The last round ended without a second look: the next one's first tells what that would have found.
    has_skipped: bool,
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing.
    Nothing,
    /// Something.
    Something,
}

impl Default for Outlook {
    fn default() -> Self {
        Self {
            expects_more: true,
            has_skipped: false,
        }
    }
}

impl Outlook {
    /// What look number `look` of a round, counted from 0, found.
    pub(super) fn saw(&mut self, look: usize, sight: Sight) {
        let is_second = look == 1 || (look == 0 && self.has_skipped);
        if is_second {
            self.expects_more = sight == Sight::Something;
        }
        self.has_skipped = false;
    }

    /// Whether a round that has news by look number `look` ends with it.
    pub(super) fn ends_with(&mut self, look: usize) -> bool {
        self.has_skipped = look == 0 && !self.expects_more;
        self.has_skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_look_is_taken_until_it_is_in_vain_and_again_when_more_waits() {
        let mut outlook = Outlook::default();
        outlook.saw(0, Sight::Something);
        assert!(!outlook.ends_with(0), "nothing is known yet");
        outlook.saw(1, Sight::Nothing);
        for _ in 0..3 {
            outlook.saw(0, Sight::Something);
            assert!(outlook.ends_with(0), "the last second look was in vain");
            outlook.saw(0, Sight::Nothing);
        }
        outlook.saw(0, Sight::Something);
        assert!(outlook.ends_with(0));
        outlook.saw(0, Sight::Something);
        assert!(!outlook.ends_with(0), "more came at once");
        outlook.saw(1, Sight::Something);
        assert!(!outlook.ends_with(1));
        outlook.saw(2, Sight::Nothing);
        outlook.saw(0, Sight::Something);
        assert!(!outlook.ends_with(0), "more waited");
    }
}
