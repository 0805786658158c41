//! Nodes in this process, with real etcd.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use block::testing::Folder;
use cluster::{Etcd, EtcdError, EtcdUrl};
use control::{ErrorKind, ExternalEtcd, Force, JoinCluster, NewCluster, NodeRole};

use crate::machines::{Machine, addresses, names, wish};
use crate::server::{Server, TestIssuer, is_there};

#[test]
fn two_nodes_and_a_witness_survive_the_loss_of_a_node() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let at = addresses(3);
    let mut first = Machine::start(&folder, "n1", at[0]);
    let second = Machine::start(&folder, "n2", at[1]);
    let third = Machine::start(&folder, "w", at[2]);
    let made = second.control().create(NewCluster {
        witness: Some(third.address.to_string()),
        ..wish(&[&first, &second])
    });
    let made = made.expect("made");
    assert_eq!(names(&made), ["n1", "n2", "w"]);
    let roles: Vec<_> = made
        .nodes
        .iter()
        .map(|node| (node.role, node.memory_bytes >> 30))
        .collect();
    let storage = (NodeRole::Storage, 1);
    assert_eq!(roles, [storage, storage, (NodeRole::Witness, 0)]);
    assert_eq!(
        (made.memory_bytes >> 30, made.memory_after_loss_bytes >> 30),
        (2, 1)
    );
    assert_eq!(made.etcd_losses_max, Some(1));
    second.wait_for_up(&["n1", "n2", "w"]);
    first.stop();
    second.wait_for_up(&["n2", "w"]);
    assert_eq!(third.up(), ["n2", "w"]);
    first.resume("etcd");
    first.wait_for_up(&["n1", "n2", "w"]);
}

/// Neither the node nor its etcd answers a plain request.
fn refuse_without_certificate(node: &Machine) {
    let request = "POST /v1/offer HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
    for port_offset in 0..3 {
        let place = SocketAddr::new(node.address.ip(), node.address.port() + port_offset);
        let mut stream = TcpStream::connect(place).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            !answer.contains("200 OK") && !answer.contains("n1"),
            "{place}: {answer}"
        );
    }
}

#[test]
fn strangers_reach_neither_nodes_nor_their_etcd() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let at = addresses(2);
    let node = Machine::start(&folder, "n1", at[0]);
    node.control().create(wish(&[&node])).expect("made");
    let token = "another token, which is as long as the one of the node";
    let stranger = Machine::with_token(&folder, "n2", at[1], token);
    let join = JoinCluster {
        address: node.address.to_string(),
    };
    let refused = stranger.control().join(join).expect_err("refused");
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    assert!(refused.message.contains("same token"), "{refused}");
    // Nor is it taken for a node that the cluster could be extended by.
    let other = stranger
        .control()
        .create(wish(&[&node, &stranger]))
        .expect_err("refused");
    assert_eq!(other.kind, ErrorKind::Unavailable, "{other}");
    refuse_without_certificate(&node);
    let issuer = TestIssuer::new();
    let url: EtcdUrl = node.control().show().expect("shown").etcd[0]
        .parse()
        .expect("a URL");
    assert!(url.is_tls());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    // Its own certificates with the cluster's issuer, which it does not know: it is no secret.
    let ca = std::fs::read_to_string(node.folder.join("cluster/issuer.pem")).expect("read");
    let plain: EtcdUrl = url
        .to_string()
        .replace("https", "http")
        .parse()
        .expect("a URL");
    for (url, tls) in [
        (plain, None),
        (url.clone(), Some(issuer.client(&issuer))),
        (url, Some(issuer.client_of(&ca))),
    ] {
        let read = runtime.block_on(Etcd::new(vec![url], tls).list("/ramport/"));
        let error = read.expect_err("refused");
        let is_expected = matches!(
            error,
            EtcdError::Unreachable { .. } | EtcdError::Refused { .. }
        );
        assert!(is_expected, "{error}");
    }
}

#[test]
fn nodes_join_and_leave_and_the_last_one_ends_the_cluster() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let at = addresses(2);
    let first = Machine::start(&folder, "n1", at[0]);
    let second = Machine::start(&folder, "n2", at[1]);
    first.control().create(wish(&[&first])).expect("made");
    let joined = second.control().join(JoinCluster {
        address: first.address.to_string(),
    });
    assert_eq!(names(&joined.expect("joined")), ["n1", "n2"]);
    first.wait_for_up(&["n1", "n2"]);
    let member = second
        .control()
        .create(wish(&[&second]))
        .expect_err("a member");
    assert_eq!(member.kind, ErrorKind::Conflict, "{member}");
    // Its etcd gets its vote.
    let begin = std::time::Instant::now();
    while first
        .control()
        .show()
        .expect("shown")
        .nodes
        .iter()
        .any(|node| !node.has_etcd)
    {
        assert!(begin.elapsed() < Duration::from_secs(90));
        std::thread::sleep(Duration::from_millis(100));
    }
    let asked = second.control().leave(Force::No).expect_err("needs force");
    assert!(asked.needs_force, "{asked}");
    second.control().leave(Force::Yes).expect("left");
    let none = second.control().show().expect_err("no cluster");
    assert_eq!(none.kind, ErrorKind::NotFound, "{none}");
    assert!(!second.folder.join("cluster").exists());
    first.wait_for_up(&["n1"]);
    assert_eq!(names(&first.control().show().expect("shown")), ["n1"]);
    // Numbers are not used again.
    let joined = second.control().join(JoinCluster {
        address: first.address.to_string(),
    });
    let numbers: Vec<_> = joined
        .expect("joined")
        .nodes
        .iter()
        .map(|node| node.number)
        .collect();
    assert_eq!(numbers, [1, 3]);
    second.control().leave(Force::Yes).expect("left");
    let last = first.control().leave(Force::No).expect_err("needs force");
    assert!(
        last.needs_force && last.message.contains("destroyed"),
        "{last}"
    );
    first.control().leave(Force::Yes).expect("ended");
    assert!(!first.folder.join("cluster").exists());
}

/// etcd takes one new member at a time.
#[test]
fn nodes_that_join_at_the_same_time_wait_for_each_other() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let at = addresses(3);
    let first = Machine::start(&folder, "n1", at[0]);
    let others = ["n2", "n3"].map(|name| {
        let last = usize::from(name == "n3");
        Machine::start(&folder, name, at[1 + last])
    });
    first.control().create(wish(&[&first])).expect("made");
    std::thread::scope(|scope| {
        for other in &others {
            let address = first.address.to_string();
            let join = || other.control().join(JoinCluster { address });
            scope.spawn(|| join().expect("joined"));
        }
    });
    first.wait_for_up(&["n1", "n2", "n3"]);
}

#[test]
fn a_witness_that_is_set_up_anew_stays_one_and_nobody_takes_its_address() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let at = addresses(3);
    let first = Machine::start(&folder, "n1", at[0]);
    let second = Machine::start(&folder, "n2", at[1]);
    let mut witness = Machine::start(&folder, "w", at[2]);
    let wish = NewCluster {
        witness: Some(witness.address.to_string()),
        ..wish(&[&first, &second])
    };
    first.control().create(wish).expect("made");
    witness.stop();
    first.wait_for_up(&["n1", "n2"]);
    let join = || JoinCluster {
        address: first.address.to_string(),
    };
    let mut thief = Machine::start(&folder, "thief", at[2]);
    let refused = thief.control().join(join()).expect_err("refused");
    assert!(refused.message.contains("node w has"), "{refused}");
    thief.stop();
    std::fs::remove_dir_all(witness.folder.join("cluster")).expect("removed");
    witness.resume("etcd");
    let joined = witness.control().join(join()).expect("joined");
    let view = joined.nodes.iter().find(|node| node.name == "w");
    let view = view.expect("it is a node");
    assert_eq!((view.role, view.memory_bytes), (NodeRole::Witness, 0));
}

#[test]
fn a_cluster_that_cannot_be_made_leaves_nothing_behind() {
    if !is_there() {
        return;
    }
    let folder = Folder::new();
    let at = addresses(3);
    let first = Machine::start(&folder, "n1", at[0]);
    let mut second = Machine::start(&folder, "n2", at[1]);
    let mut request = wish(&[&first, &second]);
    request.nodes.push(at[2].to_string());
    let missing = first
        .control()
        .create(request)
        .expect_err("nobody at the third");
    assert_eq!(missing.kind, ErrorKind::Unavailable, "{missing}");
    assert!(missing.message.contains(&at[2].to_string()), "{missing}");
    second.stop();
    second.resume("etcd-that-does-not-exist");
    let refused = first
        .control()
        .create(wish(&[&first, &second]))
        .expect_err("no etcd");
    assert!(refused.message.contains("etcd-server"), "{refused}");
    for machine in [&first, &second] {
        assert!(!machine.folder.join("cluster").exists());
    }
    second.stop();
    second.resume("etcd");
    let made = first
        .control()
        .create(wish(&[&first, &second]))
        .expect("made");
    assert_eq!(names(&made), ["n1", "n2"]);
    assert_eq!(made.etcd_losses_max, Some(0));
}

#[test]
fn an_etcd_that_exists_keeps_clusters_apart() {
    if !is_there() {
        return;
    }
    let server = Server::plain(1);
    let folder = Folder::new();
    let at = addresses(2);
    let machines = [
        Machine::start(&folder, "n1", at[0]),
        Machine::start(&folder, "n2", at[1]),
    ];
    let request = |machine: &Machine, name: &str| NewCluster {
        name: name.to_owned(),
        etcd: Some(ExternalEtcd {
            urls: vec![server.urls[0].to_string()],
            tls: None,
        }),
        ..wish(&[machine])
    };
    let made = machines[0]
        .control()
        .create(request(&machines[0], "a"))
        .expect("made");
    assert!(!made.etcd_is_own);
    assert_eq!(made.etcd_losses_max, None);
    let exists = machines[1]
        .control()
        .create(request(&machines[1], "a"))
        .expect_err("exists");
    assert_eq!(exists.kind, ErrorKind::Conflict, "{exists}");
    assert!(!machines[1].folder.join("cluster").exists());
    let made = machines[1]
        .control()
        .create(request(&machines[1], "b"))
        .expect("made");
    assert_eq!(names(&made), ["n2"]);
    machines[0].control().leave(Force::Yes).expect("ended");
    let made = machines[0]
        .control()
        .create(request(&machines[0], "a"))
        .expect("made again");
    assert_eq!(names(&made), ["n1"]);
}

#[test]
fn a_machine_that_has_left_does_not_take_out_another_one_that_has_its_name_now() {
    if !is_there() {
        return;
    }
    let server = Server::plain(1);
    let (folder, other_folder) = (Folder::new(), Folder::new());
    let at = addresses(3);
    let first = Machine::start(&folder, "n1", at[0]);
    let mut second = Machine::start(&folder, "n2", at[1]);
    let made = first.control().create(NewCluster {
        etcd: Some(ExternalEtcd {
            urls: vec![server.urls[0].to_string()],
            tls: None,
        }),
        ..wish(&[&first])
    });
    made.expect("made");
    let join = JoinCluster {
        address: first.address.to_string(),
    };
    second.control().join(join.clone()).expect("joined");
    // As if it had been interrupted after it left: its membership is still there.
    let file = second.folder.join("cluster/membership.json");
    let membership = std::fs::read(&file).expect("read");
    second.control().leave(Force::Yes).expect("left");
    second.stop();
    let third = Machine::start(&other_folder, "n2", at[2]);
    third.control().join(join).expect("joined");
    std::fs::create_dir(second.folder.join("cluster")).expect("a folder");
    std::fs::write(&file, membership).expect("written");
    second.resume("etcd");
    second.control().leave(Force::Yes).expect("left");
    assert!(!second.folder.join("cluster").exists());
    let nodes = first.control().show().expect("shown").nodes;
    let found: Vec<_> = nodes.iter().map(|node| node.address.clone()).collect();
    assert_eq!(found, [at[0].to_string(), at[2].to_string()]);
}
