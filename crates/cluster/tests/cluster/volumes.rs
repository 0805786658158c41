//! Replicated volumes of nodes in this process: where they are placed, and who has them. That they
//! keep what was written is tested with the program.

use std::thread;
use std::time::{Duration, Instant};

use block::testing::Folder;
use cluster::{Etcd, Txn};
use control::{
    BlockLen, ErrorKind, ExternalEtcd, Filters, Force, Identity, KindFields, NewCluster, Size,
    Volume, VolumeKind, VolumeName,
};

use crate::machines::{Machine, addresses, wish};
use crate::server::{Server, is_there};

/// How long something may take: far more than it needs, as machines that test are busy.
const LIMIT: Duration = Duration::from_secs(60);

fn volume(size_bytes: u64, copies: u8) -> Volume {
    let placement = None;
    Volume {
        size: Size(size_bytes),
        block_size: BlockLen::default(),
        kind: KindFields(VolumeKind::Replicated { copies, placement }),
        identity: Identity::default(),
        read_only: false,
        filters: Filters::default(),
        save: None,
    }
}

fn name(text: &str) -> VolumeName {
    text.parse().expect("a name")
}

/// The numbers of the nodes that hold copies, as this machine has it.
fn nodes(machine: &Machine, name: &VolumeName) -> Option<Vec<u32>> {
    match machine.engine().replicated_volume(name)?.kind.0 {
        VolumeKind::Replicated { placement, .. } => Some(placement.expect("placed").nodes),
        _ => None,
    }
}

fn wait(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT);
        thread::sleep(Duration::from_millis(10));
    }
}

/// A cluster on an etcd of its own.
fn cluster(folder: &Folder, server: &Server, names: &[&str]) -> Vec<Machine> {
    let count = u8::try_from(names.len()).expect("few");
    let machines = names.iter().zip(addresses(count));
    let machines: Vec<_> = machines
        .map(|(name, address)| Machine::start(folder, name, address))
        .collect();
    let all: Vec<_> = machines.iter().collect();
    let made = machines[0].control().create(NewCluster {
        etcd: Some(ExternalEtcd {
            urls: vec![server.urls[0].to_string()],
            tls: None,
        }),
        ..wish(&all)
    });
    made.expect("made");
    machines
}

#[test]
fn volumes_that_are_created_at_once_are_placed_evenly_and_are_on_all_nodes() {
    if !is_there() {
        return;
    }
    let (folder, server) = (Folder::new(), Server::plain(1));
    let machines = cluster(&folder, &server, &["n1", "n2", "n3"]);
    let names: Vec<_> = (0..9).map(|number| name(&format!("v{number}"))).collect();
    thread::scope(|scope| {
        for (number, name) in names.iter().enumerate() {
            let control = machines[number % 3].control();
            // Two of three nodes hold each, so all that the nodes have is promised in the end.
            let volume = volume(170 << 20, 2);
            scope.spawn(move || {
                let created = control.create_volume(name.clone(), volume);
                created.expect("created");
            });
        }
    });
    let mut copies = [0; 4];
    for name in &names {
        let placed = nodes(&machines[0], name);
        wait(|| nodes(&machines[0], name).is_some());
        let placed = placed
            .or_else(|| nodes(&machines[0], name))
            .expect("placed");
        wait(|| {
            machines
                .iter()
                .all(|it| nodes(it, name).as_ref() == Some(&placed))
        });
        for node in placed {
            copies[node as usize] += 1;
        }
    }
    assert_eq!(copies, [0, 6, 6, 6]);
    let full = machines[1]
        .control()
        .create_volume(name("w"), volume(64 << 20, 2));
    let full = full.expect_err("no room");
    assert_eq!(full.kind, ErrorKind::Exhausted, "{full}");
    let removed = machines[2]
        .control()
        .remove_volume(names[4].clone(), Force::Yes);
    removed.expect("removed");
    wait(|| machines.iter().all(|it| nodes(it, &names[4]).is_none()));
    let again = machines[1]
        .control()
        .create_volume(name("w"), volume(64 << 20, 2));
    again.expect("room");
}

#[test]
fn what_cannot_be_created_is_refused_with_a_hint() {
    if !is_there() {
        return;
    }
    let (folder, server) = (Folder::new(), Server::plain(1));
    let machines = cluster(&folder, &server, &["n1", "n2"]);
    let create = |machine: &Machine, text, volume| {
        let created = machine.control().create_volume(name(text), volume);
        created.expect_err("refused")
    };
    let few = create(&machines[0], "v", volume(16 << 20, 3));
    assert_eq!(few.kind, ErrorKind::Conflict, "{few}");
    assert!(few.message.contains("add nodes"), "{few}");
    let mut placed = volume(16 << 20, 2);
    let created = machines[0]
        .control()
        .create_volume(name("v"), placed.clone());
    created.expect("created");
    let twice = create(&machines[1], "v", volume(16 << 20, 2));
    assert_eq!(twice.kind, ErrorKind::Conflict, "{twice}");
    placed.kind = machines[0]
        .engine()
        .replicated_volume(&name("v"))
        .expect("created")
        .kind;
    let given = create(&machines[1], "w", placed);
    assert_eq!(given.kind, ErrorKind::Invalid, "{given}");
    let kept = machines[0].control().remove_volume(name("v"), Force::No);
    assert!(kept.expect_err("refused").needs_force);
    // A file of definitions concerns one machine.
    wait(|| nodes(&machines[1], &name("v")).is_some());
    let mut definitions = machines[1].engine().backup();
    let applied = machines[1].engine().apply(definitions.clone(), Force::Yes);
    assert_eq!(applied.expect("no change"), Vec::<String>::new());
    definitions.volumes.clear();
    let applied = machines[1].engine().apply(definitions, Force::Yes);
    let refused = applied.expect_err("refused").to_string();
    assert!(refused.contains("ramport volume remove"), "{refused}");
}

#[test]
fn a_machine_that_leaves_its_cluster_has_none_of_its_volumes() {
    if !is_there() {
        return;
    }
    let (folder, server) = (Folder::new(), Server::plain(1));
    let mut machines = cluster(&folder, &server, &["n1", "n2"]);
    let created = machines[0]
        .control()
        .create_volume(name("v"), volume(16 << 20, 2));
    created.expect("created");
    wait(|| nodes(&machines[1], &name("v")).is_some());
    // After a restart, it has the volume before it reaches etcd.
    machines[1].stop();
    machines[1].resume("etcd");
    assert!(nodes(&machines[1], &name("v")).is_some());
    machines[1].control().leave(Force::Yes).expect("left");
    assert_eq!(nodes(&machines[1], &name("v")), None);
    assert!(nodes(&machines[0], &name("v")).is_some());
}

#[test]
fn an_etcd_that_has_lost_its_data_takes_no_volume_away() {
    if !is_there() {
        return;
    }
    let (folder, server) = (Folder::new(), Server::plain(1));
    let machines = cluster(&folder, &server, &["n1"]);
    let control = machines[0].control();
    let created = control.create_volume(name("v"), volume(64 << 20, 1));
    created.expect("created");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let etcd = Etcd::new(vec![server.urls[0].clone()], None);
    let all = Txn::new().delete_prefix("/ramport/");
    runtime.block_on(etcd.commit(all)).expect("lost");
    // Longer than the pause between two looks.
    thread::sleep(Duration::from_secs(4));
    assert!(nodes(&machines[0], &name("v")).is_some());
}
