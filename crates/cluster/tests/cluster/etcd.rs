//! The client of etcd, with real etcd and with servers that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Change, Etcd, EtcdError, EtcdUrl, Txn, TxnOutcome};

use crate::server::{Server, TestIssuer, is_there, port};

#[tokio::test]
async fn a_transaction_makes_all_its_changes_or_none() {
    if !is_there() {
        return;
    }
    let server = Server::plain(1);
    let etcd = server.client(None).await;
    let create = || {
        let txn = Txn::new().if_absent("/a/1").put("/a/1", "one");
        txn.put("/a/2", "two").put("/b", "other")
    };
    let made = etcd.commit(create()).await.expect("made");
    let TxnOutcome::Made { revision } = made else {
        panic!("{made:?}");
    };
    let again = etcd.commit(create().put("/a/3", "three")).await;
    assert_eq!(again.expect("answered"), TxnOutcome::ConditionFailed);
    let (entries, at) = etcd.list("/a/").await.expect("listed");
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (entry.key.as_str(), entry.value.as_slice(), entry.revision))
        .collect();
    let expected: [(_, &[u8], _); 2] = [("/a/1", b"one", revision), ("/a/2", b"two", revision)];
    assert_eq!((found.as_slice(), at), (&expected[..], revision));

    let change = |revision| {
        Txn::new()
            .if_revision("/a/1", revision)
            .put("/a/1", "changed")
    };
    let changed = etcd.commit(change(revision)).await.expect("answered");
    assert_ne!(changed, TxnOutcome::ConditionFailed);
    let late = etcd.commit(change(revision)).await.expect("answered");
    assert_eq!(late, TxnOutcome::ConditionFailed);
    let delete = Txn::new().delete_prefix("/a/").delete("/b");
    etcd.commit(delete).await.expect("made");
    assert_eq!(etcd.get("/a/1").await.expect("answered"), None);
    assert_eq!(etcd.get("/b").await.expect("answered"), None);
}

#[tokio::test]
async fn a_list_of_many_keys_is_complete() {
    if !is_there() {
        return;
    }
    let server = Server::plain(1);
    let etcd = server.client(None).await;
    for part in 0..25 {
        let txn = (0..100).fold(Txn::new(), |txn, key| {
            txn.put(&format!("/k/{part:02}{key:02}"), vec![7; 100])
        });
        etcd.commit(txn).await.expect("made");
    }
    let (entries, _) = etcd.list("/k/").await.expect("listed");
    let keys: Vec<_> = entries.into_iter().map(|entry| entry.key).collect();
    let expected: Vec<_> = (0..2_500).map(|key| format!("/k/{key:04}")).collect();
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_lease_ends_its_keys_and_a_watch_sees_it() {
    if !is_there() {
        return;
    }
    let server = Server::plain(1);
    let etcd = server.client(None).await;
    let (_, revision) = etcd.list("/w/").await.expect("listed");
    let mut watch = etcd.watch("/w/", revision + 1).await.expect("watched");
    assert_eq!(
        watch.next(Duration::from_millis(50)).await.expect("quiet"),
        []
    );
    let lease = etcd
        .grant_lease(Duration::from_secs(2))
        .await
        .expect("a lease");
    etcd.commit(Txn::new().put_leased("/w/a", "x", lease))
        .await
        .expect("made");
    etcd.commit(Txn::new().put("/other", "x"))
        .await
        .expect("made");
    let limit = Duration::from_secs(30);
    let changes = watch.next(limit).await.expect("a change");
    let [Change::Put(entry)] = changes.as_slice() else {
        panic!("{changes:?}");
    };
    assert_eq!((entry.key.as_str(), entry.lease), ("/w/a", Some(lease)));
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(etcd.keep_alive(lease).await.expect("answered"));
    }
    assert!(etcd.get("/w/a").await.expect("answered").is_some());
    // It is kept alive no longer.
    let changes = watch.next(limit).await.expect("a change");
    assert!(
        matches!(changes.as_slice(), [Change::Deleted { key, .. }] if key == "/w/a"),
        "{changes:?}"
    );
    assert!(!etcd.keep_alive(lease).await.expect("answered"));
    let lease = etcd.grant_lease(limit).await.expect("a lease");
    etcd.commit(Txn::new().put_leased("/w/b", "x", lease))
        .await
        .expect("made");
    etcd.revoke(lease).await.expect("revoked");
    assert_eq!(etcd.get("/w/b").await.expect("answered"), None);
}

#[tokio::test]
async fn only_the_holder_of_a_certificate_reaches_etcd_with_tls() {
    if !is_there() {
        return;
    }
    let (own, other) = (TestIssuer::new(), TestIssuer::new());
    let server = Server::with_tls(&own);
    let etcd = server.client(Some(own.client(&own))).await;
    etcd.commit(Txn::new().put("/a", "x")).await.expect("made");
    assert!(etcd.get("/a").await.expect("answered").is_some());
    let plain: EtcdUrl = server.urls[0]
        .to_string()
        .replace("https", "http")
        .parse()
        .expect("a URL");
    for (urls, tls) in [
        (server.urls.clone(), None),
        (server.urls.clone(), Some(other.client(&own))),
        (server.urls.clone(), Some(own.client(&other))),
        (vec![plain], None),
    ] {
        let error = Etcd::new(urls, tls).get("/a").await.expect_err("refused");
        let is_expected = matches!(
            error,
            EtcdError::Unreachable { .. } | EtcdError::Refused { .. }
        );
        assert!(is_expected, "{error}");
    }
}

#[tokio::test]
async fn requests_go_on_when_one_of_three_members_dies_and_end_with_a_reason_when_two_do() {
    if !is_there() {
        return;
    }
    let mut server = Server::plain(3);
    let etcd = server.client(None).await;
    etcd.commit(Txn::new().put("/a", "x")).await.expect("made");
    let members = etcd.members().await.expect("listed");
    assert_eq!(members.len(), 3);
    assert!(
        members
            .iter()
            .all(|member| !member.is_learner && member.id != 0)
    );
    for first in [0, 1] {
        server.kill(first);
        let begin = Instant::now();
        let read = loop {
            match etcd.get("/a").await {
                // The others elect a leader.
                Err(_) if first == 0 && begin.elapsed() < Duration::from_secs(30) => {}
                read => break read,
            }
        };
        if first == 0 {
            assert!(read.expect("answered").is_some());
            continue;
        }
        let error = read.expect_err("no majority");
        assert!(matches!(error, EtcdError::Unreachable { .. }), "{error}");
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            begin.elapsed()
        );
        let error = etcd
            .commit(Txn::new().put("/a", "y"))
            .await
            .expect_err("no majority");
        assert!(matches!(error, EtcdError::OutcomeUnknown { .. }), "{error}");
    }
}

/// A server that reads a request and sends `answer` to each connection.
fn answering(answer: impl Fn(TcpStream) + Send + 'static) -> EtcdUrl {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    // Ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            answer(stream);
        }
    });
    format!("http://{address}").parse().expect("a URL")
}

#[tokio::test]
async fn a_change_that_was_sent_is_not_repeated_and_a_read_goes_to_another_endpoint() {
    let broken = answering(drop);
    let good = answering(|mut stream| {
        let body = r#"{"kvs":[{"key":"YQ==","value":"eA=="}],"succeeded":true}"#;
        let len = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\n\r\n{body}"
        );
    });
    let nobody: EtcdUrl = format!("http://127.0.0.1:{}", port())
        .parse()
        .expect("a URL");
    let etcd = |urls: [&EtcdUrl; 2]| Etcd::new(urls.map(Clone::clone).to_vec(), None);
    let entry = etcd([&broken, &good]).get("a").await.expect("read");
    assert_eq!(entry.expect("there").value, b"x");
    let error = etcd([&broken, &good])
        .commit(Txn::new().put("a", "y"))
        .await;
    let error = error.expect_err("unknown");
    assert!(matches!(error, EtcdError::OutcomeUnknown { .. }), "{error}");
    let made = etcd([&nobody, &good])
        .commit(Txn::new().put("a", "y"))
        .await;
    assert_eq!(made.expect("made"), TxnOutcome::Made { revision: 0 });
}

#[tokio::test]
async fn answers_without_an_end_or_a_meaning_are_errors() {
    let header = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless = answering(move |mut stream| {
        let _ = stream.write_all(header.as_bytes());
        let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        while stream.write_all(chunk.as_bytes()).is_ok() {}
    });
    let silent = answering(|stream| {
        thread::sleep(Duration::from_secs(5));
        drop(stream);
    });
    for url in [endless, silent] {
        let begin = Instant::now();
        let error = Etcd::new(vec![url], None)
            .get("a")
            .await
            .expect_err("no answer");
        assert!(matches!(error, EtcdError::Unreachable { .. }), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }
    let foreign = answering(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello");
    });
    let error = Etcd::new(vec![foreign], None)
        .get("a")
        .await
        .expect_err("foreign");
    assert!(matches!(error, EtcdError::NotUnderstood { .. }), "{error}");
    // The same page for ever.
    let looping = answering(|mut stream| {
        let body = r#"{"header":{"revision":"1"},"kvs":[{"key":"YQ=="}],"more":true}"#;
        let len = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n{body}"
        );
    });
    let error = Etcd::new(vec![looping], None)
        .list("a")
        .await
        .expect_err("looping");
    assert!(matches!(error, EtcdError::NotUnderstood { .. }), "{error}");
}
