//! The format of sense data.

use super::*;

/// D_SENSE, in byte 2 of the control mode page.
const D_SENSE: u8 = 0x04;
/// The mode parameter header of MODE SENSE (6) without block descriptors.
const HEADER_BYTES: usize = 4;

/// The control mode page with its header, as MODE SENSE (6) gives it.
fn control_page(bed: &mut SrpBed) -> Vec<u8> {
    let buffer = SrpBed::buffer(0, 64);
    let data = Some((Direction::In, Form::Direct));
    let cdb = [0x1A, 0x08, 0x0A, 0, 64, 0];
    let answer = ask(bed, &command(1, &cdb, data, &[buffer], &[]));
    assert_eq!(answer.header.status, 0);
    let len = usize::from(bed.memory[0]) + 1;
    bed.memory[..len].to_vec()
}

/// The response code of the sense data of a read beyond the end.
fn response_code(bed: &mut SrpBed) -> u8 {
    let answer = ask(bed, &read(2, BLOCKS as u32, 1));
    assert_eq!(answer.header.status, 2);
    answer.data[0]
}

#[test]
fn d_sense_selects_the_format_of_sense_data() {
    let (_, mut bed) = bed();
    assert_eq!(response_code(&mut bed), 0x70);
    let mut list = control_page(&mut bed);
    list[..HEADER_BYTES].fill(0);
    list[HEADER_BYTES + 2] |= D_SENSE;
    let cdb = [0x15, 0x10, 0, 0, list.len() as u8, 0];
    let data = Some((Direction::Out, Form::Immediate));
    let selected = ask(&mut bed, &command(3, &cdb, data, &[], &list));
    assert_eq!(selected.header.status, 0, "{:x?}", selected.data);
    assert_eq!(response_code(&mut bed), 0x72);
    assert_ne!(control_page(&mut bed)[HEADER_BYTES + 2] & D_SENSE, 0);
}
