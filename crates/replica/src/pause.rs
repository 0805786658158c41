//! Pauses between attempts that have changed nothing.

use std::time::Duration;

use crate::ids::LocalTime;

/// How often a pause is doubled at most.
pub(crate) const DOUBLINGS_MAX: u32 = 7;
/// 2^64 divided by the golden ratio: multiples of it are spread evenly over 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// log2 of the number of lengths that a pause may have.
const LENGTHS_SHIFT: u32 = 10;

/// `shortest`, doubled `doublings` times, and up to a quarter shorter or longer: members that began
/// at a time do not go on at a time. The nanoseconds of `seed`, a time of this member, decide how
/// much.
pub(crate) fn growing(shortest: Duration, doublings: u32, seed: LocalTime) -> Duration {
    let pause = shortest.saturating_mul(1 << doublings.min(DOUBLINGS_MAX));
    let ns = seed.0.as_nanos() as u64;
    let length = (ns.wrapping_mul(SPREAD) >> (u64::BITS - LENGTHS_SHIFT)) as u32;
    pause / 4 * 3 + pause / 2 / (1 << LENGTHS_SHIFT) * length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_differ_by_a_quarter() {
        let shortest = Duration::from_millis(100);
        for (doublings, longest_ms) in [(0, 100), (3, 800), (7, 12_800), (60, 12_800)] {
            let middle = Duration::from_millis(longest_ms);
            let pauses = (0..1000).map(|ns| {
                let seed = LocalTime(Duration::from_nanos(ns));
                growing(shortest, doublings, seed)
            });
            let pauses: Vec<_> = pauses.collect();
            let (least, most) = (pauses.iter().min(), pauses.iter().max());
            let (least, most) = (*least.expect("some"), *most.expect("some"));
            assert!(
                least >= middle * 3 / 4 && least < middle * 4 / 5,
                "{least:?}"
            );
            assert!(most <= middle * 5 / 4 && most > middle * 6 / 5, "{most:?}");
        }
    }
}
