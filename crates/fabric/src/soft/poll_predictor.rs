//! Whether a look at the socket is worth it.

/// Learns from looks at a socket that are taken while there is something else to do whether they find anything.
///
/// Under load they do; where one request or answer is on its way at a time they hardly ever do, and a look in vain delays what is to be
/// done.
#[derive(Debug, Default)]
pub(super) struct PollPredictor {
    /// Looks in vain, one after the other, up to as many as matter.
    vain: u32,
    /// Looks that were left out since the last that was taken.
    left_out: u32,
}

impl PollPredictor {
    /// After so many looks in vain others are left out,
    const VAIN_MAX: u32 = 16;
    /// but for one after so many.
    const LEFT_OUT_MAX: u32 = 15;

    /// Whether a look is to be taken now.
    pub(super) fn is_good(&mut self) -> bool {
        let is_good = self.vain < Self::VAIN_MAX || self.left_out == Self::LEFT_OUT_MAX;
        self.left_out = if is_good { 0 } else { self.left_out + 1 };
        is_good
    }

    /// Whether it found anything.
    pub(super) fn saw(&mut self, has_found: bool) {
        self.vain = if has_found {
            0
        } else {
            (self.vain + 1).min(Self::VAIN_MAX)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many looks are taken, all of which would find the same.
    fn taken(predictor: &mut PollPredictor, count: u32, has_found: bool) -> u32 {
        let looks = (0..count).filter(|_| {
            let is_good = predictor.is_good();
            if is_good {
                predictor.saw(has_found);
            }
            is_good
        });
        looks.count() as u32
    }

    #[test]
    fn looks_are_left_out_while_they_are_in_vain_and_taken_again_when_one_is_not() {
        let mut predictor = PollPredictor::default();
        for _ in 0..3 {
            let one_in = PollPredictor::LEFT_OUT_MAX + 1;
            let vain = taken(&mut predictor, PollPredictor::VAIN_MAX + 10 * one_in, false);
            assert_eq!(vain, PollPredictor::VAIN_MAX + 10);
            assert_eq!(taken(&mut predictor, one_in, true), 1);
            assert_eq!(taken(&mut predictor, 100, true), 100);
        }
        assert!(predictor.is_good());
        predictor.saw(false);
        assert!(predictor.is_good(), "once in vain is not always");
    }
}
