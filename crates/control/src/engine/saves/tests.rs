use std::fs;

use super::*;
use crate::definitions::{AfterCrash, Definitions};
use crate::engine::{Contents, LostContents, VolumePatch, VolumeState, VolumeView};
use crate::testing::{Folder, server_config};

fn open(folder: &Folder) -> Engine {
    open_with(folder, LostContents::default())
}

fn open_with(folder: &Folder, lost: LostContents) -> Engine {
    Engine::open(server_config(), &folder.state(), lost).expect("the engine opens")
}

/// As after SIGTERM.
fn shut_down(engine: Engine) {
    engine.stop(Duration::from_secs(1));
    engine.save_at_shutdown(&mut |_, _| {});
    drop(engine);
}

/// As after a kill: nothing is saved.
fn crash(engine: Engine) {
    engine.stop(Duration::from_secs(1));
    drop(engine);
}

fn name() -> VolumeName {
    "rd0".parse().expect("a name")
}

fn define(engine: &Engine, folder: &Folder, save: &str) {
    let to = folder.join("");
    let text = format!(
        "[volumes.rd0]\nsize = \"4M\"\nsave = {{ to = {:?}{save} }}",
        to.display().to_string()
    );
    let definitions = Definitions::from_toml(&text).expect("they are well-formed");
    let volume = definitions.volumes[&Text(name())].clone();
    engine
        .create_volume(name(), volume, Force::No)
        .expect("created");
}

/// Writes a save of a volume that holds `fill` over `path`, as another daemon would.
fn file_with(path: &Path, fill: u8, size: &str) -> SaveId {
    let spec = volume::VolumeSpec::thin(size.parse().expect("a size"));
    let platform = volume::Platform {
        budget: std::sync::Arc::new(volume::Budget::new(64 << 20)),
        relay: volume::Relay::new(std::sync::Arc::new(Nobody)),
        lanes: std::sync::Arc::default(),
        record: None,
    };
    let progress = &mut |_| ControlFlow::Continue(());
    let origin = volume::Origin::New;
    let volume = volume::create(&spec, origin, &platform, progress).expect("fits");
    let extent = block::Extent::new(block::Lba(0), block::Blocks(8));
    let data = &[fill; 4096];
    volume
        .execute(block::Op::Write { extent, data })
        .expect("fits");
    let id = SaveId::first();
    let target = Target {
        path,
        replace: Replace::AnySave,
        mode: SaveMode::Single,
        prepare: || (),
    };
    volume::save(&*volume, "rd0", id, &target, progress).expect("saved");
    id
}

struct Nobody;

impl block::Completions for Nobody {
    fn done(&self, _: block::Completion) {}
}

fn view(engine: &Engine) -> VolumeView {
    engine.volume(&name()).expect("it is defined")
}

/// Waits until the daemon has restored what it was to.
fn settled(engine: &Engine) -> VolumeView {
    for _ in 0..1000 {
        let view = view(engine);
        if view.contents != Contents::Restoring && engine.tasks().is_empty() {
            return view;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the restoration does not end");
}

/// What the first byte of the volume is, by a save of it.
fn first_byte(engine: &Engine, folder: &Folder) -> u8 {
    let file = folder.join("probe.save");
    let shown = file.display().to_string();
    let saved = engine.save_volume(&name(), Some(&shown), Force::Yes);
    saved.expect("saved");
    let mut first = 0;
    let bytes = fs::read(file).expect("there");
    let image = image::Image::open(&bytes[..], |_| Ok::<(), volume::ImageError>(()));
    let read = image.expect("whole").read(&mut |chunk| {
        if chunk.range.offset == 0 {
            first = chunk.bytes.expect("whole")[0];
        }
        Ok::<(), volume::ImageError>(())
    });
    read.expect("whole");
    first
}

/// A volume that holds `fill`.
fn filled(engine: &Engine, folder: &Folder, fill: u8) {
    let path = folder.join("filling.save");
    file_with(&path, fill, "4M");
    let shown = path.display().to_string();
    let restored = engine.restore_volume(&name(), Some(&shown), IfDamaged::Refuse, Force::Yes);
    restored.expect("restored");
}

/// Defines the volume, fills it with sevens, and shuts down, which saves it.
fn shut_down_filled(folder: &Folder, save: &str) {
    let engine = open(folder);
    define(&engine, folder, save);
    filled(&engine, folder, 7);
    shut_down(engine);
}

#[test]
fn a_shutdown_saves_and_the_next_start_restores() {
    let folder = Folder::new();
    shut_down_filled(&folder, "");
    assert!(folder.join("rd0.save").exists());
    for lost in [LostContents::Offline, LostContents::Zeros] {
        let engine = open_with(&folder, lost);
        let view = settled(&engine);
        assert_eq!(
            (view.contents, view.state),
            (Contents::Present, VolumeState::Online)
        );
        assert_eq!(first_byte(&engine, &folder), 7);
        let last = view.save.expect("defined").last.expect("restored");
        assert!(last.sequence > 1);
        shut_down(engine);
    }
}

#[test]
fn after_a_crash_the_definition_decides() {
    for (save, contents) in [
        ("", Contents::Lost),
        (", after_crash = \"restore\"", Contents::Present),
    ] {
        let folder = Folder::new();
        let engine = open(&folder);
        define(&engine, &folder, save);
        filled(&engine, &folder, 1);
        engine.save_volume(&name(), None, Force::No).expect("saved");
        filled(&engine, &folder, 2);
        crash(engine);
        let engine = open(&folder);
        let view = settled(&engine);
        assert_eq!(view.contents, contents, "{save}");
        let is_online = view.state == VolumeState::Online;
        assert_eq!(is_online, contents == Contents::Present);
        let restored = engine.restore_volume(&name(), None, IfDamaged::Refuse, Force::Yes);
        restored.expect("someone may decide otherwise");
        assert_eq!(first_byte(&engine, &folder), 1);
        crash(engine);
    }
}

#[test]
fn a_crash_after_a_clean_restart_is_a_crash() {
    let folder = Folder::new();
    shut_down_filled(&folder, "");
    let engine = open(&folder);
    assert_eq!(settled(&engine).contents, Contents::Present);
    crash(engine);
    let engine = open(&folder);
    let view = settled(&engine);
    assert_eq!(
        (view.contents, view.state),
        (Contents::Lost, VolumeState::Offline)
    );
    crash(engine);
}

#[test]
fn a_shutdown_before_the_restoration_keeps_the_save() {
    let folder = Folder::new();
    shut_down_filled(&folder, "");
    let file = folder.join("rd0.save");
    let before = fs::read(&file).expect("there");
    // It is away, so the restoration fails, and the volume is empty at the next shutdown.
    let away = folder.join("away");
    fs::rename(&file, &away).expect("renamed");
    let engine = open(&folder);
    let view = settled(&engine);
    assert_eq!(view.state, VolumeState::Offline);
    let failure = view.save.expect("defined").failure.expect("it failed");
    assert!(failure.contains("rd0.save"), "{failure}");
    shut_down(engine);
    assert!(!file.exists(), "what is lost is not saved");
    fs::rename(&away, &file).expect("renamed");
    let engine = open(&folder);
    assert_eq!(settled(&engine).contents, Contents::Present);
    assert_eq!(first_byte(&engine, &folder), 7);
    assert_eq!(fs::read(&file).expect("there"), before);
    crash(engine);
}

#[test]
fn a_save_that_was_exchanged_is_not_restored_by_itself() {
    let folder = Folder::new();
    shut_down_filled(&folder, "");
    file_with(&folder.join("rd0.save"), 9, "4M");
    let engine = open(&folder);
    let view = settled(&engine);
    assert_eq!(view.state, VolumeState::Offline);
    let failure = view.save.expect("defined").failure.expect("it failed");
    assert!(failure.contains("another save"), "{failure}");
    crash(engine);
}

#[test]
fn contents_that_began_anew_replace_no_save() {
    let folder = Folder::new();
    let engine = open(&folder);
    define(&engine, &folder, "");
    filled(&engine, &folder, 7);
    engine.save_volume(&name(), None, Force::No).expect("saved");
    crash(engine);
    let engine = open(&folder);
    engine.acknowledge_loss(&name()).expect("acknowledged");
    let refused = engine.save_volume(&name(), None, Force::No);
    let refused = refused.expect_err("the save is all that is left");
    assert!(refused.needs_force(), "{refused}");
    let failure = view(&engine).save.expect("defined").failure;
    assert!(failure.is_some_and(|failure| failure.contains("other contents")));
    engine
        .save_volume(&name(), None, Force::Yes)
        .expect("forced");
    assert_eq!(view(&engine).save.expect("defined").failure, None);
    engine
        .save_volume(&name(), None, Force::No)
        .expect("its own");
    crash(engine);
}

/// An engine whose thread of saves does not run, and the beginning of the restoration of its
/// volume.
fn begin_restoring(folder: &Folder) -> Engine {
    let started = Engine::start(server_config(), &folder.state(), LostContents::default());
    let engine = started.expect("the engine starts").engine().clone();
    engine.begin().settle().expect("written");
    let loads = engine.begin_loads();
    assert_eq!(loads.len(), 1, "the file fits");
    engine.leave_unfinished(loads);
    engine
}

fn execute(engine: &Engine, op: block::Op<'_>) -> Result<(), block::Status> {
    let volume = engine.server().driver(&name(), Duration::from_secs(5));
    volume.expect("it exists").volume().execute(op)
}

#[test]
fn a_volume_is_served_while_it_is_restored() {
    let folder = Folder::new();
    shut_down_filled(&folder, "");
    let engine = begin_restoring(&folder);
    let shown = view(&engine);
    let seen = (shown.contents, shown.state);
    assert_eq!(seen, (Contents::Restoring, VolumeState::Online));
    let refused = engine.save_volume(&name(), None, Force::No);
    assert!(matches!(refused, Err(EngineError::Restoring { .. })));
    let extent = block::Extent::new(block::Lba(8000), block::Blocks(1));
    let data = &[9; 512];
    execute(&engine, block::Op::Write { extent, data }).expect("it is online");
    shut_down(engine);
    let engine = open(&folder);
    assert_eq!(settled(&engine).contents, Contents::Present);
    assert_eq!(
        first_byte(&engine, &folder),
        7,
        "the rest was read at the shutdown"
    );
    let op = block::Op::Compare { extent, data };
    execute(&engine, op).expect("what was written meanwhile is saved");
    crash(engine);
}

#[test]
fn a_shutdown_while_a_volume_is_restored_keeps_the_save_of_an_unchanged_one() {
    let folder = Folder::new();
    shut_down_filled(&folder, "");
    let file = folder.join("rd0.save");
    let before = fs::read(&file).expect("there");
    shut_down(begin_restoring(&folder));
    assert!(fs::read(&file).expect("there") == before);
    let engine = open(&folder);
    assert_eq!(settled(&engine).contents, Contents::Present);
    assert_eq!(first_byte(&engine, &folder), 7);
    crash(engine);
}

#[test]
fn damage_is_shown_and_not_saved_until_it_is_acknowledged() {
    let folder = Folder::new();
    shut_down_filled(&folder, ", every = \"1s\"");
    let file = folder.join("rd0.save");
    let mut bytes = fs::read(&file).expect("there");
    bytes[300] ^= 1;
    fs::write(&file, &bytes).expect("written");
    let engine = open(&folder);
    let shown = settled(&engine);
    let seen = (shown.contents, shown.state);
    assert_eq!(seen, (Contents::Damaged, VolumeState::Online));
    let damage = shown.damage.expect("it is listed");
    assert_eq!((damage.damaged_bytes, damage.damaged.len()), (256 << 10, 1));
    let refused = engine.save_volume(&name(), None, Force::Yes);
    assert!(matches!(refused, Err(EngineError::Damaged { .. })));
    let failure = || view(&engine).save.expect("defined").failure;
    for _ in 0..1000 {
        if failure().is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(failure().is_some_and(|failure| failure.contains("damaged in the save")));
    assert!(fs::read(&file).expect("there") == bytes, "the file stays");
    engine.acknowledge_loss(&name()).expect("acknowledged");
    assert_eq!(view(&engine).contents, Contents::Present);
    assert_eq!(view(&engine).damage, None);
    engine.save_volume(&name(), None, Force::No).expect("saved");
    assert_eq!(first_byte(&engine, &folder), 0);
    crash(engine);
}

#[test]
fn regular_saves_follow_the_definition() {
    let folder = Folder::new();
    let engine = open(&folder);
    define(&engine, &folder, "");
    let file = folder.join("rd0.save");
    let mut save = view(&engine).save.expect("defined").saving();
    save.every = Some("1s".parse().expect("a period"));
    let patch = |save| VolumePatch {
        save: Some(save),
        ..VolumePatch::default()
    };
    let changed = engine.change_volume(&name(), patch(Some(save)), Force::No);
    changed.expect("changed");
    for _ in 0..1000 {
        if file.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(file.exists(), "it was saved");
    let changed = engine.change_volume(&name(), patch(None), Force::No);
    changed.expect("changed");
    assert_eq!(view(&engine).save, None);
    fs::remove_file(&file).expect("removed");
    shut_down(engine);
    assert!(!file.exists(), "not any more");
}

#[test]
fn a_regular_save_that_fails_is_shown_and_repeated() {
    let folder = Folder::new();
    let engine = open(&folder);
    let file = folder.join("rd0.save");
    fs::write(&file, "a diary").expect("written");
    define(&engine, &folder, ", every = \"1s\"");
    let failure = || view(&engine).save.expect("defined").failure;
    for _ in 0..1000 {
        if failure().is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(failure().is_some_and(|failure| failure.contains("is no save")));
    fs::remove_file(&file).expect("removed");
    for _ in 0..1000 {
        if failure().is_none() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(failure(), None);
    assert!(file.exists());
    crash(engine);
}

#[test]
fn a_member_of_another_volume_is_not_restored_under_it() {
    let folder = Folder::new();
    let engine = open(&folder);
    let text = "[volumes.rd0]\nsize = \"4M\"\n[volumes.l0]\nkind = \"linear\"\nmembers = [\"rd0\"]";
    let definitions = Definitions::from_toml(text).expect("well-formed");
    for (name, volume) in definitions.volumes.into_iter().rev() {
        engine
            .create_volume(name.0, volume, Force::No)
            .expect("created");
    }
    let file = folder.join("other.save");
    file_with(&file, 7, "4M");
    let file = file.display().to_string();
    let restored = engine.restore_volume(&name(), Some(&file), IfDamaged::Refuse, Force::Yes);
    assert!(
        matches!(
            restored,
            Err(EngineError::Server(server::ServerError::Held { .. }))
        ),
        "{restored:?}"
    );
    crash(engine);
}

#[test]
fn a_volume_is_created_from_a_save() {
    let folder = Folder::new();
    let engine = open(&folder);
    let file = folder.join("other.save");
    file_with(&file, 7, "6M");
    let create = |text: &str, file: &Path| {
        let text = format!("[volumes.rd0]\n{text}");
        let definitions = Definitions::from_toml(&text).expect("well-formed");
        let volume = definitions.volumes[&Text(name())].clone();
        engine.create_volume_from(&name(), volume, &file.display().to_string())
    };
    let text = "size = \"4M\"";
    let refused = create(text, &file)
        .expect_err("it has another size")
        .to_string();
    assert!(refused.contains("is of a volume of 6 MiB"), "{refused}");
    let missing = folder.join("missing.save");
    for (text, file) in [
        (text, &missing),
        ("kind = \"file\"\npath = \"/none\"", &file),
    ] {
        create(text, file).expect_err("it cannot be restored");
        assert!(engine.volume(&name()).is_err(), "nothing is left");
    }
    let mut volume = Definitions::from_toml("[volumes.rd0]\nsize = \"4M\"");
    let volume = volume
        .as_mut()
        .expect("well-formed")
        .volumes
        .get_mut(&Text(name()));
    let mut volume = volume.expect("it is there").clone();
    volume.size = Size(0);
    let shown = file.display().to_string();
    engine
        .create_volume_from(&name(), volume, &shown)
        .expect("it is restored");
    let view = view(&engine);
    assert_eq!(
        (view.size_bytes, view.state),
        (6 << 20, VolumeState::Online)
    );
    assert_eq!(first_byte(&engine, &folder), 7);
    crash(engine);
}

#[test]
fn what_cannot_be_saved_or_restored_is_refused() {
    let folder = Folder::new();
    let engine = open(&folder);
    let volume = Definitions::from_toml("[volumes.rd0]\nsize = \"4M\"");
    let volume = volume.expect("well-formed").volumes[&Text(name())].clone();
    engine
        .create_volume(name(), volume, Force::No)
        .expect("created");
    let refused = engine.save_volume(&name(), None, Force::No);
    assert!(matches!(refused, Err(EngineError::NoSaveFile { .. })));
    let refused = engine.save_volume(&name(), Some("here"), Force::No);
    assert!(matches!(refused, Err(EngineError::RelativeFile { .. })));
    filled(&engine, &folder, 1);
    let file = folder.join("filling.save").display().to_string();
    let restore = |force| engine.restore_volume(&name(), Some(&file), IfDamaged::Refuse, force);
    assert!(matches!(
        restore(Force::No),
        Err(EngineError::Overwrites { .. })
    ));
    restore(Force::Yes).expect("forced");
    let to = folder.join("none").display().to_string();
    let patch = VolumePatch {
        save: Some(Some(crate::definitions::Saving {
            to,
            every: None,
            after_crash: AfterCrash::Offline,
        })),
        ..VolumePatch::default()
    };
    let refused = engine.change_volume(&name(), patch, Force::No);
    assert!(matches!(refused, Err(EngineError::NoSaveFolder { .. })));
    for wrong in ["to = \"a\"", "to = \"/a\", every = \"10ms\""] {
        let text = format!("[volumes.rd0]\nsize = \"4M\"\nsave = {{ {wrong} }}");
        let refused = Definitions::from_toml(&text).expect_err(wrong).to_string();
        assert!(refused.starts_with("volume rd0: "), "{refused}");
    }
    crash(engine);
}

/// Bytes that LZ4 cannot shorten.
fn noise(len: usize) -> Vec<u8> {
    let next = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    let mut state = 7;
    std::iter::from_fn(|| next(&mut state)).take(len).collect()
}

fn write_noise(engine: &Engine, lba: u64, len: usize) {
    let data = noise(len);
    let extent = block::Extent::new(block::Lba(lba), block::Blocks(len as u64 / 512));
    let op = block::Op::Write {
        extent,
        data: &data,
    };
    execute(engine, op).expect("online");
}

/// Waits for a save that is as `is_it` says.
fn await_save(engine: &Engine, is_it: impl Fn(&LastSaveView) -> bool) {
    for _ in 0..1000 {
        let last = view(engine).save.expect("defined").last;
        if last.is_some_and(|last| is_it(&last)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("it is not saved so");
}

#[test]
fn regular_saves_are_increments_that_a_start_restores() {
    let folder = Folder::new();
    let engine = open(&folder);
    define(
        &engine,
        &folder,
        ", every = \"1s\", after_crash = \"restore\"",
    );
    write_noise(&engine, 0, 4 << 20);
    await_save(&engine, |last| last.held_bytes == 4 << 20);
    write_noise(&engine, 5, 512);
    await_save(&engine, |last| last.increments == 1);
    assert!(folder.join("rd0.save.inc1").exists());
    crash(engine);
    let engine = open(&folder);
    assert_eq!(settled(&engine).contents, Contents::Present);
    let extent = block::Extent::new(block::Lba(5), block::Blocks(1));
    let data = &noise(512);
    execute(&engine, block::Op::Compare { extent, data }).expect("as it was saved");
    // The shutdown saves what has changed, and notes which save that is.
    engine.save_volume(&name(), None, Force::No).expect("saved");
    assert!(!folder.join("rd0.save.inc1").exists(), "one complete file");
    write_noise(&engine, 9, 512);
    shut_down(engine);
    assert!(folder.join("rd0.save.inc1").exists());
    let engine = open(&folder);
    assert_eq!(settled(&engine).contents, Contents::Present);
    let extent = block::Extent::new(block::Lba(9), block::Blocks(1));
    execute(&engine, block::Op::Compare { extent, data }).expect("as it was saved");
    crash(engine);
}
