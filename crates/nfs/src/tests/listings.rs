//! READDIR and READDIRPLUS.

use super::procedure::*;
use super::status::*;
use super::{Setup, args};

/// An entry as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    fileid: u64,
    name: Vec<u8>,
    cookie: u64,
    handle: Option<Vec<u8>>,
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Ask {
    Short { count: u32 },
    Plus { dircount: u32, maxcount: u32 },
}

impl Setup {
    fn list(&mut self, cookie: u64, verifier: u64, ask: Ask) -> Result<(Vec<Listed>, bool), u32> {
        let arguments = args().opaque(&self.root).u64(cookie).u64(verifier);
        let (mut reply, max_bytes) = match ask {
            Ask::Short { count } => (self.call(READDIR, arguments.u32(count)), count),
            Ask::Plus { dircount, maxcount } => {
                let arguments = arguments.u32(dircount).u32(maxcount);
                (self.call(READDIRPLUS, arguments), maxcount)
            }
        };
        let status = reply.u32();
        assert!(reply.after().is_some());
        if status != OK {
            reply.end();
            return Err(status);
        }
        // The reply without its header and status.
        assert!(reply.bytes().len() - 28 <= max_bytes as usize);
        assert_eq!(reply.u64(), 0, "the verifier");
        let mut entries = Vec::new();
        while reply.bool() {
            let (fileid, name, cookie) = (reply.u64(), reply.opaque(), reply.u64());
            let mut handle = None;
            if let Ask::Plus { .. } = ask {
                assert_eq!(reply.after().expect("attributes").fileid, fileid);
                assert!(reply.bool());
                handle = Some(reply.opaque());
            }
            entries.push(Listed {
                fileid,
                name,
                cookie,
                handle,
            });
        }
        let is_end = reply.bool();
        reply.end();
        Ok((entries, is_end))
    }

    fn list_all(&mut self, ask: Ask) -> Vec<Listed> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, is_end) = self.list(cookie, 0, ask).expect("it goes on");
            cookie = entries.last().map_or(cookie, |last| last.cookie);
            all.extend(entries);
            if is_end {
                return all;
            }
        }
    }
}

fn names(entries: &[Listed]) -> Vec<String> {
    let mut names: Vec<_> = entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn every_entry_is_listed_once_in_lists_of_any_size() {
    let mut setup = Setup::new();
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    for index in 0..200 {
        let name = format!("{}{index}", "n".repeat(index % 50));
        setup.create(name.as_bytes(), 0o644);
        expected.push(name);
    }
    expected.sort();
    for ask in [
        Ask::Short { count: u32::MAX },
        Ask::Short { count: 4096 },
        Ask::Short { count: 200 },
        Ask::Plus {
            dircount: u32::MAX,
            maxcount: u32::MAX,
        },
        Ask::Plus {
            dircount: 500,
            maxcount: 32 << 10,
        },
        Ask::Plus {
            dircount: 0,
            maxcount: 4096,
        },
        Ask::Plus {
            dircount: 8192,
            maxcount: 400,
        },
    ] {
        assert_eq!(names(&setup.list_all(ask)), expected);
    }
    let (entries, is_end) = setup
        .list(
            0,
            0,
            Ask::Plus {
                dircount: 200,
                maxcount: 65_536,
            },
        )
        .expect("a list");
    let information: usize = entries
        .iter()
        .map(|entry| 20 + entry.name.len().next_multiple_of(4))
        .sum();
    assert!(information <= 200 && entries.len() >= 4 && !is_end);
    for entry in &entries[2..] {
        let mut reply = setup.call(LOOKUP, setup.entry(&entry.name));
        assert_eq!(reply.u32(), OK);
        assert_eq!(Some(reply.opaque()), entry.handle);
    }
}

#[test]
fn dots_come_first_and_name_directories() {
    let mut setup = Setup::new();
    let root = setup.root.clone();
    let arguments = setup.entry(b"directory").mode(0o755);
    setup.root = setup.created(MKDIR, arguments);
    let ask = Ask::Plus {
        dircount: 4096,
        maxcount: 4096,
    };
    let (entries, is_end) = setup.list(0, 0, ask).expect("a list");
    assert!(is_end);
    let dot = (&b"."[..], 1, setup.root.clone());
    let dot_dot = (&b".."[..], 2, root);
    let listed = entries.iter().map(|entry| {
        let handle = entry.handle.clone().expect("a handle");
        (&entry.name[..], entry.cookie, handle)
    });
    assert!(listed.eq([dot, dot_dot]));
    let ask = Ask::Short { count: 4096 };
    assert_eq!(names(&setup.list(1, 0, ask).expect("a list").0), [".."]);
    assert_eq!(setup.list(2, 0, ask), Ok((vec![], true)));
}

#[test]
fn lists_that_cannot_be_are_refused() {
    let mut setup = Setup::new();
    let file = setup.create(b"file", 0o644);
    // Attributes, verifier and the end take 104 bytes, and "." 28 more.
    assert_eq!(setup.list(0, 0, Ask::Short { count: 131 }), Err(TOOSMALL));
    assert_eq!(setup.list(0, 0, Ask::Short { count: 0 }), Err(TOOSMALL));
    assert_eq!(
        setup
            .list(0, 0, Ask::Short { count: 132 })
            .map(|(list, _)| list.len()),
        Ok(1)
    );
    assert_eq!(
        setup.list(
            0,
            0,
            Ask::Plus {
                dircount: 4096,
                maxcount: 200
            }
        ),
        Err(TOOSMALL)
    );
    assert_eq!(
        setup.list(2, 7, Ask::Short { count: 4096 }),
        Err(BAD_COOKIE)
    );
    // At the start the verifier says nothing.
    assert!(setup.list(0, 7, Ask::Short { count: 4096 }).is_ok());
    setup.root = file;
    assert_eq!(setup.list(0, 0, Ask::Short { count: 4096 }), Err(NOTDIR));
}

#[test]
fn a_directory_that_may_be_read_but_not_searched_is_listed() {
    let mut setup = Setup::new();
    let arguments = setup.entry(b"directory").mode(0o744);
    setup.root = setup.created(MKDIR, arguments);
    setup.create(b"file", 0o644);
    setup.peer.user = (5, 5);
    assert_eq!(
        names(&setup.list_all(Ask::Short { count: 4096 })),
        [".", "..", "file"]
    );
    setup.peer.user = (0, 0);
    let closed = args().opaque(&setup.root).mode(0o700).u32(0);
    assert_eq!(setup.status(SETATTR, closed), OK);
    setup.peer.user = (5, 5);
    assert_eq!(setup.list(0, 0, Ask::Short { count: 4096 }), Err(ACCES));
}
