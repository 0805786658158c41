//! Values that other programs have computed.

use super::*;
use crate::auth::response::{ResponseInputs, generate};

const NQN: &str = "nqn.2014-08.org.example:host";

/// Text without a transformation, function, and what the text with that function is, as
/// `nvme gen-dhchap-key --nqn=nqn.2014-08.org.example:host --secret=… --hmac=0…3` of nvme-cli 2.3,
/// 2.13 and 2.16 prints them alike. nvme-cli transforms the secret before it prints it, so the key
/// in the second text is the transformed one of the first.
const TRANSFORMED: [(&str, Hash, &str); 3] = [
    (
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        Hash::Sha256,
        "DHHC-1:01:eGOjOSJAEO/H5bDhWMzHdMAz5kyhHZlbqU1HWBl05iWbjbyw:",
    ),
    (
        "DHHC-1:00:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:",
        Hash::Sha384,
        "DHHC-1:02:Y0HaF2dm2YvDlQ26jWLeGm00q13ww/9wGzvSnUkOZI2pGI5v2yjZ3aOXADAOevIQmW4uWQ==:",
    ),
    (
        "DHHC-1:00:oKGio6SlpqeoqaqrrK2ur7CxsrO0tba3uLm6u7y9vr/AwcLDxMXGx8jJysvMzc7P0NHS09TV1tfY2drb3N3e3xEo9II=:",
        Hash::Sha512,
        "DHHC-1:03:8JXaz1pcxi8pAxDW2bgJNOglS9RThD5kVqfn5ZvlFV8fVp9IvWHeCTpSiVQjuuwypUgd46pih9vPREj/V+s4pCSmMXE=:",
    ),
];

#[test]
fn secrets_are_transformed_as_nvme_cli_does() {
    for (text, hash, transformed) in TRANSFORMED {
        let plain = secret(text).key_of(NQN);
        let to_transform = Secret::new(&plain, Some(hash)).expect("a length of secrets");
        let key = to_transform.key_of(NQN);
        let printed = Secret::new(&key, Some(hash)).expect("a length of secrets");
        assert_eq!(*printed.reveal(), transformed, "{hash}");
    }
}

/// Function and generated key, as drivers/nvme/common/tests/auth_kunit.c of Linux 7.1 has them: the
/// session key is 41h, 42h and so on, C1 is 0, 1 and so on, C2 is FFh, FEh and so on.
const GENERATED: [(Hash, &str); 3] = [
    (
        Hash::Sha256,
        "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
    ),
    (
        Hash::Sha384,
        "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
    ),
    (
        Hash::Sha512,
        "9c9f089a618b47d2d75f4b6c2807042448\
         7b445dd96e70c4c09b55e8b6000152a3363c3454043f38f0b85036ded40655350aa87b8b6a282b5c1acae16233dd5b",
    ),
];

#[test]
fn keys_are_generated_as_linux_does() {
    for (hash, expected) in GENERATED {
        let counting = |first: u8, step: i8| -> Vec<u8> {
            let bytes = (0..hash.len_bytes()).map(|at| first.wrapping_add_signed(step * at as i8));
            bytes.collect()
        };
        let (c1, c2) = (counting(0, 1), counting(0xFF, -1));
        let key = generate(hash, &counting(b'A', 1), [&c1, &c2]);
        assert_eq!(hex(key.as_bytes()), expected, "{hash}");
    }
}

/// An authentication of Linux's host, without a group.
struct Exchange {
    hash: Hash,
    transaction: u16,
    /// Of the host and the controller; likewise in the others.
    secrets: [&'static str; 2],
    sequences: [u32; 2],
    challenges: [&'static str; 2],
    responses: [&'static str; 2],
}

/// As captured from Linux 6.12 with nvme-cli 2.3, which generated the secrets: the host's responses
/// are its own, and it accepted the controller's.
const EXCHANGES: [Exchange; 3] = [
    Exchange {
        hash: Hash::Sha256,
        transaction: 1,
        secrets: [
            "DHHC-1:01:3qBU6jhsYwEevM4qPTo9xQ4p7ts00akBzd40/EuBVarTyj0V:",
            "DHHC-1:01:ujInvB6WZBqNVhcrbPlFy4iwsgRhWnydI7g+sSiEVSz+JusN:",
        ],
        sequences: [0xa861_bc01, 0xe0d5_717b],
        challenges: [
            "144c107c519c9c76da7351a6837bf6edb0e9075133f12af96b546ae88db8fef1",
            "d303596b66410bad8d80b8a50bb306f837c9124cbeb8df6c52b198c64013c625",
        ],
        responses: [
            "8b4a16094d431aa103bab26395d8f0d9352c4b0397796aa851217f5990820154",
            "564a4fe5736d856dacae5738b3ec3c6bb69c8f05d7b2979262bc2a61521d90c8",
        ],
    },
    Exchange {
        hash: Hash::Sha384,
        transaction: 2,
        secrets: [
            "DHHC-1:02:afiKhHlD39+rpEGOHu48mRDIF4dk64xLc28UWw6V9461heV4u9+OwYI20KNfgCv9HX5/Dg==:",
            "DHHC-1:02:HGFukBwEoyID4OYO9k4z8s+Cw1StqUaH7p97kqDQ0B77dgE2E8Tc08/xDvK53DhRdo1G9g==:",
        ],
        sequences: [0x2eb7_e7c5, 0xe0d5_717f],
        challenges: [
            "92d2ab99f36e7384a9062c760eed93ab94dbb85af1ec9e96dae4db5e4590204f53c1d1f833645619ddff6246c8210a89",
            "56200e46b8be286315c2aefd45cb7a0c2cd6cd368d7b6b51fa0de5fe11a0c884248f9c4b1f3bfc2dea5b96c57255ef60",
        ],
        responses: [
            "99dadc97e1e962ea411079241bbde2cf31314df7bf38367b9abd323987981838133ee43805d7694d8ccf96d4cd621446",
            "5add2e07e37655189d4cd6563471d48c1ef6606c88d8b916c0974efc0042e287cbf818a77f2b9cf56a07e02f0e1f517d",
        ],
    },
    Exchange {
        hash: Hash::Sha512,
        transaction: 2,
        secrets: [
            "DHHC-1:03:PLArazLSBtm/o2pCp57fYm7a9z6NClhj3cT6XtFFpflqI2X6XA7WHV/3hCkJYbE1kDW/jQoewK1UjvDLlpRCzDRFeSg=:",
            "DHHC-1:03:gXU9wbt9qscdnGVCtl8IIzSROGbN8Vl8nKysnVxeoOFNgNDlxS0Piz3+WazvqYjdkNjrpqwys6IvlcC5NsKW/LlC1bs=:",
        ],
        sequences: [0xd8ad_20d5, 0xe0d5_7182],
        challenges: [
            "fdfa132a7f8b5ee44adbf9c76c8ed7a94824363097832a19fd32524192b61a64bf09d9e57115c32e9c593569a012be6b6a6533b98cb1b63d6b8e98fec30419c3",
            "ee25090a2a0723d551519dd2d5785495ab81fbb8dfedc3c452abab16f9a30d16668fa13847ffef1f91e72376366d8325105129f99df722a46f3bf4a99ef0b068",
        ],
        responses: [
            "401d3c39a1e5f40075f6bdf04f873af8dd1c7d91a88c84f71680fcb20b43a5dff421181758351fba7594aae4ca01cdc3f8b8532acbc13c37ff1690f7ed89ff99",
            "2119232cbe08d8580c3376e3fdf3bfac1ca912196b6e84eccfbc185f241f4c477766cd1e448b3c292258959ccf2e7b612e7a808b5ef2d773eff522e5609353f8",
        ],
    },
];

#[test]
fn responses_are_those_of_linux() {
    for exchange in EXCHANGES {
        let bytes = |text: &str| -> Vec<u8> {
            let digits = text.as_bytes().chunks(2);
            let byte = |digits: &[u8]| {
                let digits = std::str::from_utf8(digits).expect("ASCII");
                u8::from_str_radix(digits, 16).expect("hexadecimal")
            };
            digits.map(byte).collect()
        };
        let [host, controller] = [0, 1].map(|side| {
            let challenge = bytes(exchange.challenges[side]);
            let proof = ResponseInputs {
                hash: exchange.hash,
                shared: None,
                challenge: &challenge,
                sequence: exchange.sequences[side],
                secure_channel: Negotiate::NO_SECURE_CHANNEL,
                transaction: exchange.transaction,
                host_nqn: "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111",
                subsystem_nqn: "nqn.2026-01.test.ramport:main-secret",
            };
            let secret = secret(exchange.secrets[side]);
            match side {
                0 => proof.of_host(&secret),
                _ => proof.of_controller(&secret),
            }
        });
        assert_eq!(hex(host.as_bytes()), exchange.responses[0]);
        assert_eq!(hex(controller.as_bytes()), exchange.responses[1]);
    }
}
