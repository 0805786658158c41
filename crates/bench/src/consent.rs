//! Whether a run may change what its sources hold.

use std::time::{Duration, Instant};

use file_io::{Caching, FileAccess};

use crate::{
    BenchError, Direction, Plan, Source, Wait,
    attachment::{Attachment, Demand},
    check::check,
    run::region,
    wait::SLEEP_MAX,
};

/// How long a source is scanned for bytes other than zero. One that cannot be read in full by then
/// counts as holding data.
const SCAN_TIME_MAX: Duration = Duration::from_secs(2);
/// The longest read of the scan.
const SCAN_READ_BYTES: u32 = 64 << 10;
/// Reads in flight.
const SCAN_DEPTH: u16 = 8;

/// Returns if `plan` changes no data, or if `may` agrees to each change, whose description it gets.
/// A source that reads as zeros, and a file that is empty or does not exist, hold no data.
pub(crate) fn obtain(plan: &Plan, may: impl Fn(&str) -> bool) -> Result<(), BenchError> {
    check(plan)?;
    let short = plan.sources.iter().filter(|it| is_lengthened(it, plan));
    let names = joined(short);
    if !names.is_empty() && !may(&format!("lengthens {names}")) {
        return Err(BenchError::Lengthens { names });
    }
    if plan.access() == FileAccess::ReadOnly {
        return Ok(());
    }
    let mut holding = Vec::new();
    for source in &plan.sources {
        if holds_data(source, plan)? {
            holding.push(source);
        }
    }
    let names = joined(holding);
    if !names.is_empty() && !may(&format!("overwrites the data on {names}")) {
        return Err(BenchError::HoldsData { names });
    }
    Ok(())
}

fn joined<'a>(sources: impl IntoIterator<Item = &'a Source>) -> String {
    let names: Vec<String> = sources.into_iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Whether `source` is a file with contents that ends before the region, up to whose end it would
/// be laid out, even for reading.
fn is_lengthened(source: &Source, plan: &Plan) -> bool {
    let (Source::Path(path), Some(end_bytes)) = (source, plan.end_bytes()) else {
        return false;
    };
    std::fs::metadata(path).is_ok_and(|it| it.is_file() && it.len() > 0 && it.len() < end_bytes)
}

fn holds_data(source: &Source, plan: &Plan) -> Result<bool, BenchError> {
    let mut end_bytes = plan.end_bytes();
    if let Source::Path(path) = source {
        let metadata = std::fs::metadata(path).ok();
        let file_bytes = metadata
            .filter(std::fs::Metadata::is_file)
            .map(|it| it.len());
        if file_bytes == Some(0) || !path.exists() {
            return Ok(false);
        }
        // A file that is shorter is laid out up to there; the rest of it is kept.
        end_bytes = end_bytes.map(|end| end.min(file_bytes.unwrap_or(u64::MAX)));
        if end_bytes.is_some_and(|end| end <= plan.offset_bytes) {
            return Ok(false);
        }
    }
    let reading = Plan {
        size_bytes: end_bytes.map(|end| end.saturating_sub(plan.offset_bytes)),
        ..plan.clone()
    };
    let mut attachment = attach(source, SCAN_READ_BYTES)?;
    attachment.check_unit(plan.block_len_bytes)?;
    let region = region(&reading, &attachment)?;
    let len_bytes = region.units * u64::from(plan.block_len_bytes);
    Ok(!reads_as_zeros(
        &mut attachment,
        region.offset_bytes,
        len_bytes,
    )?)
}

/// Attaches for reading alone, with the longest reads that the target accepts.
fn attach(source: &Source, read_bytes: u32) -> Result<Attachment, BenchError> {
    let demand = Demand {
        queues: 1,
        depth: SCAN_DEPTH,
        block_len_bytes: read_bytes,
        access: FileAccess::ReadOnly,
        caching: Caching::Buffered,
        end_bytes: None,
    };
    match source.attach(&demand) {
        Err(BenchError::TransferTooLong { possible, .. }) if possible < read_bytes as usize => {
            attach(source, possible as u32)
        }
        attached => attached,
    }
}

/// Reads `len_bytes` bytes from `offset_bytes` on. Returns `false` at the first byte that is not
/// zero, at the first read that fails, and when time is up.
fn reads_as_zeros(
    attachment: &mut Attachment,
    offset_bytes: u64,
    len_bytes: u64,
) -> Result<bool, BenchError> {
    let deadline = Instant::now() + SCAN_TIME_MAX;
    let port = &mut attachment.ports[0];
    let read_bytes = port.buffer(0).len() as u64;
    let (mut at, end) = (offset_bytes, offset_bytes + len_bytes);
    let mut free: Vec<u16> = (0..SCAN_DEPTH).collect();
    let mut lengths = [0_usize; SCAN_DEPTH as usize];
    let mut done = Vec::with_capacity(usize::from(SCAN_DEPTH));
    while at < end || free.len() < usize::from(SCAN_DEPTH) {
        while at < end
            && let Some(slot) = free.pop()
        {
            let len = read_bytes.min(end - at);
            lengths[usize::from(slot)] = len as usize;
            port.submit(slot, Direction::Read, at, len as u32);
            at += len;
        }
        port.wait(Wait::Sleep, Some(SLEEP_MAX), &mut done)
            .map_err(|source| BenchError::Port {
                source_name: attachment.name.clone(),
                source,
            })?;
        for completion in done.drain(..) {
            let bytes = &port.buffer(completion.slot)[..lengths[usize::from(completion.slot)]];
            if completion.result.is_err() || bytes.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            free.push(completion.slot);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
    }
    Ok(true)
}
