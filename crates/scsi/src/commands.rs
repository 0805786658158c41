//! The commands of the device that are not transfers: what each answers and changes.

use std::sync::Arc;

use block::{ByteRange, Extent};

use crate::copy::{self, CopyList, CopySegment, CopyWork, SegmentEnds};
use crate::device::{Begin, Device, Lun, NexusId, no_unit};
use crate::inquiry;
use crate::mode;
use crate::opcodes::Name;
use crate::report;
use crate::response::Response;
use crate::sanitize::{Sanitize, SanitizeWork};
use crate::sense::{Asc, ScsiStatus, Sense, SenseKey};

impl Device {
    /// Executes a command that is not a medium command; `Ok` is its data-in.
    pub(crate) fn command(
        &mut self,
        id: NexusId,
        lun: Lun,
        name: Name,
        cdb: &[u8; 16],
        list: &[u8],
    ) -> Result<Vec<u8>, Response> {
        let check = Response::check;
        let be16 = |at: usize| usize::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
        let be32 = |at: usize| be16(at) << 16 | be16(at + 2);
        match name {
            // An EXTENDED COPY without a list copies nothing; one with a list is a `CopyWork`.
            Name::TestUnitReady | Name::ExtendedCopy => Ok(Vec::new()),
            Name::RequestSense => Ok(cut(self.request_sense(id, lun, cdb), cdb[4].into())),
            Name::Inquiry => Ok(cut(self.inquiry(id, lun, cdb).map_err(check)?, be16(3))),
            Name::ModeSense6 => Ok(cut(
                self.mode_sense(lun, cdb).map_err(check)?,
                cdb[4].into(),
            )),
            Name::ModeSense10 => Ok(cut(self.mode_sense(lun, cdb).map_err(check)?, be16(7))),
            Name::ModeSelect6 | Name::ModeSelect10 => self.mode_select(id, lun, cdb, list),
            Name::Reserve6 => self.reserve_6(id, lun),
            Name::Release6 => {
                self.release_6(id, lun);
                Ok(Vec::new())
            }
            Name::StartStopUnit => self.start_stop(lun, cdb),
            Name::PreventAllow => self.prevent_allow(id, lun, cdb),
            Name::ReadCapacity10 => {
                Ok(report::read_capacity_10(self.units[&lun].volume.geometry()))
            }
            Name::ReadCapacity16 => {
                let data = report::read_capacity_16(self.units[&lun].volume.geometry());
                Ok(cut(data, be32(10)))
            }
            Name::GetLbaStatus => Ok(cut(self.get_lba_status(lun, cdb).map_err(check)?, be32(10))),
            Name::ReadDefectData10 => Ok(cut(report::defects_10(cdb), be16(7))),
            Name::ReadDefectData12 => Ok(cut(report::defects_12(cdb), be32(6))),
            Name::PersistentReserveIn => Ok(cut(self.persistent_in(lun, cdb), be16(7))),
            Name::PersistentReserveOut => self.persistent_out(id, lun, cdb, list),
            Name::ReceiveCopyResults => Ok(cut(
                self.receive_copy_results(id, cdb).map_err(check)?,
                be32(10),
            )),
            Name::ReportLuns => Ok(cut(self.report_luns(id, cdb).map_err(check)?, be32(6))),
            Name::ReportTargetPortGroups => Ok(cut(
                report::target_port_groups(&self.ports, self.units[&lun].path, cdb[1] >> 5),
                be32(6),
            )),
            Name::ReportSupportedOpcodes => {
                Ok(cut(report::supported_opcodes(cdb).map_err(check)?, be32(6)))
            }
            Name::ReportTaskManagement => {
                Ok(cut(report::task_management(cdb[2] & 0x80 != 0), be32(6)))
            }
            other => unreachable!("{other:?} is a medium command; dispatch keeps those"),
        }
    }

    /// Commands to a LUN that does not exist: only INQUIRY, REPORT LUNS and REQUEST SENSE succeed.
    pub(crate) fn without_unit(
        &mut self,
        id: NexusId,
        cdb: &[u8; 16],
    ) -> Result<Response, Response> {
        let be16 = |at: usize| usize::from(u16::from_be_bytes([cdb[at], cdb[at + 1]]));
        match cdb[0] {
            0x12 if cdb[1] & 1 == 0 && cdb[2] == 0 => {
                Ok(Response::data(cut(inquiry::standard(false), be16(3))))
            }
            0x12 => Err(Response::check(Sense::invalid_cdb_field(2))),
            0xA0 => {
                let luns = self.report_luns(id, cdb).map_err(Response::check)?;
                Ok(Response::data(cut(luns, be16(6) << 16 | be16(8))))
            }
            _ => Err(no_unit(cdb)),
        }
    }

    /// REQUEST SENSE: a waiting unit attention as data, which clears it; else how far a sanitize
    /// operation is.
    fn request_sense(&mut self, id: NexusId, lun: Lun, cdb: &[u8; 16]) -> Vec<u8> {
        let asc = self
            .nexuses
            .get_mut(&id)
            .and_then(|nexus| nexus.take_attention(lun));
        let sense = if let Some(asc) = asc {
            self.touch();
            Sense::new(SenseKey::UnitAttention, asc)
        } else {
            let sanitize = self.units.get(&lun).and_then(|unit| unit.sanitize.as_ref());
            let sense = sanitize.and_then(Sanitize::sense);
            sense.unwrap_or(Sense::new(SenseKey::NoSense, Asc::NONE))
        };
        let descriptor = cdb[1] & 1 != 0;
        let format = if descriptor {
            crate::sense::SenseFormat::Descriptor
        } else {
            crate::sense::SenseFormat::Fixed
        };
        sense.encode(format).as_slice().to_vec()
    }

    fn inquiry(&self, id: NexusId, lun: Lun, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
        if cdb[1] & 0x01 == 0 {
            let page_without_evpd = cdb[2] != 0;
            return if page_without_evpd {
                Err(Sense::invalid_cdb_field(2))
            } else {
                Ok(inquiry::standard(true))
            };
        }
        let (nexus, unit) = (&self.nexuses[&id], &self.units[&lun]);
        let through = |port: &&inquiry::TargetPort| port.relative_id == nexus.ports.target_port;
        let unknown = inquiry::TargetPort {
            relative_id: 0,
            protocol: inquiry::PortProtocol::Iscsi,
            name: String::new(),
            group: 0,
        };
        let subject = inquiry::Subject {
            identity: &unit.identity,
            geometry: unit.volume.geometry(),
            write_cache: unit.volume.write_cache(),
            device_name: &self.name,
            port: self.ports.iter().find(through).unwrap_or(&unknown),
            ports: &self.ports,
            path: unit.path,
        };
        inquiry::vital_product_data(cdb[2], &subject)
    }

    fn mode_sense(&self, lun: Lun, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
        let unit = &self.units[&lun];
        let subject = mode::Subject {
            state: unit.mode,
            geometry: unit.volume.geometry(),
            write_protected: unit.mode.software_write_protect || unit.volume.is_read_only(),
            write_cache: unit.volume.write_cache(),
        };
        mode::sense(cdb, &subject)
    }

    fn mode_select(
        &mut self,
        id: NexusId,
        lun: Lun,
        cdb: &[u8; 16],
        list: &[u8],
    ) -> Result<Vec<u8>, Response> {
        let unit = self.units.get_mut(&lun).ok_or_else(|| no_unit(cdb))?;
        let write_cache = unit.volume.write_cache();
        let next = mode::select(cdb, list, unit.mode, write_cache).map_err(Response::check)?;
        if next != unit.mode {
            unit.mode = next;
            self.attend_all(lun, Asc::MODE_PARAMETERS_CHANGED, Some(id));
        }
        Ok(Vec::new())
    }

    fn reserve_6(&mut self, id: NexusId, lun: Lun) -> Result<Vec<u8>, Response> {
        let conflict = Response::status(ScsiStatus::ReservationConflict);
        let unit = self
            .units
            .get_mut(&lun)
            .expect("dispatch has looked the unit up");
        // Both kinds of reservation exclude each other (SPC-2 and SPC-3, exceptions to SPC-2
        // reservations).
        if !unit.reservations.registrations.is_empty() {
            return Err(conflict);
        }
        unit.reserved_by = Some(id);
        self.touch();
        Ok(Vec::new())
    }

    fn release_6(&mut self, id: NexusId, lun: Lun) {
        let unit = self
            .units
            .get_mut(&lun)
            .expect("dispatch has looked the unit up");
        if unit.reserved_by == Some(id) {
            unit.reserved_by = None;
            self.touch();
        }
    }

    fn start_stop(&mut self, lun: Lun, cdb: &[u8; 16]) -> Result<Vec<u8>, Response> {
        let unit = self
            .units
            .get_mut(&lun)
            .expect("dispatch has looked the unit up");
        let (power_condition, start, load_eject) = (cdb[4] >> 4, cdb[4] & 1 != 0, cdb[4] & 2 != 0);
        if power_condition != 0 {
            return Ok(Vec::new()); // A disk in RAM has one power condition: active.
        }
        if load_eject && !start && !unit.removal_prevented.is_empty() {
            let sense = Sense::illegal(Asc::REMOVAL_PREVENTED);
            return Err(Response::check(sense));
        }
        // The medium is not removable: LOEJ changes nothing.
        if !load_eject {
            unit.stopped = !start;
            self.touch();
        }
        Ok(Vec::new())
    }

    fn prevent_allow(
        &mut self,
        id: NexusId,
        lun: Lun,
        cdb: &[u8; 16],
    ) -> Result<Vec<u8>, Response> {
        let unit = self
            .units
            .get_mut(&lun)
            .expect("dispatch has looked the unit up");
        match cdb[4] & 0x03 {
            0 => unit.removal_prevented.retain(|other| *other != id),
            1 if !unit.removal_prevented.contains(&id) => unit.removal_prevented.push(id),
            1 => {}
            _ => return Err(Response::check(Sense::invalid_cdb_bit(4, 1))),
        }
        Ok(Vec::new())
    }

    fn get_lba_status(&self, lun: Lun, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
        let mut lba = [0; 8];
        lba.copy_from_slice(&cdb[2..10]);
        let lba = u64::from_be_bytes(lba);
        let volume = &self.units[&lun].volume;
        let geometry = volume.geometry();
        if lba >= geometry.blocks.0 {
            return Err(Sense::illegal(Asc::LBA_OUT_OF_RANGE));
        }
        let shift = geometry.block_size.shift();
        let range = ByteRange {
            offset: lba << shift,
            len: (geometry.blocks.0 - lba) << shift,
        };
        let run = volume.allocation(range);
        let blocks = (run.len_bytes >> shift).clamp(1, u64::from(u32::MAX)) as u32;
        let mut data = vec![0; 24];
        data[3] = 20; // PARAMETER DATA LENGTH
        data[8..16].copy_from_slice(&lba.to_be_bytes());
        data[16..20].copy_from_slice(&blocks.to_be_bytes());
        data[20] = u8::from(!run.allocated); // PROVISIONING STATUS: 0 mapped, 1 deallocated
        Ok(data)
    }

    fn report_luns(&mut self, id: NexusId, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
        let luns: Vec<Lun> = self.seen_by(id).iter().map(|(lun, _)| *lun).collect();
        let Some(nexus) = self.nexuses.get_mut(&id) else {
            return Err(Sense::illegal(Asc::LUN_NOT_SUPPORTED));
        };
        let data = report::luns(cdb[2], &luns)?;
        nexus.clear_attention(Asc::LUNS_CHANGED);
        self.touch();
        Ok(data)
    }

    /// SANITIZE, whose CDB was checked: begins an operation, or exits failure mode.
    pub(crate) fn begin_sanitize(
        &mut self,
        lun: Lun,
        extent: Extent,
        cdb: &[u8; 16],
    ) -> Result<Begin, Response> {
        let invalid_cdb = || Response::check(Sense::invalid_cdb_bit(1, 4));
        let unit = self.units.get_mut(&lun).ok_or_else(|| no_unit(cdb))?;
        if extent.blocks.0 == 0 {
            if unit
                .sanitize
                .as_ref()
                .is_some_and(|failed| !failed.may_be_left())
            {
                return Err(invalid_cdb());
            }
            unit.sanitize = None;
            self.touch();
            return Ok(Begin::Done(Response::good()));
        }
        let volume = Arc::clone(&unit.volume);
        let (work, sanitize) = SanitizeWork::new(cdb, extent, volume, unit.sanitize.as_ref());
        unit.sanitize = Some(sanitize);
        self.touch();
        Ok(Begin::Sanitize(work))
    }

    /// Begins an EXTENDED COPY; `None` if there is nothing to copy. RECEIVE COPY RESULTS reports it
    /// from now on.
    pub(crate) fn begin_copy(
        &mut self,
        id: NexusId,
        list: &[u8],
    ) -> Result<Option<CopyWork>, Sense> {
        let Some(list) = copy::parse(list)? else {
            return Ok(None);
        };
        let segments = list.segments.iter();
        let ends = segments.map(|segment| self.segment_ends(id, &list, segment));
        let copy = CopyWork::new(list.list_id, ends.collect());
        if let Some(nexus) = self.nexuses.get_mut(&id) {
            nexus.last_copy = Some(copy.record());
        }
        Ok(Some(copy))
    }

    /// The ends of one segment. Both must be visible to the nexus and free for it.
    fn segment_ends(
        &self,
        id: NexusId,
        list: &CopyList,
        segment: &CopySegment,
    ) -> Result<SegmentEnds, Sense> {
        let source = self.copy_end(id, list, segment.source)?;
        let destination = self.copy_end(id, list, segment.destination)?;
        if !source.reads || !destination.writes || destination.volume.is_read_only() {
            return Err(copy::copy_target_unreachable());
        }
        SegmentEnds::new(segment, source.volume, destination.volume)
    }

    /// The view of the logical unit that target `index` of a copy list names.
    fn copy_end(
        &self,
        id: NexusId,
        list: &CopyList,
        index: usize,
    ) -> Result<crate::device::View, Sense> {
        let target = list.targets[index];
        let unreachable = copy::copy_target_unreachable;
        let named = |device_lun: &Lun| {
            self.units
                .get(device_lun)
                .is_some_and(|unit| unit.identity.naa == target.naa)
        };
        let seen = self.seen_by(id);
        let lun = seen.iter().find(|(_, to)| named(to));
        let view = lun
            .and_then(|(lun, _)| self.view(id, *lun))
            .ok_or_else(unreachable)?;
        let block_len = view.volume.geometry().block_size.bytes();
        if target.block_len != 0 && u64::from(target.block_len) != block_len {
            return Err(unreachable());
        }
        Ok(view)
    }

    /// Checks that the nexus still sees all logical units that a copy has to read or write.
    ///
    /// # Errors
    /// The copy ends with the sense data.
    pub fn check_copy(&self, id: NexusId, copy: &CopyWork) -> Result<(), Sense> {
        let seen = self.seen_by(id);
        let volumes: Vec<_> = seen
            .iter()
            .map(|(_, lun)| &self.units[lun].volume)
            .collect();
        let is_seen = |volume| volumes.iter().any(|seen| Arc::ptr_eq(seen, volume));
        if copy.volumes().all(is_seen) {
            Ok(())
        } else {
            Err(copy::copy_target_unreachable())
        }
    }

    fn receive_copy_results(&self, id: NexusId, cdb: &[u8; 16]) -> Result<Vec<u8>, Sense> {
        if cdb[1] & 0x1F == 0x03 {
            return Ok(copy::operating_parameters());
        }
        let last = self
            .nexuses
            .get(&id)
            .and_then(|nexus| nexus.last_copy.as_ref());
        last.filter(|record| record.list_id() == cdb[2])
            .map(|record| record.status())
            .ok_or(Sense::invalid_cdb_field(2))
    }
}

/// Cuts data-in to the allocation length.
pub(crate) fn cut(mut data: Vec<u8>, allocation_len: usize) -> Vec<u8> {
    data.truncate(allocation_len);
    data
}
