//! `ramport volume filter`.

use control::{DelayFilter, FaultFilter, Filters, Period, RateLimitFilter, Text, VolumePatch};

use super::{Daemon, change, get};
use crate::cli::{FilterClearArgs, FilterKind, FilterSetArgs, FilterVerb};
use crate::failure::Failure;

pub(super) fn run(daemon: &Daemon, verb: &FilterVerb) -> Result<(), Failure> {
    let (name, filters) = match verb {
        FilterVerb::Set(args) => {
            let mut filters = get(daemon, &args.name)?.filters;
            set(&mut filters, args);
            (&args.name, filters)
        }
        FilterVerb::Clear(args) => {
            let mut filters = get(daemon, &args.name)?.filters;
            clear(&mut filters, args);
            (&args.name, filters)
        }
    };
    let patch = VolumePatch {
        filters: Some(filters),
        ..VolumePatch::default()
    };
    change(daemon, name, &patch, false)
}

fn set(filters: &mut Filters, args: &FilterSetArgs) {
    let mut delay = filters.delay.take().unwrap_or_default();
    let given = |own: Option<Period>| own.or(args.delay).map(Text);
    replace(&mut delay.read, given(args.delay_read));
    replace(&mut delay.write, given(args.delay_write));
    replace(&mut delay.discard, given(args.delay_discard));
    replace(&mut delay.flush, given(args.delay_flush));
    replace(&mut delay.bandwidth, args.delay_bandwidth);
    filters.delay = (delay != DelayFilter::default()).then_some(delay);

    let mut limit = filters.rate_limit.take().unwrap_or_default();
    replace(&mut limit.iops, args.iops);
    replace(&mut limit.read_iops, args.read_iops);
    replace(&mut limit.write_iops, args.write_iops);
    replace(&mut limit.bandwidth, args.bandwidth);
    replace(&mut limit.read_bandwidth, args.read_bandwidth);
    replace(&mut limit.write_bandwidth, args.write_bandwidth);
    filters.rate_limit = (limit != RateLimitFilter::default()).then_some(limit);

    if !args.fault.is_empty() {
        filters.fault = Some(FaultFilter {
            seed: args.fault_seed,
            rules: args.fault.clone(),
        });
    }
}

/// What is not given stays.
fn replace<T>(value: &mut Option<T>, given: Option<T>) {
    if given.is_some() {
        *value = given;
    }
}

fn clear(filters: &mut Filters, args: &FilterClearArgs) {
    let is_meant = |kind| args.filters.is_empty() || args.filters.contains(&kind);
    if is_meant(FilterKind::Delay) {
        filters.delay = None;
    }
    if is_meant(FilterKind::RateLimit) {
        filters.rate_limit = None;
    }
    if is_meant(FilterKind::Fault) {
        filters.fault = None;
    }
}
