//! What caches did.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::{Labels, encode_count};
use crate::engine::{CacheView, VolumeView};

/// A figure of a cache: name, help, value.
type Figure = (&'static str, &'static str, fn(&CacheView) -> u64);

/// A count of commands: their kind, their result, value.
type Commands = (&'static str, &'static str, fn(&CacheView) -> u64);

const COMMANDS: [Commands; 6] = [
    ("read", "hit", |of| of.read_hits),
    ("read", "partial_hit", |of| of.read_partial_hits),
    ("read", "miss", |of| of.read_misses),
    ("write", "hit", |of| of.write_hits),
    ("write", "partial_hit", |of| of.write_partial_hits),
    ("write", "miss", |of| of.write_misses),
];

/// By kind: `read` or `write`.
type ByKind = (&'static str, &'static str, [fn(&CacheView) -> u64; 2]);

const BY_KIND: [ByKind; 2] = [
    (
        "ramport_volume_cache_bypassed",
        "Commands of sequential streams, which left nothing in the cache; they count as hits or misses, too",
        [|of| of.read_bypassed, |of| of.write_bypassed],
    ),
    (
        "ramport_volume_cache_slower_bytes",
        "Bytes read from or written to the volume behind the cache",
        [|of| of.slower_read_bytes, |of| of.slower_written_bytes],
    ),
];

const COUNTS: [Figure; 3] = [
    (
        "ramport_volume_cache_evictions",
        "Blocks of the cache that made room for others",
        |of| of.evictions,
    ),
    (
        "ramport_volume_cache_write_backs",
        "Blocks of the cache that were written in the background",
        |of| of.write_backs,
    ),
    (
        "ramport_volume_cache_failed_write_backs",
        "Writes in the background that failed; they are tried again",
        |of| of.failed_write_backs,
    ),
];

const GAUGES: [Figure; 2] = [
    (
        "ramport_volume_cache_resident_bytes",
        "Memory of blocks that are in the cache",
        |of| of.resident_bytes,
    ),
    (
        "ramport_volume_cache_dirty_bytes",
        "Memory of blocks whose contents the volume behind the cache does not have yet",
        |of| of.dirty_bytes,
    ),
];

/// Encodes every cache among `volumes`. Without caches there is nothing.
pub(super) fn encode(volumes: &[VolumeView], encoder: &mut DescriptorEncoder) -> fmt::Result {
    let caches = volumes.iter().filter_map(|of| Some((&of.name, of.cache?)));
    let caches: Vec<(&String, CacheView)> = caches.collect();
    if caches.is_empty() {
        return Ok(());
    }
    let labels = |name: &String, more: &[(&'static str, &str)]| -> Labels {
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        [("volume", name.clone())].into_iter().chain(more).collect()
    };
    let (name, help) = (
        "ramport_volume_cache_commands",
        "Commands by how much of what they touch was in the cache",
    );
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (name, cache) in &caches {
        for (kind, result, value) in COMMANDS {
            let labels = labels(name, &[("kind", kind), ("result", result)]);
            encode_count(&mut metric, &labels, value(cache))?;
        }
    }
    for (name, help, values) in BY_KIND {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (name, cache) in &caches {
            for (kind, value) in ["read", "write"].into_iter().zip(values) {
                encode_count(&mut metric, &labels(name, &[("kind", kind)]), value(cache))?;
            }
        }
    }
    for (name, help, value) in COUNTS {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (name, cache) in &caches {
            encode_count(&mut metric, &labels(name, &[]), value(cache))?;
        }
    }
    for (name, help, value) in GAUGES {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (name, cache) in &caches {
            metric
                .encode_family(&labels(name, &[]))?
                .encode_gauge(&value(cache))?;
        }
    }
    Ok(())
}
