//! Golden bytes of fattr4.

use super::*;

fn changes(words: &[u32]) -> Result<(AttributeChanges, Bitmap), Status4> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    read_changes(&mut Reader::new(&bytes))
}

#[test]
fn changes_are_read_in_the_order_of_their_numbers() {
    // size, mode, owner "7", time_modify_set to 5 s 6 ns.
    let owner = u32::from_be_bytes(*b"7\0\0\0");
    let words = [2, 0x10, 0x40_0012, 36, 1, 2, 0o644, 1, owner, 1, 0, 5, 6];
    let (read, _) = changes(&words).expect("it is well-formed");
    let expected = AttributeChanges {
        mode: Some(Mode::new(0o644)),
        uid: Some(7),
        size_bytes: Some(1 << 32 | 2),
        modified: Some(TimeChange::To(Timestamp {
            seconds: 5,
            nanoseconds: 6,
        })),
        ..AttributeChanges::default()
    };
    assert_eq!(read, expected);
}

#[test]
fn changes_that_cannot_be_made_have_the_statuses_of_rfc_8881() {
    let failure = |words: &[u32]| changes(words).expect_err("it fails");
    // acl, type, a mode with other bits, an owner that is a name, values that are cut off or too
    // long.
    assert_eq!(failure(&[1, 1 << 12, 0]), Status4::AttributeNotSupported);
    assert_eq!(failure(&[1, 2, 4, 1]), Status4::Invalid);
    assert_eq!(failure(&[2, 0, 2, 4, 0o10_000]), Status4::Invalid);
    let name = u32::from_be_bytes(*b"root");
    assert_eq!(failure(&[2, 0, 16, 8, 4, name]), Status4::BadOwner);
    assert_eq!(failure(&[2, 0, 2, 0]), Status4::BadXdr);
    assert_eq!(failure(&[2, 0, 2, 8, 0, 0]), Status4::BadXdr);
    assert_eq!(failure(&[17]), Status4::BadXdr);
}

#[test]
fn owners_are_decimal_numbers() {
    for (id, name) in [(0, &b"0"[..]), (1000, b"1000"), (u32::MAX, b"4294967295")] {
        let mut bytes = Vec::new();
        write_owner(id, &mut Writer::new(&mut bytes));
        assert_eq!(Reader::new(&bytes).opaque(10), Ok(name));
        assert_eq!(read_owner(&mut Reader::new(&bytes)), Ok(id));
    }
}
