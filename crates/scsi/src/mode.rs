//! MODE SENSE and MODE SELECT, 6 and 10: caching, control and informational exceptions pages.
//!
//! Read first: SPC-5, "MODE SENSE", "MODE SELECT", "Mode parameters"; SBC-4, "Caching mode page".

use block::{Geometry, WriteCache};

use crate::sense::{Asc, Sense, SenseFormat};

/// What initiators can change; one per logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeState {
    /// D_SENSE: descriptor sense data.
    pub descriptor_sense: bool,
    /// SWP: software write protect.
    pub software_write_protect: bool,
}

impl ModeState {
    /// The format in which sense data are to be given.
    pub fn sense_format(self) -> SenseFormat {
        if self.descriptor_sense {
            SenseFormat::Descriptor
        } else {
            SenseFormat::Fixed
        }
    }
}

const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x1C;
const ALL_PAGES: u8 = 0x3F;
const D_SENSE: u8 = 0x04;
const SWP: u8 = 0x08;
/// Write Cache Enable.
const WCE: u8 = 0x04;

/// PC: which values of the pages are requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
}

/// What the answer is made from.
pub(crate) struct Subject {
    pub(crate) state: ModeState,
    pub(crate) geometry: Geometry,
    /// Locked, or software write protected.
    pub(crate) write_protected: bool,
    pub(crate) write_cache: WriteCache,
}

/// MODE SENSE (6) where `cdb[0]` is 1Ah, else (10).
pub(crate) fn sense(cdb: &[u8; 16], subject: &Subject) -> Result<Vec<u8>, Sense> {
    let six = cdb[0] == 0x1A;
    let values = match cdb[2] >> 6 {
        0 => Values::Current,
        1 => Values::Changeable,
        2 => Values::Default,
        _ => return Err(Sense::illegal(Asc::SAVING_NOT_SUPPORTED)),
    };
    let pages = pages(cdb[2] & 0x3F, cdb[3], values, subject)?;
    let no_descriptors = cdb[1] & 0x08 != 0;
    let long_lba = !six && cdb[1] & 0x10 != 0;
    let descriptor = match (no_descriptors, long_lba) {
        (true, _) => Vec::new(),
        (false, false) => short_descriptor(subject.geometry),
        (false, true) => long_descriptor(subject.geometry),
    };
    // DEVICE-SPECIFIC PARAMETER: WP, DPOFUA.
    let device_specific = 0x10 | if subject.write_protected { 0x80 } else { 0 };
    let body_len = descriptor.len() + pages.len();
    let mut out = if six {
        vec![
            (body_len + 3) as u8,
            0,
            device_specific,
            descriptor.len() as u8,
        ]
    } else {
        let mut header = ((body_len + 6) as u16).to_be_bytes().to_vec();
        header.extend([0, device_specific, u8::from(long_lba), 0]);
        header.extend((descriptor.len() as u16).to_be_bytes());
        header
    };
    out.extend(descriptor);
    out.extend(pages);
    Ok(out)
}

fn short_descriptor(geometry: Geometry) -> Vec<u8> {
    let blocks = u32::try_from(geometry.blocks.0).unwrap_or(u32::MAX);
    let mut out = blocks.to_be_bytes().to_vec();
    out.extend((geometry.block_size.bytes() as u32).to_be_bytes());
    out
}

fn long_descriptor(geometry: Geometry) -> Vec<u8> {
    let mut out = geometry.blocks.0.to_be_bytes().to_vec();
    out.extend([0; 4]);
    out.extend((geometry.block_size.bytes() as u32).to_be_bytes());
    out
}

fn pages(code: u8, subpage: u8, values: Values, subject: &Subject) -> Result<Vec<u8>, Sense> {
    if subpage != 0 && subpage != 0xFF {
        return Err(Sense::invalid_cdb_field(3));
    }
    let wanted: &[u8] = match code {
        ALL_PAGES => &[CACHING, CONTROL, INFORMATIONAL_EXCEPTIONS],
        CACHING => &[CACHING],
        CONTROL => &[CONTROL],
        INFORMATIONAL_EXCEPTIONS => &[INFORMATIONAL_EXCEPTIONS],
        _ => return Err(Sense::invalid_cdb_field(2)),
    };
    Ok(wanted
        .iter()
        .flat_map(|code| page(*code, values, subject.state, subject.write_cache))
        .collect())
}

fn page(code: u8, values: Values, state: ModeState, write_cache: WriteCache) -> Vec<u8> {
    match code {
        CACHING => caching_page(values, write_cache),
        CONTROL => control_page(values, state),
        _ => [&[INFORMATIONAL_EXCEPTIONS, 10][..], &[0; 10]].concat(),
    }
}

/// WCE is that of the volume; initiators cannot change it.
fn caching_page(values: Values, write_cache: WriteCache) -> Vec<u8> {
    let mut page = vec![0; 20];
    page[0] = CACHING;
    page[1] = 18;
    if values != Values::Changeable && write_cache == WriteCache::Volatile {
        page[2] = WCE;
    }
    page
}

fn control_page(values: Values, state: ModeState) -> Vec<u8> {
    let mut page = [0; 12];
    page[0] = CONTROL;
    page[1] = 10;
    let (sense, protect) = match values {
        Values::Current => (state.descriptor_sense, state.software_write_protect),
        Values::Changeable => (true, true),
        Values::Default => (false, false),
    };
    page[2] = if sense { D_SENSE } else { 0 };
    page[4] = if protect { SWP } else { 0 };
    if values != Values::Changeable {
        page[3] = 0x10; // QUEUE ALGORITHM MODIFIER 1: unrestricted reordering
        page[5] = 0x40; // TAS: aborted commands say so
    }
    page.to_vec()
}

/// MODE SELECT (6) where `cdb[0]` is 15h, else (10); the state after it.
pub(crate) fn select(
    cdb: &[u8; 16],
    list: &[u8],
    state: ModeState,
    write_cache: WriteCache,
) -> Result<ModeState, Sense> {
    // PF must be 1 (pages as SPC has them); SP requests saving, which no page supports.
    if cdb[1] & 0x01 != 0 {
        return Err(Sense::invalid_cdb_bit(1, 0));
    }
    if cdb[1] & 0x10 == 0 {
        return Err(Sense::invalid_cdb_bit(1, 4));
    }
    if list.is_empty() {
        return Ok(state);
    }
    let short = Sense::illegal(Asc::PARAMETER_LIST_LENGTH);
    let (header_len, descriptor_len) = if cdb[0] == 0x15 {
        (4, usize::from(*list.get(3).ok_or(short)?))
    } else {
        let bytes = list.get(6..8).ok_or(short)?;
        (8, usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    };
    let mut rest = list.get(header_len + descriptor_len..).ok_or(short)?;
    let mut next = state;
    while !rest.is_empty() {
        let at = (list.len() - rest.len()) as u16;
        let [code, len, ..] = rest else {
            return Err(short);
        };
        let end = 2 + usize::from(*len);
        let page = rest.get(..end).ok_or(short)?;
        next = select_page(code & 0x7F, page, at, next, write_cache)?;
        rest = &rest[end..];
    }
    Ok(next)
}

/// One page of MODE SELECT at byte `at` of the list. A value that cannot be changed must be as it
/// is.
fn select_page(
    code: u8,
    new: &[u8],
    at: u16,
    state: ModeState,
    write_cache: WriteCache,
) -> Result<ModeState, Sense> {
    if !matches!(code, CACHING | CONTROL | INFORMATIONAL_EXCEPTIONS) {
        return Err(Sense::invalid_parameter(at));
    }
    let current = page(code, Values::Current, state, write_cache);
    let changeable = page(code, Values::Changeable, state, write_cache);
    if new.len() != current.len() {
        return Err(Sense::invalid_parameter(at + 1));
    }
    for i in 2..new.len() {
        if (new[i] ^ current[i]) & !changeable[i] != 0 {
            return Err(Sense::invalid_parameter(at + i as u16));
        }
    }
    if code != CONTROL {
        return Ok(state);
    }
    Ok(ModeState {
        descriptor_sense: new[2] & D_SENSE != 0,
        software_write_protect: new[4] & SWP != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{BlockSize, Blocks};

    fn subject(state: ModeState) -> Subject {
        let geometry = Geometry::new(BlockSize::B512, Blocks(2048));
        Subject {
            state,
            geometry,
            write_protected: false,
            write_cache: WriteCache::Absent,
        }
    }

    fn cdb6(page: u8) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[..5].copy_from_slice(&[0x1A, 0, page, 0, 255]);
        cdb
    }

    #[test]
    fn the_write_cache_is_what_the_volume_says_and_cannot_be_changed() {
        let of = |cache, page_control: u8| {
            let subject = Subject {
                write_cache: cache,
                ..subject(ModeState::default())
            };
            let data = sense(&cdb6(page_control << 6 | CACHING), &subject).expect("the page");
            data[data.len() - 20 + 2]
        };
        for (cache, wce) in [(WriteCache::Absent, 0), (WriteCache::Volatile, WCE)] {
            let values = [0, 1, 2].map(|page_control| of(cache, page_control));
            assert_eq!(values, [wce, 0, wce], "current, changeable, default");
        }
        let mut cdb = [0; 16];
        cdb[..2].copy_from_slice(&[0x15, 0x10]);
        let mut list = vec![0, 0, 0, 0, CACHING, 18];
        list.resize(24, 0);
        let state = ModeState::default();
        let refused = select(&cdb, &list, state, WriteCache::Volatile);
        assert_eq!(refused, Err(Sense::invalid_parameter(6)));
        assert_eq!(select(&cdb, &list, state, WriteCache::Absent), Ok(state));
    }

    #[test]
    fn all_pages_come_behind_header_and_descriptor() {
        let data = sense(&cdb6(ALL_PAGES), &subject(ModeState::default())).expect("pages");
        assert_eq!(data.len(), usize::from(data[0]) + 1);
        assert_eq!(data[3], 8);
        assert_eq!(data[4..12], [0, 0, 8, 0, 0, 0, 2, 0]);
        assert_eq!(data[12..14], [CACHING, 18]);
    }

    #[test]
    fn what_mode_select_sets_mode_sense_shows() {
        let mut page = control_page(Values::Current, ModeState::default());
        page[4] |= SWP;
        let list = [&[0, 0, 0, 0][..], &page].concat();
        let mut cdb = [0; 16];
        cdb[..5].copy_from_slice(&[0x15, 0x10, 0, 0, list.len() as u8]);
        let state = select(&cdb, &list, ModeState::default(), WriteCache::Absent)
            .expect("SWP can be changed");
        assert!(state.software_write_protect && !state.descriptor_sense);
        let data = sense(&cdb6(CONTROL), &subject(state)).expect("page");
        assert_eq!(data[12 + 4] & SWP, SWP);
    }

    #[test]
    fn a_value_that_cannot_be_changed_is_refused_at_its_byte() {
        let mut page = control_page(Values::Current, ModeState::default());
        page[5] ^= 0x40;
        let list = [&[0, 0, 0, 0][..], &page].concat();
        let mut cdb = [0; 16];
        cdb[..2].copy_from_slice(&[0x15, 0x10]);
        let refused = select(&cdb, &list, ModeState::default(), WriteCache::Absent);
        assert_eq!(refused, Err(Sense::invalid_parameter(4 + 5)));
    }

    #[test]
    fn cut_lists_are_length_errors_and_saved_values_are_refused() {
        let mut cdb = [0; 16];
        cdb[..2].copy_from_slice(&[0x15, 0x10]);
        let short = Err(Sense::illegal(Asc::PARAMETER_LIST_LENGTH));
        assert_eq!(
            select(&cdb, &[0, 0, 0], ModeState::default(), WriteCache::Absent),
            short
        );
        assert_eq!(
            select(
                &cdb,
                &[0, 0, 0, 0, CONTROL, 10, 0],
                ModeState::default(),
                WriteCache::Absent
            ),
            short
        );
        let saved = sense(&cdb6(0xC0 | CONTROL), &subject(ModeState::default()));
        assert_eq!(saved, Err(Sense::illegal(Asc::SAVING_NOT_SUPPORTED)));
    }
}
