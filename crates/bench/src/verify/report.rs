//! What verification found.

use std::fmt;

use serde::Serialize;

use super::pattern::Stamp;
use crate::format::thousands;

/// What verification found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// The seed of the pattern.
    pub seed: u64,
    /// Blocks written, rewriting included.
    pub written_blocks: u64,
    /// Blocks read and checked.
    pub checked_blocks: u64,
    /// Blocks that did not hold what they should.
    pub differing_blocks: u64,
    /// The one with the lowest LBA among them, of the first source that has one.
    pub first_difference: Option<Mismatch>,
    /// I/Os that failed.
    pub errors: u64,
    /// The message of the first of them.
    pub first_error: Option<String>,
    /// Whether a [`Stop`](crate::Stop) ended it before all blocks were checked.
    pub interrupted: bool,
    /// Seconds that it took.
    pub elapsed_s: f64,
}

/// A block that does not hold what it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The source.
    pub source: String,
    /// The block's address, in the source's own blocks.
    pub lba: u64,
    /// The first differing byte in the block.
    pub byte: usize,
    /// The expected contents: 32 bytes in hexadecimal, from the last multiple of 16 on.
    pub expected: String,
    /// The contents that were read, likewise.
    pub found: String,
    /// Which block it is instead, if its contents say so.
    pub explanation: String,
}

/// How many bytes of both contents are shown.
const EXCERPT_BYTES: usize = 32;

impl Mismatch {
    pub(super) fn new(block: &[u8], expected: Stamp, byte: usize) -> Self {
        let mut right = vec![0; block.len()];
        expected.fill(&mut right);
        let from = byte / 16 * 16;
        let to = (from + EXCERPT_BYTES).min(block.len());
        Self {
            source: String::new(),
            lba: expected.lba,
            byte,
            expected: hex(&right[from..to]),
            found: hex(&block[from..to]),
            explanation: explain(block, expected),
        }
    }
}

fn explain(block: &[u8], expected: Stamp) -> String {
    if block.iter().all(|&byte| byte == 0) {
        return "it reads as zeros".to_owned();
    }
    match Stamp::of(block) {
        None => "it was not written by a verification".to_owned(),
        Some(found) if found.seed != expected.seed => {
            format!("it was written with --randseed {}", found.seed)
        }
        Some(found) if found.lba != expected.lba => format!("it belongs to LBA {}", found.lba),
        Some(found) if found.generation < expected.generation => format!(
            "it is stale: generation {} instead of {}",
            found.generation, expected.generation
        ),
        Some(found) if found.generation > expected.generation => format!(
            "it is of generation {}, expected was {}",
            found.generation, expected.generation
        ),
        Some(_) => "its beginning is right, its rest is not (torn?)".to_owned(),
    }
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

impl VerifyReport {
    /// Adds what one job found.
    pub(super) fn add(&mut self, part: Self, source: &str) {
        self.written_blocks += part.written_blocks;
        self.checked_blocks += part.checked_blocks;
        self.differing_blocks += part.differing_blocks;
        self.errors += part.errors;
        self.first_error = self.first_error.take().or(part.first_error);
        if let Some(mut mismatch) = part.first_difference {
            source.clone_into(&mut mismatch.source);
            let is_first = self
                .first_difference
                .as_ref()
                .is_none_or(|known| known.source == mismatch.source && mismatch.lba < known.lba);
            if is_first {
                self.first_difference = Some(mismatch);
            }
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "wrote {} blocks, checked {} in {:.1} s (seed {})",
            thousands(self.written_blocks as f64),
            thousands(self.checked_blocks as f64),
            self.elapsed_s,
            self.seed
        )?;
        if let Some(error) = &self.first_error {
            writeln!(f, "{} I/Os failed, the first one: {error}", self.errors)?;
        }
        if self.interrupted {
            writeln!(f, "interrupted: not all blocks were checked")?;
        }
        match &self.first_difference {
            None => write!(f, "every block that was checked holds what it should"),
            Some(first) => write!(
                f,
                "{} blocks differ, the first one: {} LBA {}, byte {}: {}\n  expected {}\n  found    {}",
                self.differing_blocks,
                first.source,
                first.lba,
                first.byte,
                first.explanation,
                first.expected,
                first.found
            ),
        }
    }
}
