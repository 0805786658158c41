use volume::{Placement, Provision, VolumeKind};

use super::*;

const EXAMPLE: &str = r#"
portals = ["nvme+tcp://127.0.0.1:4420"]

[hosts."nqn.2014-08.org.nvmexpress:uuid:1b4e28ba"]
addresses = ["192.0.2.0/24"]

[volumes.rd0]
size = "1G"
block_size = 4096
provisioning = "thick"

[volumes.rd0.filters]
delay = { read = "250us", bandwidth = "100M" }
rate_limit = { iops = 1000 }
fault = { seed = 7, rules = [{ on = "read", status = "read_error", per_million = 10 }] }

[targets.nvmet-rd0]
hosts = { "nqn.2014-08.org.nvmexpress:uuid:1b4e28ba" = "read_only" }
namespaces = { 1 = "rd0" }
"#;

fn fault(text: &str) -> String {
    Definitions::from_text(text).expect_err("wrong").to_string()
}

#[test]
fn definitions_survive_a_round_trip_through_toml_and_json() {
    let definitions = Definitions::from_text(EXAMPLE).expect("fine");
    let toml = definitions.to_toml();
    assert_eq!(
        Definitions::from_text(&toml).expect("reads back"),
        definitions
    );
    let json = serde_json::to_string(&definitions).expect("serialises");
    assert_eq!(
        Definitions::from_text(&json).expect("reads back"),
        definitions
    );
}

#[test]
fn the_kind_of_a_volume_is_one_of_its_fields_and_defaults_to_ram() {
    let read =
        |fields: &str| Definitions::from_toml(&format!("[volumes.a]\nsize = \"1G\"\n{fields}"));
    let kind = |fields: &str| {
        read(fields).map(|all| all.volumes.values().next().expect("one").kind.clone())
    };
    let (thin, thick) = (
        KindFields(VolumeKind::Ram {
            provision: Provision::Thin,
        }),
        KindFields(VolumeKind::Ram {
            provision: Provision::Thick,
        }),
    );
    let file = KindFields(VolumeKind::File {
        path: "/a".into(),
        provision: Provision::Thin,
    });
    for (fields, expected) in [
        ("", &thin),
        ("kind = \"file\"\npath = \"/a\"", &file),
        ("provisioning = \"thin\"", &thin),
        ("provisioning = \"thick\"", &thick),
        ("kind = \"ram\"", &thin),
        ("kind = \"ram\"\nprovisioning = \"thick\"", &thick),
    ] {
        assert_eq!(kind(fields).ok().as_ref(), Some(expected), "{fields}");
    }
    let written = serde_json::to_value(read("").expect("fine")).expect("serialises");
    assert_eq!(written["volumes"]["a"]["kind"], "ram");
    assert_eq!(written["volumes"]["a"]["provisioning"], "thin");
    let snapshot = r#"
        [volumes.a]
        size = "1G"
        kind = "snapshot"
        of = "z"
        [volumes.z]
        size = "1G"
    "#;
    let made = Definitions::from_toml(snapshot).expect("fine");
    let read_back = Definitions::from_toml(&made.to_toml()).expect("fine");
    assert_eq!(read_back, made);
}

#[test]
fn where_copies_of_a_volume_are_is_absent_or_complete() {
    let replicated = |placement| {
        KindFields(VolumeKind::Replicated {
            copies: 2,
            placement,
        })
    };
    let placed = replicated(Some(Placement {
        volume: 0x1F,
        nodes: vec![3, 1],
    }));
    for (text, expected) in [
        (r#"{"kind":"replicated","copies":2}"#, replicated(None)),
        (
            r#"{"kind":"replicated","copies":2,"replica":"000000000000001f","nodes":[3,1]}"#,
            placed,
        ),
    ] {
        let read: KindFields = serde_json::from_str(text).expect("fine");
        assert_eq!(read, expected);
        assert_eq!(serde_json::to_string(&read).expect("serialises"), text);
    }
    for (fields, hint) in [
        ("kind = \"replicated\"", "copies = 2"),
        ("copies = 2", "set kind = \"replicated\""),
        (
            "kind = \"replicated\"\ncopies = 2\nnodes = [1, 2]",
            "leave both out",
        ),
        (
            "kind = \"replicated\"\ncopies = 2\nreplica = \"+00000000000001f\"\nnodes = [1, 2]",
            "16 hexadecimal digits",
        ),
    ] {
        let error = fault(&format!("[volumes.a]\nsize = \"1G\"\n{fields}"));
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn fields_that_do_not_fit_the_kind_of_a_volume_are_refused() {
    for (fields, hint) in [
        (
            "kind = \"disk\"",
            "unknown variant `disk`, expected one of `ram`, `file`, `remote`, `snapshot`, `clone`, `linear`, `stripe`, `mirror`, `cache`",
        ),
        ("kind = \"clone\"", "needs `of`"),
        ("of = \"b\"", "`of` is for kind snapshot, clone or cache"),
        (
            "kind = \"snapshot\"\nof = \"b\"\nprovisioning = \"thin\"",
            "`provisioning` is for kinds ram and file",
        ),
        (
            "provisioning = \"fat\"",
            "provisioning \"fat\" is unknown; write thin or thick",
        ),
        ("kind = \"remote\"", "needs the URLs of its disk"),
        ("urls = [\"nvme+tcp://h/nqn.x:y\"]", "set kind = \"remote\""),
        ("kind = \"remote\"\nurls = [\"h\"]", "no scheme"),
        (
            "kind = \"remote\"\nurls = [\"iscsi://a%s3cret@h/iqn.x:y\"]",
            "contains a CHAP secret",
        ),
        ("path = \"/a\"", "set kind = \"file\""),
        ("kind = \"file\"", "needs the path of its file"),
        ("kind = \"linear\"", "needs `members`"),
        (
            "kind = \"cache\"\nof = \"b\"",
            "needs the size of its memory",
        ),
        (
            "cache_mode = \"write-back\"",
            "`sequential_bypass` are for kind cache",
        ),
        (
            "kind = \"cache\"\nof = \"b\"\ncache_size = \"1M\"\ncache_mode = \"fast\"",
            "choose write-through, write-around or write-back",
        ),
        (
            "members = [\"b\"]",
            "`members` is for kinds linear, stripe and mirror",
        ),
        (
            "kind = \"linear\"\nmembers = [\"b\"]\nstripe_unit = \"64K\"",
            "`stripe_unit` is for kind stripe",
        ),
        (
            "kind = \"linear\"\nmembers = [\"b\"]\nresync_rate = \"64K\"",
            "`resync_rate` is for kind mirror",
        ),
    ] {
        let text = format!("[volumes.a]\nsize = \"1G\"\n{fields}");
        let error = Definitions::from_toml(&text).expect_err(fields).to_string();
        assert!(error.contains(hint), "{error}");
    }
}

#[test]
fn snapshots_and_clones_are_made_of_what_fits() {
    let of = |kind: &str, of: &str| format!("kind = \"{kind}\"\nof = \"{of}\"\nsize = \"1G\"\n");
    let file = |a: &str, b: &str| format!("[volumes.a]\n{a}[volumes.b]\n{b}");
    let ram = "size = \"1G\"\n";
    for (text, hint) in [
        (file(&of("snapshot", "none"), ram), "which is not defined"),
        (file(&of("snapshot", "x/y"), ram), "which is not defined"),
        (file(&of("clone", "b"), ram), "clones are of snapshots"),
        (
            file(&of("snapshot", "b"), &of("snapshot", "a")),
            "snapshots are of RAM volumes and clones",
        ),
        (
            file(&of("snapshot", "b"), &of("clone", "a")),
            "it is made of itself by way of",
        ),
        (
            file(&of("snapshot", "b"), &format!("{ram}block_size = 4096")),
            "its block size differs from that of b, 4096; give 4096",
        ),
    ] {
        let told = fault(&text);
        assert!(told.contains(hint), "{told}");
    }
}

#[test]
fn volumes_hold_what_fits_and_nothing_else_uses() {
    let ram = |name: &str| format!("[volumes.{name}]\nsize = \"1M\"\n");
    let linear = |name: &str, members: &str| {
        format!("[volumes.{name}]\nkind = \"linear\"\nmembers = [{members}]\n")
    };
    let (a, b) = (ram("a"), ram("b"));
    let nested: Vec<_> = (0..9)
        .map(|depth| {
            let below = if depth == 0 {
                "a".to_owned()
            } else {
                format!("l{}", depth - 1)
            };
            linear(&format!("l{depth}"), &format!("\"{below}\""))
        })
        .collect();
    let offered = "[targets.\"nqn.2025-01.com.example:t\"]\nnamespaces = { 1 = \"a\" }\n";
    for (text, hint) in [
        (
            linear("l", "\"a\", \"c\"") + &a,
            "it is of c, which is not defined",
        ),
        (linear("l", "\"l\""), "made of itself"),
        (
            linear("l", "\"m\"") + &linear("m", "\"l\""),
            "made of itself",
        ),
        (linear("l", "\"a\", \"a\"") + &a, "a is named twice"),
        (linear("l", ""), "0 members are out of range; name 1 to 64"),
        (
            linear("l", "\"a\"") + &linear("m", "\"b\", \"a\"") + &a + &b,
            "its member a is a member of l, too",
        ),
        (
            linear("l", "\"a\"") + &a + offered,
            "which is a member of l",
        ),
        (
            linear("l", "\"a\"") + &a + "block_size = 4096",
            "its block size differs from that of a, 4096",
        ),
        (nested.concat() + &a, "can be nested 8 deep"),
        (
            format!(
                "{a}{b}[volumes.s]\nkind = \"stripe\"\nmembers = [\"a\", \"b\"]\nstripe_unit = \"5K\""
            ),
            "stripe unit 5 KiB is invalid",
        ),
    ] {
        let told = fault(&text);
        assert!(told.contains(hint), "{told}");
    }
    Definitions::from_toml(&(nested[..8].concat() + &a)).expect("8 deep");
}

#[test]
fn the_sizes_of_volumes_that_hold_others_follow_from_these() {
    let text = r#"
        [volumes.l]
        kind = "linear"
        members = ["s", "a"]
        [volumes.s]
        kind = "stripe"
        members = ["b", "c"]
        stripe_unit = "16K"
        [volumes.a]
        size = "1M"
        [volumes.b]
        size = "1064960"
        [volumes.c]
        size = "3M"
    "#;
    let mut all = Definitions::from_toml(text).expect("they fit");
    all.fill_in_sizes_over_members().expect("they have sizes");
    let size = |name: &str| {
        let name = name.parse().expect("a name");
        all.volumes[&Text(name)].size.0
    };
    assert_eq!(size("s"), 2 * 1_064_960);
    assert_eq!(size("l"), 2 * 1_064_960 + (1 << 20));
    assert_eq!(
        Definitions::from_toml(&all.to_toml()).expect("reads back"),
        all
    );
    let other = Definitions::from_toml(
        &text.replace("members = [\"s\"", "size = \"9M\"\nmembers = [\"s\""),
    );
    let other = other.expect("sizes are compared when it is created");
    let wrong = other.check_new_size(&other.volumes[&Text("l".parse().expect("a name"))]);
    assert!(matches!(wrong, Err(ParentFault::DerivedSize { .. })));
}

#[test]
fn a_share_needs_nothing_but_its_name() {
    let shares = |text: &str| Definitions::from_toml(text).expect("fine");
    let all = shares("[shares.db]");
    let db = &all.shares[&Text("db".parse().expect("a name"))];
    assert_eq!(*db, Share::default());
    assert_eq!(
        serde_json::to_value(db).expect("serialises"),
        serde_json::json!({
            "kind": "ramfs",
            "files_max": 1 << 20,
            "clients": [],
            "options": "rw,sync,secure,root_squash,anonuid=65534,anongid=65534",
        })
    );
    let all = shares(
        "[shares.db]\nquota = \"8G\"\nclients = [\"192.0.2.0/24\", \"::1\"]\noptions = \"ro\"",
    );
    assert_eq!(shares(&all.to_toml()), all, "it reads back");
    let name = "db".parse().expect("a name");
    let to_server = all.shares[&Text(name)].to_server(&"db".parse().expect("a name"));
    assert_eq!(to_server.path(), "/db");
    assert!(to_server.options.read_only);
    assert_eq!(to_server.clients.len(), 2);
    assert_eq!(
        to_server.kind,
        server::ShareKind::Ramfs {
            quota_bytes: Some(8 << 30),
            files_max: 1 << 20
        }
    );
}

#[test]
fn what_is_unknown_is_refused_by_name() {
    assert!(fault("[volumes.a]\nsize = \"1G\"\ncolour = 1").contains("unknown field `colour`"));
    assert!(fault("[volume.a]\nsize = \"1G\"").contains("unknown field `volume`"));
    assert!(fault("[volumes.a]").contains("size 0 B is out of range"));
}

#[test]
fn invalid_values_are_refused_with_a_hint() {
    for (text, hint) in [
        ("[volumes.a]\nsize = \"1X\"", "use K, M, G"),
        ("[volumes.a]\nsize = \"1K\"", "choose a size from 1 MiB"),
        ("[volumes.a]\nsize = 1048577", "the next valid size is"),
        (
            "[volumes.a]\nsize = \"1G\"\nblock_size = 1024",
            "choose 512 or 4096",
        ),
        ("[volumes.\"a b\"]\nsize = \"1G\"", "use letters"),
        ("portals = [\"localhost\"]", "host names are not resolved"),
        (
            "[targets.t]\nnamespaces = { 0 = \"a\" }",
            "namespace IDs start at 1",
        ),
        (
            "[targets.t]\nnamespaces = { 1 = \"a\" }",
            "which is not defined",
        ),
        (
            "[targets.t]\nhosts = { h = \"read_only\" }",
            "which is not defined",
        ),
        (
            "[targets.t]\nhosts = {}\nany_host = \"read_only\"",
            "keep one of them",
        ),
        ("[hosts.h]\ntold_by = \"address\"", "give addresses"),
        (
            "[hosts.\"nqn.2014-08.org.nvmexpress:uuid:1\".chap]\nuser = \"h\"\nsecret = \"open sesame, please\"",
            "NVMe does not use CHAP",
        ),
        ("[hosts.h]\naddresses = [\"1.2.3.4/40\"]", "from 0 to 32"),
        (
            "[volumes.a]\nsize = \"1G\"\nfilters = { fault = { rules = [{ status = \"busy\", every = 1, per_million = 1 }] } }",
            "keep one of them",
        ),
        (
            "[volumes.a]\nsize = \"1G\"\nfilters = { fault = { rules = [{ status = \"busy\", per_million = 2000000 }] } }",
            "at most 1000000",
        ),
    ] {
        let told = fault(text);
        assert!(told.contains(hint), "{text}: {told}");
    }
}

#[test]
fn invalid_values_of_shares_are_refused_with_a_hint() {
    for (text, hint) in [
        ("[shares.db]\nquota = \"8\"", "at least 1 MiB"),
        ("[shares.db]\nfiles_max = 0", "nonzero"),
        ("[shares.db]\nkind = \"disk\"", "expected `ramfs` or `dir`"),
        ("[shares.db]\nkind = \"dir\"", "needs a directory"),
        ("[shares.db]\npath = \"/srv/db\"", "for kind dir"),
        (
            "[shares.db]\nkind = \"dir\"\npath = \"srv\"",
            "path srv is not absolute",
        ),
        (
            "[shares.db]\nkind = \"dir\"\npath = \"/srv\"\nquota = \"8G\"",
            "for kind ramfs",
        ),
        (
            "[shares.db]\nkind = \"dir\"\npath = \"/srv\"\nfiles_max = 5",
            "for kind ramfs",
        ),
        (
            "[shares.db]\nclients = [\"*.lan\"]",
            "is a pattern of names",
        ),
        ("[shares.db]\noptions = \"rw,krb5\"", "use rw, ro, sync"),
        ("[shares.\"..\"]", "choose another"),
    ] {
        let told = fault(text);
        assert!(told.contains(hint), "{text}: {told}");
    }
}
