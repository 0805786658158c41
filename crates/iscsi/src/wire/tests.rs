use super::command::ScsiCommand;
use super::*;
use zerocopy::IntoBytes;

#[test]
fn a_scsi_command_reads_back_as_it_was_captured() {
    // A READ (10) of one block as Linux's initiator lays it out: F and R, LUN 1, ITT 10000000h, 512
    // bytes.
    let mut bytes = [0; BHS_LEN];
    bytes[0] = 0x01;
    bytes[1] = 0xC1;
    bytes[9] = 1;
    bytes[16] = 0x10;
    bytes[22] = 0x02;
    bytes[27] = 5;
    bytes[31] = 7;
    bytes[32] = 0x28;
    bytes[40] = 1;
    let bhs = Bhs::read_from_bytes(&bytes).expect("48 bytes");
    assert!(bhs.is_final() && !bhs.is_immediate());
    let command: &ScsiCommand = bhs.cast();
    assert!(command.reads() && !command.writes());
    assert_eq!((command.expected_len.get(), command.cmd_sn.get()), (512, 5));
    assert_eq!(parse_lun(command.lun), Some(1));
    assert_eq!(command.as_bytes(), bytes);
}

#[test]
fn the_length_fields_share_a_word() {
    let mut bytes = [0; BHS_LEN];
    bytes[4..8].copy_from_slice(&[2, 0x01, 0x02, 0x03]);
    let bhs = Bhs::read_from_bytes(&bytes).expect("48 bytes");
    assert_eq!((bhs.ahs_len(), bhs.data_segment_len.get()), (8, 0x01_0203));
    assert_eq!(bhs.padded_data_len(), 0x01_0204);
    assert_eq!(U24::new(0xFF01_0203), bhs.data_segment_len);
}

#[test]
fn a_hierarchical_lun_is_not_ours() {
    assert_eq!(parse_lun([0, 5, 0, 0, 0, 0, 0, 0]), Some(5));
    assert_eq!(parse_lun([0x41, 5, 0, 0, 0, 0, 0, 0]), Some(0x105));
    assert_eq!(parse_lun([0, 5, 0, 1, 0, 0, 0, 0]), None);
    assert_eq!(parse_lun([0xC1, 1, 0, 0, 0, 0, 0, 0]), None);
}

#[test]
fn serial_numbers_wrap() {
    assert!(
        sn_before(u32::MAX, 0) && sn_before(1, 2) && !sn_before(2, 2) && !sn_before(0, u32::MAX)
    );
}
