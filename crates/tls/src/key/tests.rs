//! The expected values were computed by libnvme 1.16's own functions; the texts and the identities
//! of version 1 are those of its test/psk.c.

use super::*;

const HOST: &str = "nqn.psk-test-host";
const SUBSYSTEM: &str = "nqn.psk-test-subsys";
const TEXTS: [&str; 4] = [
    "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:",
    "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
    "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
];

use Derivation::{Legacy, Specified};
use Version::{One, Zero};

type Row = (Derivation, Version, usize, &'static str, &'static str);

/// Derivation, version, index of the text, what the identity ends with, the key.
#[rustfmt::skip]
const GOLDEN: [Row; 16] = [
    (Specified, Zero, 0, "", "ec85300ba827726bd3bc4fc07f3a34aec5fe7c8ccac05fefc2f021c74e0df9ef"),
    (Specified, Zero, 1, "", "05c6503551ad136e6ee32e6eeb3f6d500b69701d84ec71e328f65c7f51566f68"),
    (Specified, Zero, 2, "", "f42ba63824cdfe421914c582921f85b5b5b7e2d4df084caeedc9be20b212e8bb0fe8a23e9d59a1c8fc6449da4970a78d"),
    (Specified, Zero, 3, "", "b5dd464067a9378ba2226d71f005d7ac90ed8696e4b2142084384365597201d33ba26f8aeeb529574d4267bd294a828e"),
    (Specified, One, 0, " quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=", "a45d08ee4639c7570729bb3e57e905e466a49a15ece5401af906830c4d3bdb0b"),
    (Specified, One, 1, " iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU=", "8fc3c0badfd4c0c66fa3ca33aadd0314f85536cc9bc47338b60f3e6e563786ca"),
    (Specified, One, 2, " QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a", "a2b2f943f479fc682555cec89857c80ed004ce92f32a973d5764155bb7e36b17a85368a0666d250afac9282dda2e62ca"),
    (Specified, One, 3, " dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW", "1569317890995e207ab4cf148bc53470561e148030cb019b1d87fb4bc5794a791ed5ee68676c952ce5f11f3786e900d4"),
    (Legacy, Zero, 0, "", "e2b16189378b34adba9fec995ab479040cedec0bc7c6b47728ee4d8de6ff52ba"),
    (Legacy, Zero, 1, "", "09fb1983ac6d6d0353e7cae4f23daddd651c367fa347c59d9cf6936f5a83eafb"),
    (Legacy, Zero, 2, "", "2ee4754186a625b28a3936ef4a40d839c3ad958b2e017562ee07e2501f172ce999dc9c29033ea7ee33f814f192c13f47"),
    (Legacy, Zero, 3, "", "9cb989c1d40fdcdc1bb729d6691901bfcd0b310f060f558d4a63c7afc2a0923f2d0610073fded349d25d6b3f91980826"),
    (Legacy, One, 0, " quJVUJjp/BImWR0UQay/MjSfEgyAr6TyBOWybS/B404=", "d50f6d3dd79345b6e8217744524df5ac0dc66964ff70cc5fd18e1b9d57ce7fcf"),
    (Legacy, One, 1, " 66GuqV08TsAGII39teWUfwQwizjv06Jy8jOcX3NAAzM=", "b9f5ab2a41ba6e72a23a12066302a2f775fa6c0942c8e0b18ca8ac07edf305e2"),
    (Legacy, One, 2, " RsKmYJ3nAn1ApjjMloJFbAkLPivONDAX/xW327YBUsn2eGShXSjCZvBaOxscLqmz", "fcefe2e2a2e682b1447dcabf1ec268f78f08c63cd075753abcc8bda2c5c34d48d3014aa8d76ad80107e4f5c9f27e2149"),
    (Legacy, One, 3, " dyoPfSR5TBRaPMI5/FXUlJv2XMDtmQ7Q9Xrj89aBKbyRYkQeT5V1wNvIpnMDRTQW", "f6259eaeaab509d2e42bc494098bd1ccc4334b2528a1a34ea95fbe27e3fa75e3422d260a299110afa42170521b02d689"),
];

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[test]
fn keys_read_back_from_their_texts() {
    for text in TEXTS {
        let key: Key = text.parse().expect("a key");
        assert_eq!(*key.reveal(), text);
        assert_eq!(format!("{key:?}"), "Key(hidden)");
        assert!(text.len() <= Key::TEXT_MAX_BYTES);
    }
}

#[test]
fn identities_and_keys_are_those_of_libnvme() {
    for (derivation, version, text, end, expected) in GOLDEN {
        let key: Key = TEXTS[text].parse().expect("a key");
        let psk = key.psk(version, derivation, HOST, SUBSYSTEM);
        let digit = u8::from(version == One);
        let hash = psk.suite.hash_id();
        let identity = format!("NVMe{digit}R{hash:02} {HOST} {SUBSYSTEM}{end}");
        assert_eq!(psk.identity, identity);
        assert_eq!(hex(&psk.secret), expected, "{derivation:?} {identity}");
        let parsed: Identity = identity.parse().expect("an identity");
        assert_eq!(parsed.to_string(), identity);
        assert_eq!(parsed.host_nqn, HOST);
    }
}

#[test]
fn generated_keys_differ_from_configured_ones_by_a_letter() {
    // What Linux's nvme_auth_generate_digest and nvme_auth_derive_tls_psk compute of a generated
    // key is what libnvme computes of a retained one.
    for (text, row) in [(0, 4), (3, 7)] {
        let configured: Key = TEXTS[text].parse().expect("a key");
        let key = Key::generated(&configured.bytes).expect("a key");
        let (_, _, _, end, expected) = GOLDEN[row];
        let psk = key.psk(One, Specified, HOST, SUBSYSTEM);
        let hash = psk.suite.hash_id();
        assert_eq!(
            psk.identity,
            format!("NVMe1G{hash:02} {HOST} {SUBSYSTEM}{end}")
        );
        assert_eq!(hex(&psk.secret), expected);
        let identity: Identity = psk.identity.parse().expect("an identity");
        assert_eq!(identity.to_string(), psk.identity);
        assert_eq!(key.psks(&identity).len(), 1);
        assert_eq!(key.identity(HOST, SUBSYSTEM), identity);
        assert!(configured.psks(&identity).is_empty());
        let retained: Identity = psk
            .identity
            .replace("1G", "1R")
            .parse()
            .expect("an identity");
        assert!(key.psks(&retained).is_empty());
    }
    assert!(Key::generated(&[0; 64]).is_err());
}

/// Text, and what the identity of version 1 ends with by each derivation, as
/// `nvme check-tls-key --identity=1 --hostnqn=nqn.2014-08.org.example:host --subsysnqn=nqn.2014-08.org.example:test`
/// prints it: nvme-cli 2.16 as specified, and nvme-cli 2.13 the earlier way, as 2.16 with --compat.
/// The texts are those of `nvme gen-tls-key --secret=…` of both.
const PRINTED: [(&str, Suite, &str, &str); 2] = [
    (
        "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        Suite::Aes128GcmSha256,
        "onT33JdBWRh/Cgz+ULlzOWEFxisYVreKncVQV9YR8gA=",
        "TUu0IPjJ/qskzQpvFqdy29m04eNTCATZNRTIDoydFbg=",
    ),
    (
        "NVMeTLSkey-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:",
        Suite::Aes256GcmSha384,
        "B6R7/RyCflrm/cBLB476dq9ybgEfqUYhFrtNQK5JK7jf1stmqHe5Lj1CGapF8IJk",
        "xNwAT7nLjg7IhQFOW8+K4rDsiwMhRkVvCaGapV/gArOOjvOrfhbu1Ygy9rle7Db0",
    ),
];

#[test]
fn identities_are_those_that_nvme_cli_prints() {
    const NAMES: (&str, &str) = (
        "nqn.2014-08.org.example:host",
        "nqn.2014-08.org.example:test",
    );
    let (host, subsystem) = NAMES;
    for (text, suite, specified, legacy) in PRINTED {
        let key: Key = text.parse().expect("a key");
        assert_eq!((key.suite(), key.reveal().as_str()), (suite, text));
        let hash = suite.hash_id();
        for (derivation, digest) in [(Specified, specified), (Legacy, legacy)] {
            let identity = |version| key.psk(version, derivation, host, subsystem).identity;
            let names = format!("R{hash:02} {host} {subsystem}");
            assert_eq!(identity(Zero), format!("NVMe0{names}"));
            assert_eq!(identity(One), format!("NVMe1{names} {digest}"));
        }
    }
}

/// Generated key, digest and pre-shared key, as drivers/nvme/common/tests/auth_kunit.c of Linux 7.1
/// has them for the names `hostnqn` and `subsysnqn`.
const OF_LINUX: [(&str, &str, &str); 2] = [
    (
        "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
        "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
        "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
    ),
    (
        "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
        "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
        "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d0898fff15bb8b77119d2be0aac423e7590",
    ),
];

#[test]
fn keys_of_generated_ones_are_those_of_linux() {
    for (generated, digest, expected) in OF_LINUX {
        let bytes: Vec<u8> = (0..generated.len() / 2)
            .map(|at| u8::from_str_radix(&generated[2 * at..][..2], 16).expect("hexadecimal"))
            .collect();
        let key = Key::generated(&bytes).expect("a key");
        let psk = key.psk(One, Specified, "hostnqn", "subsysnqn");
        let hash = psk.suite.hash_id();
        let identity = format!("NVMe1G{hash:02} hostnqn subsysnqn {digest}");
        assert_eq!(
            (psk.identity, hex(&psk.secret)),
            (identity, expected.to_owned())
        );
    }
}

#[test]
fn texts_that_are_no_keys_are_refused_without_being_shown() {
    let cut = TEXTS[1].replace("VRLb", "");
    let cases = [
        ("open sesame", KeyError::Form),
        ("NVMeTLSkey-1:01", KeyError::Form),
        (&TEXTS[1].replace(":01:", ":03:"), KeyError::Hash),
        (&TEXTS[1].replace("VRLb", "V!Lb"), KeyError::Base64),
        (&TEXTS[1].replace("VRLb", "VRLc"), KeyError::Checksum),
        (
            &TEXTS[1].replace(":01:", ":02:"),
            KeyError::Length { len_bytes: 32 },
        ),
        (&cut, KeyError::Length { len_bytes: 29 }),
    ];
    for (text, fault) in cases {
        assert_eq!(text.parse::<Key>(), Err(fault), "{text}");
        assert!(!fault.to_string().contains("sesame"));
    }
}

#[test]
fn identities_of_another_form_are_refused() {
    for text in [
        "",
        "NVMe0R01",
        "NVMe0R01 h",
        "NVMe0R03 h s",
        "NVMe2R01 h s d",
        "NVMe0G01 h s",
        "NVMe1G01 h s",
        "NVMe0R01 h s d",
        "NVMe1R01 h s",
        "NVMe1R01 h s d e",
        "NVMe0R01  h s",
    ] {
        assert_eq!(text.parse::<Identity>(), Err(IdentityFault), "{text}");
    }
    let long = format!("NVMe0R01 h {}", "s".repeat(Identity::MAX_BYTES));
    assert_eq!(long.parse::<Identity>(), Err(IdentityFault));
}

use crate::identity::IdentityFault;
