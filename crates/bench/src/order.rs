//! Pseudo-random numbers: in which order blocks are visited, and what they hold.

/// A pseudo-random order of `0..len` that visits each number once and takes no memory: a keyed
/// bijection on the next power of two, applied again while the result is outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    len: u64,
    mask: u64,
    half_bits: u32,
    keys: [u64; 3],
}

impl Permutation {
    /// An order of `0..len`; `len` is at least 1.
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        assert!(len > 0, "an order of nothing");
        let bits = len.next_power_of_two().ilog2().max(1);
        let mut random = SplitMix(seed);
        Self {
            len,
            mask: u64::MAX >> (64 - bits),
            half_bits: bits.div_ceil(2),
            keys: std::array::from_fn(|_| random.next()),
        }
    }

    /// The number at `index` of the order.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> u64 {
        let mut x = index;
        loop {
            x = self.mix(x);
            if x < self.len {
                return x;
            }
        }
    }

    /// Adding, multiplying by an odd number, and folding the upper half into the lower are each
    /// reversible on `bits` bits, so their sequence is a bijection.
    #[inline]
    fn mix(&self, x: u64) -> u64 {
        let mut x = x;
        for key in self.keys {
            x = x.wrapping_add(key) & self.mask;
            x = x.wrapping_mul(key | 1) & self.mask;
            x ^= x >> self.half_bits;
        }
        x
    }
}

/// SplitMix64: a small generator whose state is a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// The next number.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Fills `bytes` with numbers that do not compress.
pub(crate) fn fill_random(bytes: &mut [u8], seed: u64) {
    let mut random = SplitMix(seed);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_visited_once() {
        for len in [1, 2, 3, 7, 64, 1000, 4097] {
            let order = Permutation::new(len, 42);
            let mut seen: Vec<u64> = (0..len).map(|index| order.at(index)).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..len), "{len}");
        }
    }

    #[test]
    fn the_order_looks_random_and_depends_on_the_seed() {
        const LEN: u64 = 1 << 18;
        let (a, b) = (Permutation::new(LEN, 1), Permutation::new(LEN, 2));
        let same = (0..LEN).filter(|&index| a.at(index) == b.at(index)).count();
        assert!(same < 30, "{same} of {LEN} positions are equal");
        let near = (1..LEN)
            .filter(|&index| a.at(index).abs_diff(a.at(index - 1)) < LEN / 64)
            .count() as f64;
        let expected = LEN as f64 / 32.0;
        assert!(
            (near / expected - 1.0).abs() < 0.25,
            "{near} steps are short"
        );
    }
}
