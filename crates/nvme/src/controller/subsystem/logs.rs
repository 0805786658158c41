//! The Get Log Page command.
//!
//! Read first: NVM Express Base 2.0, "Get Log Page command".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::Role;
use super::state::Controller;
use crate::controller::reply::{self, Answer, Failure, Location};
use crate::controller::{ControllerId, Subsystem, Usage};
use crate::wire::log::{
    CommandEffectsLog, FirmwareSlotLog, GetLogPage, OffsetType, RetainEvent, SmartLog, lid,
};
use crate::wire::{Nsid, Sqe, StatusCode, opcode};

/// Composite Temperature, kelvin. Nothing is measured, and no value of the field means that: hosts
/// show 0 as -273 °C, so this is always room temperature.
const TEMPERATURE_K: u16 = 298;

impl Subsystem {
    pub(in crate::controller) fn get_log_page(&mut self, id: ControllerId, sqe: &Sqe) -> Answer {
        let fields = GetLogPage::parse(sqe);
        if fields.offset_type != OffsetType::Bytes {
            return Err(StatusCode::InvalidField.at(Location::CDW14));
        }
        if !fields.offset_bytes.is_multiple_of(4) {
            return Err(StatusCode::InvalidField.at(Location::CDW12));
        }
        if fields.len_bytes > self.config.limits.transfer_max_bytes() {
            return Err(StatusCode::InvalidField.at(Location::CDW10));
        }
        let len = fields.len_bytes as usize;
        let controller = self.controllers.get(&id).ok_or(StatusCode::InternalError)?;
        let (mut bytes, page_bytes) = match &self.role {
            Role::Discovery(directory) if fields.page == lid::DISCOVERY => {
                directory.log(controller, fields.offset_bytes, len)
            }
            _ => window(
                &self.page(controller, &fields, sqe.nsid())?,
                fields.offset_bytes,
                len,
            ),
        };
        if fields.offset_bytes > page_bytes {
            return Err(StatusCode::InvalidField.at(Location::CDW12));
        }
        bytes.resize(len, 0);
        let answer = reply::data(sqe, bytes)?;
        if fields.event == RetainEvent::Clear {
            self.log_was_read(id, fields.page);
        }
        Ok(answer)
    }

    /// A whole log page.
    fn page(
        &self,
        controller: &Controller,
        fields: &GetLogPage,
        nsid: Nsid,
    ) -> Result<Vec<u8>, Failure> {
        match (&self.role, fields.page) {
            (_, lid::SUPPORTED_PAGES) => Ok(self.supported_pages()),
            (_, lid::ERROR) => Ok(controller.errors.page()),
            (Role::Nvm(_), lid::SMART) if nsid != Nsid::NONE && nsid != Nsid::ALL => {
                Err(StatusCode::InvalidField.at(Location::NSID))
            }
            (Role::Nvm(statistics), lid::SMART) => {
                let thresholds_k = controller.features.temperature_thresholds_k();
                Ok(smart(
                    statistics.usage(),
                    controller.errors.count,
                    thresholds_k,
                ))
            }
            (Role::Nvm(_), lid::FIRMWARE_SLOT) => Ok(self.firmware_slot()),
            (Role::Nvm(_), lid::CHANGED_NAMESPACES) => Ok(controller.changed.page()),
            (Role::Nvm(_), lid::COMMAND_EFFECTS) => Ok(command_effects()),
            (Role::Nvm(_), lid::ANA) => self.ana_log(fields.specific),
            (Role::Nvm(_), lid::RESERVATION) => Ok(controller.reservation_notices.page()),
            _ => Err(StatusCode::InvalidLogPage.at(Location::CDW10)),
        }
    }

    fn log_was_read(&mut self, id: ControllerId, page: u8) {
        let Some(controller) = self.controllers.get_mut(&id) else {
            return;
        };
        controller.events.log_was_read(page);
        match page {
            lid::CHANGED_NAMESPACES => controller.changed.clear(),
            lid::RESERVATION => controller.next_reservation_notice(),
            _ => {}
        }
    }

    fn supported_pages(&self) -> Vec<u8> {
        const SUPPORTED: U32 = U32::new(1);
        let pages: &[u8] = match self.role {
            Role::Discovery(_) => &[lid::SUPPORTED_PAGES, lid::ERROR, lid::DISCOVERY],
            Role::Nvm(_) => &[
                lid::SUPPORTED_PAGES,
                lid::ERROR,
                lid::SMART,
                lid::FIRMWARE_SLOT,
                lid::CHANGED_NAMESPACES,
                lid::COMMAND_EFFECTS,
                lid::ANA,
                lid::RESERVATION,
            ],
        };
        let mut page = [U32::ZERO; 256];
        for &supported in pages {
            page[usize::from(supported)] = SUPPORTED;
        }
        page.as_bytes().to_vec()
    }

    fn firmware_slot(&self) -> Vec<u8> {
        let mut page = FirmwareSlotLog::new_zeroed();
        page.active = 1;
        page.revisions[0] = super::identify::padded(&self.config.firmware);
        page.as_bytes().to_vec()
    }
}

/// `len` bytes of `page` from `offset` on, or fewer at its end; and its whole length.
fn window(page: &[u8], offset: u64, len: usize) -> (Vec<u8>, u64) {
    let page_bytes = page.len() as u64;
    let start = offset.min(page_bytes) as usize;
    let end = start.saturating_add(len).min(page.len());
    (page[start..end].to_vec(), page_bytes)
}

/// `thresholds_k` are the over and under temperature thresholds of the host's warnings.
fn smart(usage: Usage, error_entries: u64, thresholds_k: [u16; 2]) -> Vec<u8> {
    /// Data units count thousands of 512 bytes.
    const DATA_UNIT_BYTES: u64 = 512_000;
    let low = |value: u64| [U64::new(value), U64::ZERO];
    let mut page = SmartLog::new_zeroed();
    let [over_k, under_k] = thresholds_k;
    if TEMPERATURE_K >= over_k || TEMPERATURE_K <= under_k {
        page.critical_warning |= SmartLog::TEMPERATURE_WARNING;
    }
    page.temperature_k = U16::new(TEMPERATURE_K);
    page.spare_percent = usage.spare_percent.min(100);
    page.data_units_read = low(usage.read_bytes.div_ceil(DATA_UNIT_BYTES));
    page.data_units_written = low(usage.written_bytes.div_ceil(DATA_UNIT_BYTES));
    page.read_commands = low(usage.read_commands);
    page.write_commands = low(usage.write_commands);
    page.busy_minutes = low(usage.busy_minutes);
    page.power_cycles = low(1);
    page.power_on_hours = low(usage.power_on_hours);
    page.media_errors = low(usage.media_errors);
    page.error_entries = low(error_entries);
    page.as_bytes().to_vec()
}

fn command_effects() -> Vec<u8> {
    const READS: U32 = U32::new(CommandEffectsLog::SUPPORTED);
    const WRITES: U32 = U32::new(CommandEffectsLog::SUPPORTED | CommandEffectsLog::CONTENT_CHANGE);
    let mut page = CommandEffectsLog::new_zeroed();
    for admin in [
        opcode::GET_LOG_PAGE,
        opcode::IDENTIFY,
        opcode::ABORT,
        opcode::SET_FEATURES,
        opcode::GET_FEATURES,
        opcode::ASYNC_EVENT_REQUEST,
        opcode::KEEP_ALIVE,
    ] {
        page.admin[usize::from(admin)] = READS;
    }
    for reads in [
        opcode::FLUSH,
        opcode::READ,
        opcode::COMPARE,
        opcode::VERIFY,
        opcode::RESERVATION_REGISTER,
        opcode::RESERVATION_REPORT,
        opcode::RESERVATION_ACQUIRE,
        opcode::RESERVATION_RELEASE,
    ] {
        page.io[usize::from(reads)] = READS;
    }
    for writes in [
        opcode::WRITE,
        opcode::WRITE_ZEROES,
        opcode::DATASET_MANAGEMENT,
        opcode::COPY,
    ] {
        page.io[usize::from(writes)] = WRITES;
    }
    page.as_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_units_round_up() {
        let usage = Usage {
            read_bytes: 1,
            written_bytes: 512_001,
            ..Usage::default()
        };
        let page = smart(usage, 9, [0xFFFF, 0]);
        assert_eq!((page[32], page[48], page[176]), (1, 2, 9));
    }
}
