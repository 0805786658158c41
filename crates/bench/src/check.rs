//! Checks of a plan before a source is opened.

use std::{fs, time::Duration};

use crate::{BenchError, End, Plan, Rate};

/// The longest `--runtime`, `--ramp-time` and `--interval`: 365 days.
const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// The shortest `--interval`.
const INTERVAL_MIN: Duration = Duration::from_millis(1);

/// Checks every option of `plan` that does not depend on a source.
pub(crate) fn check(plan: &Plan) -> Result<(), BenchError> {
    positive("bs", u64::from(plan.block_len_bytes))?;
    positive("iodepth", u64::from(plan.depth))?;
    positive("numjobs", u64::from(plan.jobs))?;
    positive("threads", plan.threads.unwrap_or(1) as u64)?;
    match plan.rate {
        Some(Rate::Iops(iops)) => positive("rate-iops", iops)?,
        Some(Rate::BytesPerSecond(bytes)) => positive("rate", bytes)?,
        None => {}
    }
    if plan.read_percent > 100 {
        return Err(BenchError::Option {
            option: "rwmixread",
            value: u64::from(plan.read_percent),
            expected: "it is a share in per cent, 100 at most",
        });
    }
    check_times(plan)?;
    let region = plan.size_bytes.unwrap_or(0);
    if plan.offset_bytes.checked_add(region).is_none() {
        return Err(BenchError::Option {
            option: "size",
            value: region,
            expected: "--offset and --size together exceed 2^64 bytes",
        });
    }
    check_buffers(plan, available_bytes())
}

fn positive(option: &'static str, value: u64) -> Result<(), BenchError> {
    if value > 0 {
        return Ok(());
    }
    Err(BenchError::Option {
        option,
        value,
        expected: "at least 1",
    })
}

fn check_times(plan: &Plan) -> Result<(), BenchError> {
    let within = |option, time: Duration, min: Duration| {
        if (min..=TIME_MAX).contains(&time) {
            return Ok(());
        }
        Err(BenchError::Time {
            option,
            time,
            min,
            max: TIME_MAX,
        })
    };
    if let End::After(runtime) = plan.end {
        within("runtime", runtime, Duration::from_nanos(1))?;
    }
    if let Some(max_outage) = plan.max_outage {
        within("max-outage", max_outage, Duration::from_nanos(1))?;
    }
    within("ramp-time", plan.ramp, Duration::ZERO)?;
    within("interval", plan.interval, INTERVAL_MIN)
}

/// Rejects a plan whose buffers do not fit into `available_bytes` of memory: they are touched at
/// once, and running out of memory would end some other process.
fn check_buffers(plan: &Plan, available_bytes: Option<u64>) -> Result<(), BenchError> {
    const PAGE_BYTES: u64 = 4096;
    let slots =
        plan.sources.len() as u64 * u64::from(plan.jobs).saturating_mul(u64::from(plan.depth));
    let slot_bytes = u64::from(plan.block_len_bytes).next_multiple_of(PAGE_BYTES);
    let wanted_bytes = slots.saturating_mul(slot_bytes);
    match available_bytes {
        Some(available_bytes) if wanted_bytes > available_bytes => Err(BenchError::Memory {
            wanted_bytes,
            available_bytes,
        }),
        _ => Ok(()),
    }
}

/// `MemAvailable` of /proc/meminfo, if that can be read.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|it| it.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn buffers_beyond_the_available_memory_are_a_mistake() {
        let plan = Plan {
            jobs: 2,
            ..Plan::new(vec![Source::Path("file".into())])
        };
        // 64 slots of 4 KiB.
        assert!(check_buffers(&plan, Some(256 << 10)).is_ok());
        let error = check_buffers(&plan, Some((256 << 10) - 1)).expect_err("too little");
        assert!(
            error.is_usage() && error.to_string().contains("--iodepth"),
            "{error}"
        );
        assert!(available_bytes().is_none_or(|bytes| bytes > 0));
    }
}
