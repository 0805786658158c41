//! Tokens that are removed while their holders are in the middle of something.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::super::super::network::OF_TOKEN_MAX;
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

impl Network {
    /// Sends the head of a request with this token, whose body has `len` bytes.
    fn begin(&self, token: &str, line: &str, len: usize) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        let head = format!(
            "{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("sent");
        BufReader::new(stream)
    }

    fn token(&self, name: &str) -> String {
        let new = self.create(name, Role::Administrator, TokenProof::Bearer);
        new.token.expect("a token")
    }

    fn remove(&self, name: &str) {
        self.local
            .delete(&format!("/v1/tokens/{name}"))
            .expect("removed");
    }
}

fn status_line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).expect("an answer");
    line
}

#[test]
fn a_token_that_is_removed_while_the_body_comes_is_worth_nothing() {
    let network = Network::start(Encryption::Off);
    let body = br#"{"size": "4M"}"#;
    for (name, removed) in [("kept", false), ("gone", true)] {
        let token = network.token(name);
        let line = format!("POST /v1/volumes/{name}");
        let mut stream = network.begin(&token, &line, body.len());
        let (start, rest) = body.split_at(5);
        stream.get_mut().write_all(start).expect("sent");
        // Time for the daemon to accept the token in the head.
        thread::sleep(Duration::from_millis(100));
        if removed {
            network.remove(name);
        }
        stream.get_mut().write_all(rest).expect("sent");
        let expected = if removed { " 401 " } else { " 201 " };
        let line = status_line(&mut stream);
        assert!(line.contains(expected), "{line}");
        let volume = network.local.get::<Value>(&format!("/v1/volumes/{name}"));
        assert_eq!(volume.is_err(), removed);
    }
}

#[test]
fn a_stream_of_figures_ends_with_its_token() {
    let network = Network::start(Encryption::Off);
    let token = network.token("viewer");
    let mut stream = network.begin(&token, "GET /v1/top?interval=100ms", 0);
    assert!(status_line(&mut stream).contains(" 200 "));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert_ne!(stream.read_line(&mut line).expect("figures"), 0);
    }
    network.remove("viewer");
    let mut rest = Vec::new();
    // The last chunk has the length 0.
    while !rest.ends_with(b"\r\n0\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the end");
        rest.extend(byte);
    }
}

#[test]
fn tokens_are_removed_while_many_requests_carry_them() {
    let network = Network::start(Encryption::Off);
    let ends = AtomicBool::new(false);
    let tokens: Vec<_> = (0..4).map(|at| network.token(&format!("t{at}"))).collect();
    thread::scope(|scope| {
        for (at, text) in tokens.iter().enumerate() {
            let (network, ends) = (&network, &ends);
            scope.spawn(move || {
                let mut accepted = true;
                while !ends.load(Ordering::Relaxed) {
                    let mut stream = network.begin(text, "GET /v1/status", 0);
                    let line = status_line(&mut stream);
                    let is_accepted = line.contains(" 200 ");
                    assert!(is_accepted || line.contains(" 401 "), "{line}");
                    assert!(accepted || !is_accepted, "t{at} is valid again");
                    accepted = is_accepted;
                }
                assert!(!accepted, "t{at} is valid still");
            });
        }
        for at in 0..tokens.len() {
            thread::sleep(Duration::from_millis(50));
            network.remove(&format!("t{at}"));
        }
        thread::sleep(Duration::from_millis(500));
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn one_token_cannot_take_all_connections() {
    let network = Network::start(Encryption::Off);
    let [greedy, other, third] = ["greedy", "other", "third"].map(|name| network.token(name));
    // Bodies that do not come.
    let begin = || network.begin(&greedy, "POST /v1/volumes/a", 100);
    let mut busy: Vec<_> = (0..OF_TOKEN_MAX).map(|_| begin()).collect();
    let mut refused = begin();
    assert!(status_line(&mut refused).contains(" 503 "));
    // Idle connections of another token make room for it and for others.
    let mut idle = Vec::new();
    for at in 0..2 * OF_TOKEN_MAX {
        let token = if at % 16 == 0 { &third } else { &other };
        let mut stream = network.begin(token, "GET /v1/status", 0);
        assert!(status_line(&mut stream).contains(" 200 "), "{at}");
        idle.push(stream);
    }
    for stream in [0, OF_TOKEN_MAX - 1] {
        let stream = &mut busy[stream];
        stream.get_mut().write_all(&[b' '; 100]).expect("sent");
        assert!(status_line(stream).contains(" 400 "), "it was not evicted");
    }
}
