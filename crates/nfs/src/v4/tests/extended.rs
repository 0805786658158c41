//! Extended attributes.

use super::*;

// Status codes.
const EXISTS: u32 = 17;
const INVALID: u32 = 22;
const READ_ONLY: u32 = 30;
const NAME_TOO_LONG: u32 = 63;
const BAD_COOKIE: u32 = 10_003;
const NOT_SUPPORTED: u32 = 10_004;
const TOO_SMALL: u32 = 10_005;
const BAD_XDR: u32 = 10_036;
const BAD_CHAR: u32 = 10_040;
const ILLEGAL: u32 = 10_044;
const REPLY_TOO_BIG_TO_CACHE: u32 = 10_067;
const NO_XATTR: u32 = 10_095;
const XATTR_TOO_BIG: u32 = 10_096;

struct Attributes {
    server: TestServer,
    client: Client,
}

impl Attributes {
    /// Of `/db/file`.
    fn new() -> Self {
        let mut server = TestServer::new(tree());
        let mut client = Client::new(&mut server, b"one", 1);
        assert_eq!(client.open(&mut server, b"file", (3, 0)).0, OK);
        Self { server, client }
    }

    fn call(&mut self, operation: &Arguments) -> Reply {
        on_file_2(&mut self.client, &mut self.server, b"file", operation)
    }

    fn set(&mut self, option: u32, name: &[u8], value: &[u8]) -> u32 {
        let set = args().u32(73).u32(option).opaque(name).opaque(value);
        let mut reply = self.call(&set);
        let status = reply.u32();
        if status == OK {
            assert!(reply.bool(), "the change is atomic");
            assert!(reply.u64() < reply.u64());
            reply.end();
        }
        status
    }

    fn get(&mut self, name: &[u8]) -> (u32, Option<Vec<u8>>) {
        let mut reply = self.call(&args().u32(72).opaque(name));
        let status = reply.u32();
        (status, (status == OK).then(|| reply.opaque()))
    }

    fn remove(&mut self, name: &[u8]) -> u32 {
        self.call(&args().u32(75).opaque(name)).u32()
    }

    /// The status, the cookie, the names and whether they are all.
    fn list(&mut self, cookie: u64, bytes: u32) -> (u32, u64, Vec<Vec<u8>>, bool) {
        let mut reply = self.call(&args().u32(74).u64(cookie).u32(bytes));
        let status = reply.u32();
        if status != OK {
            return (status, 0, Vec::new(), false);
        }
        let (cookie, count) = (reply.u64(), reply.u32());
        let names = (0..count).map(|_| reply.opaque()).collect();
        let is_end = reply.bool();
        reply.end();
        (status, cookie, names, is_end)
    }
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    let mut file = Attributes::new();
    assert_eq!(file.get(b"a"), (NO_XATTR, None));
    assert_eq!(file.set(2, b"a", b"1"), NO_XATTR);
    assert_eq!(file.set(1, b"a", b"1"), OK);
    assert_eq!(file.set(1, b"a", b"2"), EXISTS);
    assert_eq!(file.set(2, b"a", b"3"), OK);
    assert_eq!(file.get(b"a"), (OK, Some(b"3".to_vec())));
    assert_eq!(file.set(0, b"b/\xff", b""), OK);
    assert_eq!(file.get(b"b/\xff"), (OK, Some(Vec::new())));
    let names = vec![b"a".to_vec(), b"b/\xff".to_vec()];
    assert_eq!(file.list(0, 1000), (OK, 2, names, true));
    assert_eq!(file.remove(b"a"), OK);
    assert_eq!(file.remove(b"a"), NO_XATTR);
    assert_eq!(file.list(0, 1000), (OK, 1, vec![b"b/\xff".to_vec()], true));
}

#[test]
fn a_list_is_laid_out_as_in_rfc_8276() {
    let mut file = Attributes::new();
    assert_eq!(file.set(0, b"abcde", b"1"), OK);
    let mut reply = file.call(&args().u32(74).u64(0).u32(100));
    let text = |bytes: &[u8; 4]| u32::from_be_bytes(*bytes);
    // OK, the cookie, one name of 5 bytes, and that is all.
    let golden = [0, 0, 1, 1, 5, text(b"abcd"), text(b"e\0\0\0"), 1];
    assert_eq!(reply.words::<8>(), golden);
    reply.end();
}

#[test]
fn a_list_goes_on_where_it_was_full() {
    let mut file = Attributes::new();
    let names: Vec<Vec<u8>> = (0..10_u8).map(|at| vec![b'n', b'0' + at]).collect();
    for name in &names {
        assert_eq!(file.set(0, name, b"value"), OK);
    }
    // Each takes 8 bytes, and what is around them 16.
    let (mut listed, mut cookie, mut calls) = (Vec::new(), 0, 0);
    loop {
        let (status, next, part, is_end) = file.list(cookie, 16 + 3 * 8 + 7);
        assert_eq!((status, part.len() as u64), (OK, next - cookie));
        listed.extend(part);
        (cookie, calls) = (next, calls + 1);
        if is_end {
            break;
        }
    }
    assert_eq!((listed, calls), (names, 4));
    assert_eq!(file.list(10, 100), (OK, 10, Vec::new(), true));
    assert_eq!(file.list(11, 100).0, BAD_COOKIE);
    assert_eq!(file.list(0, 23).0, TOO_SMALL);
    assert_eq!(file.list(10, 15).0, TOO_SMALL);
}

#[test]
fn names_and_values_are_bounded() {
    let mut file = Attributes::new();
    assert_eq!(file.set(0, b"", b""), INVALID);
    assert_eq!(file.set(0, b"a\0", b""), BAD_CHAR);
    assert_eq!(file.set(0, &[b'n'; 251], b""), NAME_TOO_LONG);
    assert_eq!(file.set(0, &[b'n'; 250], b""), OK);
    assert_eq!(file.set(3, b"a", b""), BAD_XDR);
    assert_eq!(file.set(0, b"a", &vec![7; 65_537]), XATTR_TOO_BIG);
    assert_eq!(file.set(0, b"a", &vec![7; 65_536]), OK);
    assert_eq!(file.get(b"a"), (OK, Some(vec![7; 65_536])));
}

#[test]
fn a_file_has_a_bounded_number_of_attributes() {
    let mut file = Attributes::new();
    for number in 0..256_u32 {
        assert_eq!(file.set(0, format!("n{number}").as_bytes(), b""), OK);
    }
    assert_eq!(file.set(0, b"one more", b""), 28, "no space");
    assert_eq!(file.set(0, b"n7", b"another value"), OK);
    assert_eq!(file.remove(b"n8"), OK);
    assert_eq!(file.set(0, b"one more", b""), OK);
}

#[test]
fn only_minor_version_2_has_attributes_and_says_so() {
    let mut file = Attributes::new();
    let Attributes { server, client } = &mut file;
    // supported_attrs, clone_blksize and xattr_support.
    let ask = args().u32(9).u32(3).u32(1).u32(0).u32(1 << 13 | 1 << 18);
    let mut reply = client.on_file(server, b"file", &ask);
    assert_eq!(reply.words::<3>(), [OK, 1, 1]);
    let [_len, words, _, _, third] = reply.words();
    assert_eq!((words, third & (1 << 13 | 1 << 18)), (3, 0));
    let mut reply = client.on_file(server, b"file", &args().u32(72).opaque(b"a"));
    assert_eq!(reply.u32(), ILLEGAL);
    let mut reply = file.call(&ask);
    let third = 1 << 13 | 1 << 18;
    assert_eq!(reply.words::<5>(), [OK, 3, 1, 0, third]);
    let [_len, words, _, _, supported, clone_bytes, has_xattrs] = reply.words();
    assert_eq!((words, supported & third), (3, third));
    assert_eq!((clone_bytes, has_xattrs), (4096, 1));
    // ACCESS of all bits, by root.
    let mut reply = file.call(&args().u32(3).u32(0xfff));
    assert_eq!(reply.words::<3>(), [OK, 0x1ed, 0x1cd]);
    let mut reply = file
        .client
        .on_file(&mut file.server, b"file", &args().u32(3).u32(0xfff));
    assert_eq!(reply.words::<3>(), [OK, 0x2d, 0x0d]);
}

#[test]
fn attributes_of_a_share_that_is_read_only_stay_and_the_root_of_all_has_none() {
    let mut file = Attributes::new();
    assert_eq!(file.set(0, b"a", b"1"), OK);
    file.server.exports[0].options.read_only = true;
    assert_eq!(file.set(0, b"a", b"2"), READ_ONLY);
    assert_eq!(file.remove(b"a"), READ_ONLY);
    assert_eq!(file.get(b"a"), (OK, Some(b"1".to_vec())));
    let Attributes { server, client } = &mut file;
    let get = args().u32(PUTROOTFH).u32(72).opaque(b"a");
    let mut reply = call_2(client, server, 2, &get);
    assert_eq!(result(&mut reply), (PUTROOTFH, OK));
    assert_eq!(result(&mut reply), (72, NOT_SUPPORTED));
}

#[test]
fn a_value_that_does_not_fit_the_reply_is_an_error() {
    let mut file = Attributes::new();
    assert_eq!(file.set(0, b"a", &[7; 5000]), OK);
    let Attributes { server, client } = &mut file;
    // A reply that is to be kept has 2 KiB.
    client.sequence += 1;
    let get = root().u32(15).opaque(b"file").u32(72).opaque(b"a");
    let operations = client.sequenced((0, client.sequence, 1), &get);
    let compound = args().opaque(b"").u32(2).u32(5).raw(&operations.0);
    let mut reply = client.peer.compound(server, compound);
    assert_eq!(head(&mut reply).0, REPLY_TOO_BIG_TO_CACHE);
}
