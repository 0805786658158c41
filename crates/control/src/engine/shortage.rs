//! What the memory budget rejected: writes that failed, connections that were rejected, and volumes
//! that are larger than the budget. Each kind is logged at most once per [`LINE_INTERVAL`], with
//! the number of events since the last line.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use server::VolumeName;
use volume::VolumeKind;

use super::Engine;
use super::lost::first_names;
use crate::definitions::Volume;

/// The minimum time between two lines of one kind.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// What was logged.
#[derive(Debug, Default)]
pub(crate) struct ShortageLog {
    writes: Logged,
    connections: Logged,
    /// Volumes that are larger than the budget.
    oversized: BTreeSet<VolumeName>,
}

/// The value of a counter when it was last logged.
#[derive(Debug, Default)]
struct Logged {
    count: u64,
    at: Option<Instant>,
}

impl ShortageLog {
    /// Logs what is new.
    pub(crate) fn report(&mut self, engine: &Engine, now: Instant) {
        let capacity = engine.capacity();
        let (budget_bytes, used_bytes) = (capacity.budget_bytes, capacity.used_bytes);
        if let Some(count) = self.writes.due(capacity.failed_writes, now) {
            tracing::warn!(
                count,
                used_bytes,
                budget_bytes,
                "writes failed because the memory budget is used up; remove or erase volumes, or raise --memory"
            );
        }
        if let Some(count) = self.connections.due(capacity.rejected_connections, now) {
            tracing::warn!(
                count,
                used_bytes,
                budget_bytes,
                "connections were rejected because the memory budget is used up; remove or erase volumes, or raise --memory"
            );
        }
        let oversized = engine.oversized_volumes();
        let new: BTreeSet<_> = oversized.difference(&self.oversized).cloned().collect();
        if !new.is_empty() {
            tracing::warn!(
                count = new.len(),
                volumes = first_names(&new),
                budget_bytes,
                "thin volumes are larger than the memory budget; writes fail when it is used up"
            );
        }
        self.oversized = oversized;
    }
}

impl Logged {
    /// The number of new events, if a line is due.
    fn due(&mut self, count: u64, now: Instant) -> Option<u64> {
        let is_early = |at| now.saturating_duration_since(at) < LINE_INTERVAL;
        if count == self.count || self.at.is_some_and(is_early) {
            return None;
        }
        self.at = Some(now);
        Some(count.wrapping_sub(std::mem::replace(&mut self.count, count)))
    }
}

impl Engine {
    /// Volumes that would take more than the memory budget if they were full.
    pub(super) fn oversized_volumes(&self) -> BTreeSet<VolumeName> {
        let budget_bytes = self.server().capacity().budget_bytes;
        let definitions = self.read();
        let volumes = definitions.volumes.iter();
        let oversized = volumes.filter(|(_, volume)| memory_when_full(volume) > budget_bytes);
        oversized.map(|(name, _)| name.0.clone()).collect()
    }
}

/// What a volume takes of the memory budget when it is full, in bytes, besides its bookkeeping.
pub(super) fn memory_when_full(volume: &Volume) -> u64 {
    match &volume.kind.0 {
        VolumeKind::Ram { .. } | VolumeKind::Snapshot { .. } | VolumeKind::Clone { .. } => {
            volume.size.0
        }
        VolumeKind::Cache { settings, .. } => settings.size.0,
        VolumeKind::File { .. }
        | VolumeKind::Remote { .. }
        | VolumeKind::Linear { .. }
        | VolumeKind::Stripe { .. }
        | VolumeKind::Mirror { .. }
        // It is memory of several nodes, whose cluster has placed it.
        | VolumeKind::Replicated { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_logged_at_once_and_then_together_once_per_interval() {
        let (mut logged, start) = (Logged::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(logged.due(0, after(0)), None);
        assert_eq!(logged.due(3, after(5)), Some(3));
        assert_eq!(logged.due(3, after(10)), None);
        assert_eq!(logged.due(9, after(64)), None);
        assert_eq!(logged.due(10, after(65)), Some(7));
        assert_eq!(logged.due(10, after(600)), None);
        assert_eq!(logged.due(11, after(605)), Some(1));
    }
}
