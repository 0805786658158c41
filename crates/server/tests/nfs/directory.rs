//! A share in a directory of the machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::client::{INVAL, NOTDIR};
use super::*;

const SEARCH_TRIES_MAX: u32 = 100;

/// A directory that is removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let name = format!("ramport-nfs-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    pub(super) fn share(&self) -> ShareDefinition {
        directory("pub", &self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn directory(name: &str, path: &Path) -> ShareDefinition {
    ShareDefinition {
        kind: ShareKind::Dir { path: path.into() },
        ..share(name)
    }
}

#[test]
fn files_of_a_directory_are_served_and_their_handles_outlast_the_server() {
    let folder = Folder::new("served");
    let data = pattern(300_000);
    let (root, file) = {
        let it = Fixture::new(256 * MIB);
        it.server.create_share(folder.share()).expect("a new share");
        let (mut client, root) = it.mounted("/pub");
        let file = client.create(&root, "table").expect("a new file");
        client.write(&file, 0, &data).expect("written");
        assert_eq!(client.read(&file, 0, 1 << 20), Ok(data.clone()));
        (root, file)
    };
    assert_eq!(fs::read(folder.0.join("table")).expect("it is there"), data);
    let it = Fixture::new(256 * MIB);
    it.server.create_share(folder.share()).expect("a new share");
    let mut client = it.client();
    assert_eq!(client.read(&file, 0, 1 << 20), Ok(data));
    assert_eq!(client.lookup(&root, "table"), Ok(file.clone()));
    // An altered handle names no file.
    let mut altered = file.clone();
    *altered.last_mut().expect("a handle") ^= 1;
    assert_eq!(client.getattr(&altered), STALE);
    it.server
        .remove_share(&name_of("pub"), Force::Yes)
        .expect("removed");
    assert_eq!(client.getattr(&file), STALE);
    assert!(folder.0.join("table").exists(), "its files stay");
}

#[test]
fn clients_do_not_leave_a_directory() {
    let folder = Folder::new("confined");
    let inside = folder.0.join("inside");
    fs::create_dir(&inside).expect("a directory");
    fs::write(folder.0.join("secret"), "secret").expect("a file");
    symlink("..", inside.join("up")).expect("a link");
    symlink("/", inside.join("root")).expect("a link");
    let it = Fixture::new(256 * MIB);
    it.server
        .create_share(directory("pub", &inside))
        .expect("a new share");
    let (mut client, root) = it.mounted("/pub");
    for link in ["up", "root"] {
        let link = client.lookup(&root, link).expect("the link itself");
        assert_eq!(client.lookup(&link, "secret"), Err(NOTDIR));
        assert_eq!(client.lookup(&link, "etc"), Err(NOTDIR));
        assert_eq!(client.create(&link, "new"), Err(NOTDIR));
    }
    assert_eq!(client.lookup(&root, ".."), Ok(root.clone()));
    for name in ["../secret", "/etc", "up/secret", "a\0b", ""] {
        assert_eq!(client.lookup(&root, name), Err(ACCES), "{name:?}");
        assert_eq!(client.create(&root, name), Err(ACCES), "{name:?}");
    }
    assert_eq!(it.mounted_path("/pub/up"), Err(NOTDIR));
    assert!(!folder.0.join("new").exists());
}

#[test]
fn a_directory_that_cannot_be_served_is_refused() {
    let folder = Folder::new("refused");
    let it = Fixture::new(256 * MIB);
    let refused = |path: &Path| it.server.create_share(directory("other", path));
    let missing = refused(&folder.0.join("missing"));
    assert!(matches!(missing, Err(ServerError::SharePath { .. })));
    fs::write(folder.0.join("file"), "").expect("a file");
    let file = refused(&folder.0.join("file"));
    assert!(matches!(file, Err(ServerError::SharePath { .. })));
    it.server.create_share(folder.share()).expect("a new share");
    let parent = folder.0.parent().expect("it has one");
    for path in [&folder.0, parent] {
        let nested = refused(path);
        assert!(matches!(nested, Err(ServerError::ShareOverlaps { .. })));
    }
    let erased = it.server.erase_share(&name_of("pub"), Force::Yes);
    assert!(matches!(erased, Err(ServerError::ShareNotErasable { .. })));
}

#[test]
fn a_directory_that_was_missing_at_the_start_is_served_once_it_is_there() {
    let folder = Folder::new("missing");
    let path = folder.0.join("late");
    let it = Fixture::new(256 * MIB);
    let late = directory("late", &path);
    it.server.restore_share(late.clone()).expect("unavailable");
    let problem = it.share("late").problem.expect("a problem");
    assert!(
        problem.contains("does not exist; choose an existing directory"),
        "{problem}"
    );
    assert_eq!(it.mounted_path("/late"), Err(NOENT));
    assert!(it.mounted_path("/db").is_ok(), "others are served");
    assert_eq!(it.server.retry_shares(), []);
    it.server.change_share(late).expect("still unavailable");
    assert!(it.share("late").problem.is_some());
    fs::create_dir(&path).expect("a directory");
    fs::write(path.join("file"), "data").expect("a file");
    assert_eq!(it.server.retry_shares(), [name_of("late")]);
    assert_eq!(it.share("late").problem, None);
    let (mut client, root) = it.mounted("/late");
    let file = client.lookup(&root, "file").expect("a file");
    assert_eq!(client.read(&file, 0, 100), Ok(b"data".to_vec()));
}

#[test]
fn special_files_are_neither_opened_nor_waited_for() {
    let folder = Folder::new("special");
    let fifo = folder.0.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("it runs").success());
    let socket = std::os::unix::net::UnixListener::bind(folder.0.join("socket"));
    let _socket = socket.expect("a socket");
    let it = Fixture::new(256 * MIB);
    it.server.create_share(folder.share()).expect("a new share");
    let (mut client, root) = it.mounted("/pub");
    for name in ["fifo", "socket"] {
        let file = client.lookup(&root, name).expect("it is listed");
        assert_eq!(client.getattr(&file), 0);
        // Opening a pipe for reading would wait for its writer.
        assert_eq!(client.read(&file, 0, 100), Err(INVAL), "{name}");
        assert_eq!(client.write(&file, 0, b"data"), Err(INVAL), "{name}");
    }
}

#[test]
fn handles_are_of_their_share_and_of_one_life_of_a_file() {
    let (first, second) = (Folder::new("first"), Folder::new("second"));
    let it = Fixture::new(256 * MIB);
    for (name, folder) in [("first", &first), ("second", &second)] {
        fs::write(folder.0.join("file"), name).expect("a file");
        let share = directory(name, &folder.0);
        it.server.create_share(share).expect("a new share");
    }
    let (mut client, root) = it.mounted("/first");
    let (_, other_root) = it.mounted("/second");
    let file = client.lookup(&root, "file").expect("a file");
    // The file's number with the other share's ID.
    let mixed = [&other_root[..16], &file[16..]].concat();
    assert_eq!(client.getattr(&mixed), STALE);
    // A later file of the same name, and perhaps of the same number.
    fs::remove_file(first.0.join("file")).expect("removed");
    fs::write(first.0.join("file"), "later").expect("a file");
    assert_eq!(client.getattr(&file), STALE);
    let later = client.lookup(&root, "file").expect("the later file");
    assert_ne!(later, file);
    assert_eq!(client.read(&later, 0, 100), Ok(b"later".to_vec()));
    // A file that others have moved keeps its handle.
    fs::create_dir(first.0.join("below")).expect("a directory");
    fs::rename(first.0.join("file"), first.0.join("below/moved")).expect("moved");
    // The search for the removed one, if nothing has its number, may just have ended: then there is
    // a pause.
    let mut moved = client.read(&later, 0, 100);
    for _ in 0..SEARCH_TRIES_MAX {
        if moved != Err(TRY_LATER) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        moved = client.read(&later, 0, 100);
    }
    assert_eq!(moved, Ok(b"later".to_vec()));
}

#[test]
fn a_directory_that_turns_into_a_link_leads_nowhere() {
    let folder = Folder::new("swapped");
    let (inside, outside) = (folder.0.join("inside"), folder.0.join("outside"));
    for directory in [&inside, &outside, &inside.join("real")] {
        fs::create_dir(directory).expect("a directory");
    }
    fs::write(outside.join("secret"), "secret").expect("a file");
    fs::write(inside.join("real/secret"), "public").expect("a file");
    symlink(&outside, inside.join("link")).expect("a link");
    let it = Fixture::new(256 * MIB);
    it.server
        .create_share(directory("pub", &inside))
        .expect("a new share");
    let (mut client, root) = it.mounted("/pub");
    let real = client.lookup(&root, "real").expect("a directory");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let (mut found, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| inside.join(name);
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                // `real` is a directory, nothing, a link to the outside, and a directory again.
                fs::rename(at("real"), at("kept")).expect("moved");
                fs::rename(at("link"), at("real")).expect("moved");
                std::thread::yield_now();
                fs::rename(at("real"), at("link")).expect("moved");
                fs::rename(at("kept"), at("real")).expect("moved");
            }
        });
        for round in 0..2000 {
            let directory = match client.lookup(&root, "real") {
                Ok(now) if round % 2 == 0 => now,
                _ => real.clone(),
            };
            let file = client.lookup(&directory, "secret");
            match file.and_then(|file| client.read(&file, 0, 100)) {
                Ok(data) => {
                    assert_eq!(data, b"public");
                    found += 1;
                }
                Err(_) => refused += 1,
            }
            let _ = client.create(&directory, &format!("new-{round}"));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(found > 0 && refused > 0, "{found} found, {refused} refused");
    let left = fs::read_dir(&outside).expect("it exists").count();
    assert_eq!(left, 1, "nothing was created outside");
}
