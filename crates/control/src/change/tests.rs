use proptest::prelude::*;

use super::*;
use crate::definitions::{Access, Nsid};

/// Definitions that agree with themselves, from a few names, so that two of them overlap.
pub(crate) fn definitions() -> impl Strategy<Value = Definitions> {
    let names = || prop::collection::btree_set(0..4_u32, 0..4);
    (
        prop::collection::btree_map(0..4_u32, (1..4_u64, any::<bool>()), 0..4),
        names(),
        prop::collection::btree_map(0..3_u32, (names(), 0..3_u8, names()), 0..3),
        names(),
        prop::collection::btree_map(0..3_u32, (1..4_u64, any::<bool>()), 0..3),
    )
        .prop_map(|(volumes, hosts, targets, portals, shares)| {
            let mut definitions = Definitions::default();
            for (n, (mib, read_only)) in volumes {
                let volume = serde_json::json!({ "size": mib << 20, "read_only": read_only });
                let volume = serde_json::from_value(volume).expect("a volume");
                definitions.volumes.insert(name("v", n), volume);
            }
            for n in hosts {
                definitions.hosts.insert(name("h", n), Host::default());
            }
            for (n, (namespaces, policy, listed)) in targets {
                let namespaces = namespaces
                    .into_iter()
                    .map(|v| (Nsid(v + 1), name("v", v)))
                    .filter(|(_, volume)| definitions.volumes.contains_key(volume));
                let listed = listed
                    .into_iter()
                    .map(|h| (name("h", h), Access::ReadWrite))
                    .filter(|(host, _)| definitions.hosts.contains_key(host));
                let target = Target {
                    luns: BTreeMap::new(),
                    any_host: (policy == 1).then_some(Access::ReadOnly),
                    hosts: (policy == 2).then(|| listed.collect()),
                    portal_groups: std::collections::BTreeSet::new(),
                    chap: None,
                    namespaces: namespaces.collect(),
                };
                definitions.targets.insert(name("t", n), target);
            }
            for (n, (mib, read_only)) in shares {
                let options = if read_only { "ro" } else { "rw" };
                let share = serde_json::json!({ "quota": mib << 20, "options": options });
                let share = serde_json::from_value(share).expect("a share");
                definitions.shares.insert(name("s", n), share);
            }
            for n in portals {
                let portal = format!("127.0.0.1:{}", 4420 + n).parse().expect("a portal");
                definitions.portals.insert(portal);
                let referral = format!("192.0.2.{n}:8009").parse().expect("a referral");
                definitions.referrals.insert(referral);
            }
            definitions
        })
}

fn name<T: crate::text::Written>(prefix: &str, number: u32) -> Text<T> {
    format!("{prefix}{number}").parse().expect("a plain name")
}

proptest! {
    #[test]
    fn changes_from_a_to_b_make_b(a in definitions(), b in definitions()) {
        let mut made = a.clone();
        for change in a.changes_to(&b) {
            made.make(change);
        }
        prop_assert_eq!(&made, &b);
        prop_assert!(made.changes_to(&b).is_empty());
    }

    #[test]
    fn everything_is_the_changes_from_nothing(a in definitions()) {
        let mut made = Definitions::default();
        for change in a.as_changes() {
            made.make(change);
        }
        prop_assert_eq!(made, a);
    }

    #[test]
    fn changes_read_back_as_they_are_written(a in definitions(), b in definitions()) {
        let changes = a.changes_to(&b);
        let json = serde_json::to_string(&changes).expect("serialises");
        let read: Vec<Change> = serde_json::from_str(&json).expect("reads back");
        prop_assert_eq!(read, changes);
    }
}

#[test]
fn changes_are_shown_by_field() {
    let read = |text: &str| Definitions::from_toml(text).expect("definitions");
    let before = read(
        "[volumes.a]\nsize = \"1M\"\n[volumes.b]\nsize = \"1M\"\n[shares.s]\nquota = \"1M\"\n[shares.gone]",
    );
    let after = read(
        "portals = [\"127.0.0.1\"]\n[volumes.a]\nsize = \"2M\"\nread_only = true\n[targets.t]\nnamespaces = { 1 = \"a\" }\n[shares.s]\noptions = \"ro\"",
    );
    let shown = describe(&before, &before.changes_to(&after));
    assert_eq!(
        shown,
        [
            "~ volume a read_only: none -> true size: 1 MiB -> 2 MiB",
            "+ target t namespaces: 1 a",
            "~ share s options: rw,sync,secure,root_squash,anonuid=65534,anongid=65534 -> ro,sync,secure,root_squash,anonuid=65534,anongid=65534 quota: 1 MiB -> none",
            "- share gone (its files are lost)",
            "- volume b (its contents are lost)",
            "+ portal nvme+tcp://127.0.0.1:4420",
        ]
    );
}

#[test]
fn changes_show_no_secret() {
    let host = |letter: &str| {
        let secret = format!("DHHC-1:00:{}:", letter.repeat(48));
        let psk = format!("NVMeTLSkey-1:01:{}:", letter.repeat(48));
        format!(
            "[hosts.\"nqn.2014-08.org.example:h\"]\n\
             chap = {{ user = \"u\", secret = \"{a}\", mutual = {{ user = \"t\", secret = \"{b}\" }} }}\n\
             dhchap = {{ secret = \"{secret}\", other_secret = \"{secret}\", ctrl_secret = \"{secret}\" }}\n\
             tls = {{ psk = \"{psk}\", other_psk = \"{psk}\" }}\n",
            a = letter.repeat(16),
            b = letter.repeat(17),
        )
    };
    let [before, after] = ["q", "z"].map(|letter| toml::from_str(&host(letter)).expect("TOML"));
    let nothing = Definitions::default();
    for (before, after) in [(&nothing, &before), (&before, &after), (&after, &nothing)] {
        for line in describe(before, &before.changes_to(after)) {
            let shown = ["qqqq", "zzzz"].iter().any(|secret| line.contains(secret));
            assert!(!shown, "{line}");
        }
    }
}
