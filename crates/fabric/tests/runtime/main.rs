//! The runtime over the provider in software, with a protocol made for the test.

mod peer;
#[path = "../ports/mod.rs"]
mod ports;
mod toy;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use block::testing::CountedLanes;
use fabric::verbs::{RejReason, WorkStatus};
use memory::Budget;
use net::{ReactorOptions, Threads};
use peer::{Peer, Refused};
use toy::{Server, ServerOptions};

#[test]
fn messages_are_answered_in_order_and_data_move_both_ways() {
    let server = Server::start(ServerOptions::default());
    let mut peer = Peer::connect(&server, b"hello").expect("taken");
    assert!(peer.private_data.starts_with(b"welcome"));
    for round in 0..200_u32 {
        let text = round.to_le_bytes();
        peer.send(&[b"E", &text[..]].concat());
        assert_eq!(peer.receive(), text);
    }
    // Longer than a piece, so that both go in several.
    let len = 300_000;
    peer.memory()[..len].fill(3);
    peer.ask(b'R', 0, len as u32);
    let sum = 3 * len as u64;
    assert_eq!(peer.receive(), sum.to_le_bytes());
    peer.ask(b'W', 7, len as u32);
    assert_eq!(peer.receive(), b"written");
    let written = &peer.memory()[7..7 + len];
    assert!(written.iter().enumerate().all(|(i, b)| *b == i as u8));
    assert_eq!(peer.memory()[7 + len], 0, "nothing behind was touched");
}

#[test]
fn a_key_is_invalidated_with_the_answer() {
    let server = Server::start(ServerOptions::default());
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.ask(b'I', 0, 1);
    assert_eq!(peer.receive(), b"invalidated");
    assert_eq!(peer.invalidated, Some(peer.key()));
}

#[test]
fn many_peers_share_a_pool_that_is_small() {
    let server = Server::start(ServerOptions {
        // A slab of each length: 16 long chunks.
        pool_max_bytes: 1280 << 10,
        ..ServerOptions::default()
    });
    let mut peers: Vec<_> = (0..12)
        .map(|_| Peer::connect(&server, b"").expect("taken"))
        .collect();
    for peer in &mut peers {
        peer.memory().fill(1);
        peer.ask(b'R', 0, 1 << 20);
        peer.ask(b'W', 0, 1 << 20);
    }
    for peer in &mut peers {
        assert_eq!(peer.receive(), (1_u64 << 20).to_le_bytes());
        assert_eq!(peer.receive(), b"written");
    }
    // None had to wait until those that were silent meanwhile had failed.
    assert_eq!(server.log.closed.load(Ordering::Relaxed), 0);
}

#[test]
fn peers_are_spread_over_threads_and_each_is_served_woken_and_closed_there() {
    let server = Server::start(ServerOptions {
        threads: 3,
        ..ServerOptions::default()
    });
    let mut peers: Vec<_> = (0..24)
        .map(|_| Peer::connect(&server, b"").expect("taken"))
        .collect();
    for peer in &mut peers {
        peer.memory().fill(2);
        peer.ask(b'R', 0, 300_000);
        peer.ask(b'W', 0, 300_000);
    }
    for peer in &mut peers {
        assert_eq!(peer.receive(), 600_000_u64.to_le_bytes());
        assert_eq!(peer.receive(), b"written");
    }
    assert_eq!(server.log.threads(), 3);
    for id in server.log.connections() {
        server.reactors.handle().wake(id);
    }
    for peer in &mut peers {
        assert_eq!(peer.receive(), b"woken");
    }
    server.runtime.unlisten(toy::PORT);
    assert!(server.runtime.is_unused());
    peers.iter_mut().for_each(Peer::until_gone);
    server.until("all are closed", |s| {
        s.log.closed.load(Ordering::Relaxed) == 24
    });
}

#[test]
fn memory_is_charged_and_released() {
    let server = Server::start(ServerOptions::default());
    let before = server.budget.used_bytes();
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.ask(b'W', 0, 1000);
    assert_eq!(peer.receive(), b"written");
    assert!(server.budget.used_bytes() > before);
    peer.disconnect();
    server.until("memory is given back", |s| s.budget.used_bytes() == before);
    assert_eq!(server.log.closed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_ends_only_its_session() {
    let server = Server::start(ServerOptions::default());
    let mut victim = Peer::connect(&server, b"").expect("taken");
    let mut other = Peer::connect(&server, b"").expect("taken");
    victim.send(b"P");
    victim.until_gone();
    other.send(b"Estill here");
    assert_eq!(other.receive(), b"still here");
    server.until("the panic is told", |s| {
        s.log
            .reasons()
            .iter()
            .any(|reason| reason.contains("assertion"))
    });
}

#[test]
fn a_violation_ends_the_connection_after_the_last_word() {
    let server = Server::start(ServerOptions::default());
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(b"V");
    assert_eq!(peer.receive(), b"you broke it");
    peer.until_gone();
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(b"Q");
    assert_eq!(peer.receive(), b"bye");
    peer.until_gone();
}

#[test]
fn wrong_keys_and_overlong_messages_end_the_connection() {
    let server = Server::start(ServerOptions::default());
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.ask_with(peer.key() ^ 1, b'W', 0, 100);
    peer.until_gone();
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(&[b'E'; 200]);
    peer.until_gone();
    assert_eq!(peer.send_status, Some(WorkStatus::RemoteInvalidRequest));
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(b"Efine");
    assert_eq!(peer.receive(), b"fine");
}

#[test]
fn what_threads_count_can_be_read_while_they_sleep_and_when_they_have_ended() {
    let server = Server::start(ServerOptions {
        threads: 2,
        ..ServerOptions::default()
    });
    let meter = server.runtime.meter();
    let counted = || meter.read().expect("software counts");
    assert_eq!(counted().endpoint.packets, 0);
    for refused in 1..=4 {
        let mut peer = Peer::connect(&server, b"").expect("taken");
        peer.send(&[b'E'; 200]);
        peer.until_gone();
        server.until("it is counted", |_| {
            counted().endpoint.refused_invalid == refused
        });
    }
    server.runtime.stop(Duration::ZERO);
    let last = counted();
    assert!(
        last.endpoint.packets >= 4 * 2 && last.send_calls > 0,
        "{last:?}"
    );
}

#[test]
fn requests_are_refused_with_the_reason() {
    let server = Server::start(ServerOptions::default());
    let refused = Peer::connect(&server, b"stranger").expect_err("refused");
    let Refused {
        reason,
        private_data,
    } = refused;
    assert_eq!(reason, RejReason::CONSUMER);
    assert!(private_data.starts_with(b"who are you"));
    let refused = Peer::connect_to(&server, 9, b"").expect_err("refused");
    assert_eq!(refused.reason, RejReason::INVALID_SERVICE_ID);
    let poor = Server::start(ServerOptions {
        budget: Arc::new(Budget::new(1000)),
        ..ServerOptions::default()
    });
    let refused = Peer::connect(&poor, b"").expect_err("refused");
    assert_eq!(refused.reason, RejReason::NO_RESOURCES);
    assert_eq!(poor.budget.used_bytes(), 0);
}

#[test]
fn half_open_connections_are_bounded_and_end_in_time() {
    let server = Server::start(ServerOptions {
        reactors: ReactorOptions {
            threads: Threads::Count(1),
            half_open_per_network_max: 1,
            handshake_timeout: Duration::from_millis(300),
            ..ReactorOptions::default()
        },
        ..ServerOptions::default()
    });
    let mut first = Peer::connect(&server, b"").expect("taken");
    let mut second = Peer::connect(&server, b"").expect("another address");
    let refused = second.connect_again().expect_err("refused");
    assert_eq!(refused.reason, RejReason::NO_RESOURCES);
    second.send(b"Eadmit me");
    assert_eq!(second.receive(), b"admit me");
    second.connect_again().expect("the first was admitted");
    let began = Instant::now();
    first.until_gone();
    assert!(began.elapsed() < Duration::from_secs(5));
    second.send(b"Estill");
    assert_eq!(second.receive(), b"still");
}

#[test]
fn others_wake_close_and_unlisten() {
    let server = Server::start(ServerOptions::default());
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(b"Ehere");
    assert_eq!(peer.receive(), b"here");
    let id = server.log.last_connection();
    server.reactors.handle().wake(id);
    assert_eq!(peer.receive(), b"woken");
    server.reactors.handle().close(id);
    peer.until_gone();
    let mut peer = Peer::connect(&server, b"").expect("taken");
    server.runtime.unlisten(toy::PORT);
    peer.until_gone();
    let refused = Peer::connect(&server, b"").expect_err("refused");
    assert_eq!(refused.reason, RejReason::INVALID_SERVICE_ID);
    assert!(server.runtime.is_unused());
}

#[test]
fn stopping_lets_commands_finish() {
    let server = Server::start(ServerOptions::default());
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(b"D");
    server.until("the delayed command is there", |s| {
        s.log.delayed.load(Ordering::Relaxed) > 0
    });
    let stopping = std::thread::spawn(move || {
        server.runtime.stop(Duration::from_secs(10));
        server
    });
    assert_eq!(peer.receive(), b"late");
    peer.until_gone();
    let server = stopping.join().expect("stopped");
    assert_eq!(server.log.reasons(), ["the server stops"]);
}

#[test]
fn a_lane_has_a_turn_when_its_event_is_raised_and_after_those_of_connections() {
    let lanes = Arc::<CountedLanes>::default();
    let server = Server::start(ServerOptions {
        reactors: ReactorOptions {
            lanes: Some(Arc::clone(&lanes) as _),
            ..ReactorOptions::default()
        },
        ..ServerOptions::default()
    });
    let counts = lanes.last();
    for _ in 0..3 {
        let before = counts.submits_when_quiet();
        counts.raise();
        counts.wait_for_more_than(before);
    }
    let before = counts.submits_when_quiet();
    let mut peer = Peer::connect(&server, b"").expect("taken");
    peer.send(b"Ehello");
    assert_eq!(peer.receive(), b"hello");
    counts.wait_for_more_than(before);
    drop(peer);
    server.runtime.stop(Duration::ZERO);
    counts.check_ended();
}
