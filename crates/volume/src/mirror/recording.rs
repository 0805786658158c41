//! The thread that keeps the record of a mirror.

use std::sync::Arc;
use std::time::{Duration, Instant};

use window::{BackingClient as _, Window};

use super::core::{Core, Way, Windowed};
use super::legs::Legs;
use super::record::Record;
use super::standing::ToRecord;
use crate::managed::Member;
use crate::members::bits;
use crate::mirror_info::RecordError;

/// How often regions are removed from the record in which members do not differ any more.
const FORGET_PERIOD: Duration = Duration::from_secs(5);
/// How long after a failure the record is written again.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the record until the mirror closes.
pub(super) fn run(core: &Core) {
    let Way::Window(Windowed { window, legs, .. }) = core.engine.way() else {
        return;
    };
    while !core.standings.is_closing() {
        let record = core.standings.wait_for_record(FORGET_PERIOD);
        if core.standings.is_undecided() {
            // Hosts try again what cannot begin.
            resume(window, legs, false);
            continue;
        }
        let Some(record) = record.or_else(|| legs.forget()) else {
            continue;
        };
        let is_written = write(core, &record).is_ok();
        if is_written {
            core.standings.recorded(record);
        }
        resume(window, legs, is_written);
        if !is_written {
            core.standings.pause(Instant::now() + RETRY);
        }
    }
}

/// Whether a mirror without a record needs one once `new` is a member.
pub(super) fn is_missing_for(new: &Member, core: &Core) -> bool {
    let is_recorded = core.standings.is_recorded() || core.platform.record.is_none();
    !is_recorded && new.volume.storage().outlives_program()
}

/// Writes the first record of a mirror that had none: members may differ anywhere.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_first(core: &Core) -> Result<(), RecordError> {
    let record = to_write(core, &core.standings.first_record());
    core.recorder.begin(&record, &core.platform)
}

/// Begins what waits for the record, or fails it.
fn resume(window: &Arc<Window>, legs: &Legs, is_recorded: bool) {
    for (id, result) in legs.resume(is_recorded) {
        window.done(id, result.map(|()| &[][..]));
    }
}

/// Writes what the next run has to know, after all threads have ended.
pub(super) fn end(core: &Core) {
    if let Some(record) = core.standings.last_record() {
        // Without it, the next run copies more.
        let _ = write(core, &record);
    }
}

/// Writes what the next run has to know if members are changed meanwhile, after all threads have
/// ended.
pub(super) fn end_for_now(core: &Core) {
    if let Some(mut record) = core.standings.last_record() {
        record.regions.insert_all();
        // Without it, the mirror is offline in the next run until it is removed.
        let _ = write(core, &record);
    }
}

fn write(core: &Core, record: &ToRecord) -> Result<(), RecordError> {
    core.recorder.write(&to_write(core, record))
}

fn to_write(core: &Core, record: &ToRecord) -> Record {
    let names = |members| {
        let names = bits(members).map(|place| core.members.get(place).name.clone());
        names.collect()
    };
    Record {
        members: names(record.members),
        in_sync: names(record.in_sync),
        regions: record.regions.clone(),
    }
}
