use super::*;

type Ram = Arc<dyn ManagedVolume>;

fn save_as(volume: &Ram, id: SaveId, path: &Path, mode: SaveMode) -> Saved {
    let target = Target {
        path,
        replace: Replace::SameLineage,
        mode,
        prepare: || (),
    };
    save(&**volume, "rd0", id, &target, &mut no_progress).expect("saved")
}

/// A volume of 8 MiB of noise, and its complete save.
fn saved(folder: &Folder) -> (Ram, Saved) {
    let source = ram_of(8 * MIB, 64 * MIB);
    write(&*source, 0, &noise(8 << 20)).expect("fits");
    let first = save_as(&source, SaveId::first(), &folder.file(), SaveMode::Cheapest);
    assert_eq!(first.increments, 0);
    (source, first)
}

fn restored(path: &Path) -> Ram {
    let dest = ram_of(8 * MIB, 64 * MIB);
    restore(&*dest, path, Wanted::default(), &mut no_progress).expect("restored");
    dest
}

fn increment(folder: &Folder, place: u32) -> PathBuf {
    let file = folder.file().display().to_string();
    format!("{file}.inc{place}").into()
}

#[test]
fn a_save_after_few_changes_is_an_increment() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    write(&*source, 100, &[1; 512]).expect("fits");
    let second = save_as(&source, first.id.next(), &folder.file(), SaveMode::Cheapest);
    assert_eq!((second.increments, second.id), (1, first.id.next()));
    assert_eq!(second.held_bytes, 8 * MIB);
    let len = |path: &Path| std::fs::metadata(path).expect("there").len();
    let (base, one) = (len(&folder.file()), len(&increment(&folder, 1)));
    assert!(one <= CHUNK_BYTES + 400 && base > 7 * MIB, "{base}, {one}");
    assert_eq!(second.file_bytes, base + one);
    assert!(all(&restored(&folder.file())) == all(&source));
}

#[test]
fn a_save_without_changes_writes_nothing() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    let again = save_as(&source, first.id.next(), &folder.file(), SaveMode::Cheapest);
    assert_eq!((again.id, again.increments), (first.id, 0));
    assert!(again.moment > first.moment);
    assert!(!increment(&folder, 1).exists());
    std::fs::remove_file(folder.file()).expect("there");
    let anew = save_as(&source, first.id.next(), &folder.file(), SaveMode::Cheapest);
    assert_eq!(anew.id, first.id.next(), "the file was away");
    assert!(all(&restored(&folder.file())) == all(&source));
}

#[test]
fn a_save_is_complete_when_increments_grow_or_do_not_fit() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    let (file, mut id) = (folder.file(), first.id);
    let mut next = |mode| {
        id = id.next();
        save_as(&source, id, &file, mode).increments
    };
    // 1 MiB each, and at most half of 8 MiB together.
    for expected in [1, 2, 3, 0, 1] {
        write(&*source, 0, &noise(1 << 20)).expect("fits");
        assert_eq!(next(SaveMode::Cheapest), expected);
    }
    write(&*source, 0, &[1; 512]).expect("fits");
    assert_eq!(next(SaveMode::Complete), 0, "who asks gets a complete one");
    assert!(!increment(&folder, 1).exists());
    let elsewhere = folder.file().with_extension("other");
    let other = save_as(&source, first.id.next(), &elsewhere, SaveMode::Single);
    assert_eq!(other.increments, 0);
    write(&*source, 0, &[2; 512]).expect("fits");
    assert_eq!(
        next(SaveMode::Cheapest),
        1,
        "a save elsewhere is none of it"
    );
    // Someone exchanges the file.
    std::fs::copy(&elsewhere, &file).expect("copied");
    write(&*source, 0, &[3; 512]).expect("fits");
    assert_eq!(next(SaveMode::Cheapest), 0);
    source
        .resize(ByteSize(4 * MIB), &mut no_progress)
        .expect("shrinks");
    source
        .resize(ByteSize(8 * MIB), &mut no_progress)
        .expect("grows");
    assert_eq!(next(SaveMode::Cheapest), 0, "what was cut off is zeros");
    assert!(all(&restored(&file)) == all(&source));
}

#[test]
fn a_failed_save_loses_no_change() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    write(&*source, 0, &[1; 512]).expect("fits");
    let path = folder.file();
    let target = Target {
        path: &path,
        replace: Replace::SameLineage,
        mode: SaveMode::Cheapest,
        prepare: || (),
    };
    let cancel = &mut |_| ControlFlow::Break(());
    save(&*source, "rd0", first.id.next(), &target, cancel).expect_err("cancelled");
    write(&*source, 4096, &[2; 512]).expect("fits");
    let second = save_as(&source, first.id.next(), &path, SaveMode::Cheapest);
    assert_eq!(second.increments, 1);
    assert!(all(&restored(&path)) == all(&source));
}

#[test]
fn after_a_restoration_the_next_save_is_complete() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    restore(
        &*source,
        &folder.file(),
        Wanted::default(),
        &mut no_progress,
    )
    .expect("restored");
    write(&*source, 0, &[1; 512]).expect("fits");
    let next = save_as(&source, first.id.next(), &folder.file(), SaveMode::Cheapest);
    assert_eq!(next.increments, 0);
}

#[test]
fn a_missing_increment_is_refused_and_a_start_takes_the_save_before() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    let mut id = first.id;
    let mut moments = vec![all(&source)];
    for fill in 1..=3 {
        write(&*source, 0, &[fill; 512]).expect("fits");
        id = id.next();
        save_as(&source, id, &folder.file(), SaveMode::Cheapest);
        moments.push(all(&source));
    }
    std::fs::remove_file(increment(&folder, 2)).expect("there");
    let dest = ram_of(8 * MIB, 64 * MIB);
    let refused = restore(&*dest, &folder.file(), Wanted::default(), &mut no_progress);
    let refused = refused.expect_err("a gap").to_string();
    assert!(refused.contains("inc2 is missing"), "{refused}");
    let platform = platform(Arc::new(Budget::new(64 * MIB)));
    let refused = begin_restore(&dest, &folder.file(), Some(id), &platform.relay);
    let refused = refused.expect_err("that of the shutdown is wanted");
    assert!(matches!(refused, RestoreError::File { .. }), "{refused}");
    let begun = begin_restore(&dest, &folder.file(), None, &platform.relay);
    let mut loader = begun.expect("the definition permits it");
    assert!(loader.broken().is_some());
    assert_eq!(loader.saved().id, first.id.next());
    while !matches!(loader.step().expect("fits"), LoadStep::End) {}
    assert!(all(&dest) == moments[1]);
}

#[test]
fn damage_in_an_increment_is_named() {
    let folder = Folder::new();
    let (source, first) = saved(&folder);
    write(&*source, 512 * 3, &noise(CHUNK_BYTES as usize)).expect("fits");
    save_as(&source, first.id.next(), &folder.file(), SaveMode::Cheapest);
    let mut bytes = std::fs::read(increment(&folder, 1)).expect("there");
    bytes[300] ^= 1;
    std::fs::write(increment(&folder, 1), bytes).expect("written");
    let dest = ram_of(8 * MIB, 64 * MIB);
    let refused = restore(&*dest, &folder.file(), Wanted::default(), &mut no_progress);
    let Err(RestoreError::Damaged { damage, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(damage.to_string(), "bytes 786432 to 1048575");
    let wanted = Wanted {
        if_damaged: IfDamaged::Zeros,
        ..Wanted::default()
    };
    restore(&*dest, &folder.file(), wanted, &mut no_progress).expect("permitted");
    assert_eq!(read(&*dest, 512 * 3, 512), vec![0; CHUNK_BYTES as usize]);
}

/// As for complete saves: a thread writes one number to block after block, so each moment shows
/// numbers that descend by one at most.
#[test]
fn increments_under_writes_show_one_moment() {
    let folder = Folder::new();
    let source = ram();
    let blocks = source.geometry().blocks.0;
    write(&*source, 0, &noise(4 << 20)).expect("fits");
    // The first of each 64 KiB in the first chunk and the last one.
    let places: Vec<u64> = (0..4).chain(60..64).map(|at| at * (blocks / 64)).collect();
    let is_over = AtomicBool::new(false);
    let mut increments = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1_u64;
            while !is_over.load(Relaxed) {
                number += 1;
                for &lba in &places {
                    let data = [number.to_le_bytes(); 64].concat();
                    write(&*source, lba, &data).expect("fits");
                }
            }
        });
        thread::sleep(std::time::Duration::from_millis(20));
        let mut id = SaveId::first();
        for _ in 0..16 {
            let saved = save_as(&source, id, &folder.file(), SaveMode::Cheapest);
            increments += u32::from(saved.increments > 0);
            id = id.next();
            let dest = ram();
            restore(&*dest, &folder.file(), Wanted::default(), &mut no_progress).expect("restored");
            let number = |&lba: &u64| {
                let block = read(&*dest, lba, 1);
                u64::from_le_bytes(block[..8].try_into().expect("8 bytes"))
            };
            let numbers: Vec<_> = places.iter().map(number).collect();
            assert!(
                numbers.windows(2).all(|two| two[0] >= two[1]),
                "{numbers:?}"
            );
            assert!(numbers[0] - numbers[numbers.len() - 1] <= 1, "{numbers:?}");
        }
        is_over.store(true, Relaxed);
    });
    assert!(increments > 8, "{increments}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(block::testing::cases(24)))]

    #[test]
    fn any_history_is_restored(
        rounds in prop::collection::vec(
            prop::collection::vec((0..8000_u64, 1..600_u64, any::<u8>(), 0..3), 0..4), 1..10),
    ) {
        let folder = Folder::new();
        let source = ram();
        write(&*source, 0, &noise(3 << 20)).expect("fits");
        let mut id = SaveId::first();
        for round in rounds {
            for (lba, blocks, fill, kind) in round {
                let blocks = blocks.min(8192 - lba);
                let extent = block::Extent::new(block::Lba(lba), block::Blocks(blocks));
                if kind == 0 {
                    source.execute(block::Op::Discard { extent }).expect("in range");
                } else {
                    write(&*source, lba, &vec![fill; blocks as usize * 512]).expect("fits");
                }
            }
            let saved = save_as(&source, id, &folder.file(), SaveMode::Cheapest);
            id = saved.id.next();
            let dest = ram();
            restore(&*dest, &folder.file(), Wanted::default(), &mut no_progress).expect("restored");
            prop_assert!(all(&dest) == all(&source));
        }
    }
}

#[test]
fn a_single_save_tracks_nothing() {
    let (folder, source) = (Folder::new(), ram());
    save(
        &*source,
        "rd0",
        SaveId::first(),
        &single(&folder.file()),
        &mut no_progress,
    )
    .expect("saved");
    assert!(source.controls().tracked().is_none());
    assert!(!source.storage().store().expect("ram").has_snapshots());
}
