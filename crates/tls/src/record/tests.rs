use zeroize::Zeroizing;

use super::*;

fn secret(byte: u8) -> SecretBytes {
    Zeroizing::new(vec![byte; 32])
}

/// Two ends of a connection.
fn ends() -> (Records, Records) {
    let suite = Suite::Aes128GcmSha256;
    (
        Records::new(suite, secret(1), secret(2), Updates::Answered),
        Records::new(suite, secret(2), secret(1), Updates::Begun),
    )
}

fn sealed(from: &mut Records, bytes: &[u8]) -> Vec<u8> {
    let mut output = Output::default();
    output.push(bytes);
    from.seal(&mut output).expect("sealed").unsent().to_vec()
}

fn opened(to: &mut Records, mut sealed: Vec<u8>) -> Result<Vec<u8>, RecordError> {
    let mut arrived = Vec::new();
    to.handle_bytes(&mut sealed, |bytes| {
        arrived.extend_from_slice(bytes);
        Ok::<_, RecordError>(())
    })?;
    Ok(arrived)
}

#[test]
fn records_are_those_of_rfc_8448() {
    // RFC 8448, 3 "Simple 1-RTT Handshake": the client's application data.
    let hex = |text: &str| {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
        digits
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect::<Vec<u8>>()
    };
    let secret = Zeroizing::new(hex(
        "9e 40 64 6c e7 9a 7f 9d c0 5a f8 88 9b ce 65 52 87 5a fa 0b 06 df 00 87 f7 92 eb b7 c1 75 04 a5",
    ));
    let direction = Direction::new(Suite::Aes128GcmSha256, secret);
    assert_eq!(
        direction.iv.to_vec(),
        hex("5b 78 92 3d ee 08 57 90 33 e5 23 d9")
    );
}

#[test]
fn changed_records_are_rejected() {
    let (mut a, mut b) = ends();
    let good = sealed(&mut a, b"contents");
    for at in 0..good.len() {
        let (_, mut fresh) = ends();
        let mut bad = good.clone();
        bad[at] ^= 1;
        // A longer record is never whole.
        if let Ok(arrived) = opened(&mut fresh, bad) {
            assert!(arrived.is_empty() && (3..5).contains(&at));
        }
    }
    assert_eq!(opened(&mut b, good.clone()).expect("good"), b"contents");
    assert_eq!(
        opened(&mut b, good),
        Err(RecordError::Decryption),
        "replayed"
    );
}

#[test]
fn records_out_of_order_are_rejected() {
    let (mut a, mut b) = ends();
    let first = sealed(&mut a, b"1");
    let second = sealed(&mut a, b"2");
    assert_eq!(opened(&mut b, second), Err(RecordError::Decryption));
    drop(first);
}

#[test]
fn reflected_records_are_rejected() {
    let (mut a, _) = ends();
    let own = sealed(&mut a, b"own");
    assert_eq!(opened(&mut a, own), Err(RecordError::Decryption));
}

#[test]
fn invalid_headers_and_lengths_are_rejected() {
    for header in [[22, 3, 3, 0, 40], [23, 3, 3, 0, 16], [23, 3, 3, 0x41, 1]] {
        let (mut a, mut b) = ends();
        assert_eq!(opened(&mut a, header.to_vec()), Err(RecordError::Header));
        assert!(opened(&mut b, header[..3].to_vec()).is_ok());
        assert_eq!(
            opened(&mut b, header[3..].to_vec()),
            Err(RecordError::Header)
        );
    }
}

#[test]
fn a_requested_key_update_is_answered_and_both_go_on() {
    let (mut a, mut b) = ends();
    let request = a
        .control(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 1])
        .expect("sealed");
    a.output.update();
    assert!(opened(&mut b, request).expect("taken").is_empty());
    assert!(b.wants_transmit());
    let answer = sealed(&mut b, b"before the next key");
    assert!(!b.wants_transmit());
    assert_eq!(
        opened(&mut a, answer).expect("taken"),
        b"before the next key"
    );
    assert!(!a.wants_transmit());
    for text in [b"one", b"two"] {
        let to_b = sealed(&mut a, text);
        assert_eq!(opened(&mut b, to_b).expect("taken"), text);
        let to_a = sealed(&mut b, text);
        assert_eq!(opened(&mut a, to_a).expect("taken"), text);
    }
}

#[test]
fn a_host_replaces_both_keys_before_their_limit() {
    for by_input in [true, false] {
        let (mut target, mut host) = ends();
        for direction in [
            &mut target.input,
            &mut target.output,
            &mut host.input,
            &mut host.output,
        ] {
            direction.sequence = 100;
        }
        let (from, to) = if by_input {
            (&mut target.output, &mut host.input)
        } else {
            (&mut host.output, &mut target.input)
        };
        (from.sequence, to.sequence) = (KEY_RECORDS_MAX - 1, KEY_RECORDS_MAX - 1);
        let (mut turns, mut updates) = (0, 0);
        while turns < 4 {
            let old = (host.input.sequence, host.output.sequence);
            let there = sealed(&mut host, b"command");
            assert_eq!(opened(&mut target, there).expect("taken"), b"command");
            let back = sealed(&mut target, b"response");
            assert_eq!(opened(&mut host, back).expect("taken"), b"response");
            let new = (host.input.sequence, host.output.sequence);
            updates += u32::from(new.0 < old.0 && new.1 < old.1);
            turns += 1;
        }
        assert_eq!(updates, 1, "by input: {by_input}");
        assert_eq!(host.updates, Updates::Begun);
        assert!(host.input.sequence < 8 && host.output.sequence < 8);
    }
}

#[test]
fn a_target_begins_no_key_update() {
    let (mut target, mut host) = ends();
    (target.output.sequence, host.input.sequence) = (KEY_RECORDS_MAX, KEY_RECORDS_MAX);
    let back = sealed(&mut target, b"response");
    assert_eq!(opened(&mut host, back).expect("taken"), b"response");
    assert_eq!(target.output.sequence, KEY_RECORDS_MAX + 1);
}

#[test]
fn alerts_end_the_connection() {
    let (mut a, mut b) = ends();
    let close = a.close().expect("sealed");
    assert_eq!(opened(&mut b, close), Err(RecordError::Closed));
    let alert = a.control(ALERT, &[2, 40]).expect("sealed");
    assert_eq!(opened(&mut b, alert), Err(RecordError::Alert(40)));
    let (mut a, mut b) = ends();
    let half = a.control(HANDSHAKE, &[KEY_UPDATE, 0]).expect("sealed");
    assert_eq!(
        opened(&mut b, half),
        Err(RecordError::Unexpected(HANDSHAKE))
    );
    let (mut a, mut b) = ends();
    let padding = a.control(0, &[0, 0]).expect("sealed");
    assert_eq!(opened(&mut b, padding), Err(RecordError::Unexpected(0)));
}

#[test]
fn nothing_of_earlier_records_is_sent_again() {
    let (mut a, mut b) = ends();
    let mut output = Output::default();
    // The second is shorter, and its memory is that of the first.
    for len in [Output::CONTENTS_MAX_BYTES, 5, CONTENTS_MAX_BYTES, 1] {
        let bytes = vec![len as u8; len];
        output.push(&bytes);
        let mut sealed = a.seal(&mut output).expect("sealed");
        assert!(output.is_empty() && !sealed.is_empty());
        let sent = sealed.unsent().to_vec();
        assert_eq!(opened(&mut b, sent).expect("taken"), bytes);
        sealed.consume(sealed.unsent().len());
        assert!(sealed.is_empty());
        output.reuse(sealed);
    }
}
