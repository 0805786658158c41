//! Values that other programs have computed.

use super::*;
use crate::auth::response::generate;

const NQN: &str = "nqn.2014-08.org.example:host";

/// Text without a transformation, function, and what the text with that function is, as
/// `nvme gen-dhchap-key --nqn=nqn.2014-08.org.example:host --secret=… --hmac=0…3` of nvme-cli 2.3, 2.13 and
/// 2.16 prints them alike. nvme-cli transforms the secret before it prints it, so the key in the second text
/// is the transformed one of the first.
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

/// Function and generated key, as drivers/nvme/common/tests/auth_kunit.c of Linux 7.1 has them: the session
/// key is 41h, 42h and so on, C1 is 0, 1 and so on, C2 is FFh, FEh and so on.
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
