use std::collections::BTreeMap;

use control::{
    Access, AttachmentView, Contents, Filters, Identity, KindFields, NamespaceView, Nsid,
    Provision, StatisticsView, Text, VolumeKind, VolumeState,
};

use super::*;

const NQN: &str = "nqn.2025-01.com.example:rd0";
const IQN: &str = "iqn.2025-01.com.example:rd0";
const NVME_HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6";
const ISCSI_HOST: &str = "iqn.1993-08.org.debian:01:9b8e2c";

/// A daemon with one target that `hosts` may use and one volume in it.
struct Site {
    target: TargetView,
    hosts: Vec<HostView>,
    portals: Vec<PortalView>,
    volumes: Vec<VolumeView>,
}

impl Site {
    fn new(name: &str, hosts: &[&str], portals: &[&str]) -> Self {
        let nsid = u32::from(name == NQN);
        let list = hosts.iter().map(|host| {
            let host = host.parse().expect("a host");
            (Text(host), Access::ReadWrite)
        });
        Self {
            target: TargetView {
                name: name.to_owned(),
                protocol: String::new(),
                any_host: None,
                hosts: (!hosts.is_empty()).then(|| list.collect()),
                luns: BTreeMap::new(),
                portal_groups: Vec::new(),
                chap: None,
                namespaces: vec![NamespaceView {
                    nsid,
                    volume: "rd-0".to_owned(),
                }],
                sessions: 0,
                warnings: Vec::new(),
                statistics: StatisticsView::default(),
            },
            hosts: hosts.iter().map(|host| defined(host)).collect(),
            portals: portals.iter().map(|url| open(url)).collect(),
            volumes: vec![volume(name, nsid)],
        }
    }

    fn lines(&self, wish: &Wish<'_>) -> Result<ConnectLines, ConnectLineError> {
        let offer = Offer {
            target: &self.target,
            hosts: &self.hosts,
            portals: &self.portals,
            volumes: &self.volumes,
        };
        lines(&offer, wish)
    }

    /// The commands of a host with a TLS key.
    fn tls_commands(&self) -> Result<Vec<String>, ConnectLineError> {
        let offer = Offer {
            target: &self.target,
            hosts: &[],
            portals: &self.portals,
            volumes: &[],
        };
        let has_tls = |transport| transport == Transport::NvmeTcp;
        nvme_commands(&offer, &Wish::default(), (NVME_HOST, "--tls"), has_tls)
    }

    fn all(&self) -> ConnectLines {
        self.lines(&Wish::default()).expect("lines")
    }
}

fn defined(name: &str) -> HostView {
    HostView {
        name: name.to_owned(),
        told_by: ToldBy::Name,
        addresses: Vec::new(),
        chap: None,
        dhchap: None,
        tls: None,
        targets: Vec::new(),
    }
}

fn open(url: &str) -> PortalView {
    PortalView {
        require_auth: false,
        open: false,
        url: url.to_owned(),
        state: PortalState::Open,
        rdma: None,
        tls: None,
        provider: None,
        segmentation: None,
        reason: None,
        connections: 0,
        statistics: None,
    }
}

fn volume(target: &str, nsid: u32) -> VolumeView {
    let uuid = "6ba7b810-9dad-41d1-80b4-00c04fd430c8";
    VolumeView {
        name: "rd-0".to_owned(),
        size_bytes: 1 << 20,
        block_size: 512,
        kind: KindFields(VolumeKind::Ram {
            provision: Provision::Thin,
        }),
        used_bytes: 0,
        created_unix_s: 0,
        children: Vec::new(),
        identity: Identity::default(),
        read_only: false,
        contents: Contents::Present,
        state: VolumeState::Online,
        problem: None,
        damage: None,
        paths: Vec::new(),
        cache: None,
        mirror: None,
        replication: None,
        filters: Filters::default(),
        save: None,
        attachments: vec![AttachmentView {
            target: target.to_owned(),
            nsid,
            identifiers: Identity {
                uuid: Some(Text(uuid.parse().expect("a UUID"))),
                naa: Some(Text("36ba7b8109dad41d".parse().expect("an NAA designator"))),
                ..Identity::default()
            },
        }],
        statistics: StatisticsView::default(),
    }
}

fn chap(user: &str, mutual: Option<&str>) -> ChapView {
    ChapView {
        user: user.to_owned(),
        mutual_user: mutual.map(str::to_owned),
    }
}

#[test]
fn an_nvme_host_connects_with_its_name_and_mounts_by_uuid() {
    let site = Site::new(NQN, &[NVME_HOST], &["nvme+tcp://192.0.2.1:4420"]);
    let lines = site.all();
    let shown = serde_json::to_string_pretty(&lines).expect("JSON");
    insta::assert_snapshot!(shown);
}

#[test]
fn ipv6_and_rdma_have_their_own_forms() {
    let portals = ["nvme+rdma://[2001:db8::1]:4421?rdma=hw"];
    let mut site = Site::new(NQN, &[], &portals);
    site.target.any_host = Some(Access::ReadWrite);
    let lines = site.all();
    assert_eq!(
        lines.portals[0].steps.connect,
        [
            "modprobe nvme-rdma",
            "nvme connect --transport=rdma --traddr=2001:db8::1 --trsvcid=4421 --nqn=nqn.2025-01.com.example:rd0"
        ]
    );
    assert_eq!(lines.notes, [""; 0]);
    assert_eq!(lines.host, None);

    let mut site = Site::new(IQN, &[], &["iser://[2001:db8::1]:3260,2"]);
    site.target.any_host = Some(Access::ReadWrite);
    assert_eq!(
        site.all().portals[0].steps.connect,
        [
            "modprobe ib_iser",
            "iscsiadm --mode=node --targetname=iqn.2025-01.com.example:rd0 --portal='[2001:db8::1]:3260' --interface=iser --op=new",
            "iscsiadm --mode=node --targetname=iqn.2025-01.com.example:rd0 --portal='[2001:db8::1]:3260' --interface=iser --login",
        ]
    );
}

#[test]
fn an_initiator_with_mutual_chap_is_asked_for_both_secrets() {
    let mut site = Site::new(IQN, &[ISCSI_HOST], &["iscsi://192.0.2.1:3260"]);
    site.hosts[0].chap = Some(chap("o'ther", Some("ramport")));
    let shown = serde_json::to_string_pretty(&site.all()).expect("JSON");
    insta::assert_snapshot!(shown);
}

#[test]
fn chap_of_the_host_comes_before_that_of_the_target() {
    let mut site = Site::new(IQN, &[ISCSI_HOST], &["iscsi://192.0.2.1:3260"]);
    site.target.chap = Some(chap("everybody", None));
    let update = |site: &Site| site.all().portals[0].steps.connect[2].clone();
    assert!(update(&site).contains("node.session.auth.username --value=everybody "));
    site.hosts[0].chap = Some(chap("other", None));
    assert!(update(&site).contains("node.session.auth.username --value=other "));
    assert!(!update(&site).contains("username_in"));
}

#[test]
fn only_portals_that_lead_to_the_target_are_listed() {
    let portals = [
        "nvme+tcp://192.0.2.1:4420",
        "iscsi://192.0.2.1:3260",
        "iscsi://192.0.2.2:3260,2",
    ];
    let mut site = Site::new(IQN, &[ISCSI_HOST], &portals);
    let urls = |lines: ConnectLines| -> Vec<String> {
        lines.portals.into_iter().map(|portal| portal.url).collect()
    };
    assert_eq!(urls(site.all()), portals[1..]);
    let wish = |url: &str| Wish {
        portal: Some(url.parse().expect("a portal")),
        ..Wish::default()
    };
    let chosen = site.lines(&wish(portals[1])).expect("lines");
    assert_eq!(urls(chosen), [portals[1]]);
    site.target.portal_groups = vec![2];
    assert_eq!(urls(site.all()), [portals[2]]);
    let error = site.lines(&wish(portals[1])).expect_err("another group");
    assert_eq!(
        error.to_string(),
        "iscsi://192.0.2.1:3260 does not lead to iqn.2025-01.com.example:rd0; choose one of iscsi://192.0.2.2:3260,2"
    );
    site.target.portal_groups = vec![3];
    let error = site.lines(&Wish::default()).expect_err("no portal");
    assert!(
        error.to_string().contains("portal create iscsi://ADDRESS"),
        "{error}"
    );
}

#[test]
fn a_portal_on_all_addresses_gets_one_that_others_reach() {
    let mut site = Site::new(NQN, &[NVME_HOST], &["nvme+tcp://0.0.0.0:4420"]);
    let wish = Wish {
        addresses: [Some([192, 0, 2, 9].into()), None],
        ..Wish::default()
    };
    let connect = |lines: &ConnectLines| lines.portals[0].steps.connect[1].clone();
    let lines = site.lines(&wish).expect("lines");
    assert!(connect(&lines).contains("--traddr=192.0.2.9 "));
    assert_eq!(lines.portals[0].notes, [""; 0]);
    site.portals = vec![open("nvme+tcp://[::]:4420")];
    let lines = site.lines(&wish).expect("lines");
    assert!(connect(&lines).contains("--traddr=192.0.2.9 "));
    let unknown = site.all();
    assert!(connect(&unknown).contains("--traddr=ADDRESS "));
    assert!(unknown.portals[0].notes[0].contains("--address"));
}

#[test]
fn what_keeps_other_machines_away_is_told() {
    let mut site = Site::new(NQN, &[], &["nvme+tcp://127.0.0.1:4420"]);
    let lines = site.all();
    assert!(
        lines.notes[0].contains("hosts on this machine only"),
        "{:?}",
        lines.notes
    );
    assert!(
        lines.notes[1].contains("portal create nvme+tcp://ADDRESS"),
        "{:?}",
        lines.notes
    );
    assert!(lines.portals[0].notes[0].contains("loopback"));
    site.portals.push(open("nvme+tcp://192.0.2.1:4420"));
    site.portals[1].state = PortalState::Closed;
    site.portals[1].reason = Some("the address is taken".to_owned());
    let lines = site.all();
    assert_eq!(lines.notes.len(), 1, "{:?}", lines.notes);
    assert_eq!(
        lines.portals[1].notes,
        ["The portal is closed: the address is taken."]
    );
}

#[test]
fn the_host_must_be_one_that_the_target_accepts() {
    let other = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
    let portals = ["nvme+tcp://192.0.2.1:4420"];
    let mut site = Site::new(NQN, &[NVME_HOST, "backup"], &portals);
    let wish = |host| Wish {
        host: Some(host),
        ..Wish::default()
    };
    let refused = |site: &Site, host| site.lines(&wish(host)).expect_err("rejected").to_string();
    assert!(refused(&site, other).contains("does not list host"));
    let lines = site.all();
    assert_eq!(lines.host, None);
    assert!(
        lines.notes[0].contains("several hosts"),
        "{:?}",
        lines.notes
    );
    site.hosts[1].told_by = ToldBy::Address;
    site.hosts[1].addresses = vec!["192.0.2.7".to_owned()];
    let lines = site.lines(&wish("backup")).expect("lines");
    assert!(!lines.portals[0].steps.connect[1].contains("--hostnqn"));
    assert_eq!(lines.notes, ["The host may connect from 192.0.2.7 only."]);
    site.target.hosts = None;
    site.target.any_host = Some(Access::ReadWrite);
    assert!(refused(&site, ISCSI_HOST).contains("is not a host of nvme"));
    assert_eq!(
        site.lines(&wish(other)).expect("lines").host.as_deref(),
        Some(other)
    );
    site.target.any_host = None;
    site.target.hosts = Some(BTreeMap::new());
    let error = site.lines(&Wish::default()).expect_err("nobody");
    assert!(error.to_string().contains("lists no host"), "{error}");
}

#[test]
fn a_host_with_mapped_luns_sees_its_own_numbers() {
    let mut site = Site::new(IQN, &[ISCSI_HOST], &["iscsi://192.0.2.1:3260"]);
    let map = BTreeMap::from([(Nsid(5), Nsid(0))]);
    let host = ISCSI_HOST.parse().expect("a host");
    site.target.luns.insert(Text(host), map);
    let numbers =
        |site: &Site| -> Vec<u32> { site.all().disks.iter().map(|disk| disk.number).collect() };
    assert_eq!(numbers(&site), [5]);
    site.target.luns.values_mut().for_each(BTreeMap::clear);
    assert_eq!(numbers(&site), [0; 0]);
}

#[test]
fn names_are_quoted_for_the_shell() {
    let mut site = Site::new(NQN, &[], &["nvme+tcp://192.0.2.1:4420"]);
    site.target.name = "nqn.2025-01.com.example:a$(reboot)".to_owned();
    let lines = site.all();
    let connect = &lines.portals[0].steps.connect[1];
    assert!(
        connect.ends_with("--nqn='nqn.2025-01.com.example:a$(reboot)'"),
        "{connect}"
    );
    assert_eq!(
        lines.disconnect,
        ["nvme disconnect --nqn='nqn.2025-01.com.example:a$(reboot)'"]
    );
}

#[test]
fn a_host_with_secrets_names_the_files_that_hold_them() {
    let mut site = Site::new(NQN, &[NVME_HOST], &["nvme+tcp://192.0.2.1:4420"]);
    site.hosts[0].dhchap = Some(DhChapView {
        has_other_secret: false,
        has_ctrl_secret: true,
        hash: None,
        dhgroup: Text::default(),
    });
    let lines = site.all();
    let connect = lines.portals[0].steps.connect.last().expect("a command");
    let secrets =
        r#"--dhchap-secret="$(cat SECRET-FILE)" --dhchap-ctrl-secret="$(cat CTRL-SECRET-FILE)""#;
    assert!(connect.ends_with(secrets), "{connect}");
}

#[test]
fn a_key_has_commands_for_portals_and_targets_that_use_it() {
    let (tcp, rdma) = ("nvme+tcp://192.0.2.1:4420", "nvme+rdma://192.0.2.1:4420");
    let commands = Site::new(NQN, &[], &[tcp, rdma]).tls_commands();
    let commands = commands.expect("a portal with TLS");
    assert_eq!(commands.len(), 1);
    assert!(commands[0].contains("--transport=tcp"), "{commands:?}");
    let told = Site::new(NQN, &[], &[rdma]).tls_commands();
    let told = told.expect_err("no portal with TLS").to_string();
    assert!(told.contains("create nvme+tcp://ADDRESS"), "{told}");
    let told = Site::new(IQN, &[], &["iscsi://192.0.2.1:3260"]).tls_commands();
    assert!(matches!(told, Err(ConnectLineError::NotNvme { .. })));
}

#[test]
fn an_srp_portal_is_added_by_the_targets_port_identifier() {
    let host = "0x0000000000000005505400fffe123456";
    let site = Site::new(IQN, &[host], &["srp://192.0.2.1:5555"]);
    let lines = site.all();
    let steps = &lines.portals[0].steps;
    let port = server::srp_port(&IQN.parse().expect("a name"));
    assert_eq!(
        steps.connect,
        [
            "modprobe ib_srp".to_owned(),
            format!(
                "echo id_ext={:016x},ioc_guid={:016x},dest=192.0.2.1:5555,initiator_ext=0000000000000005 > {}",
                port.extension(),
                port.guid(),
                "\"$(ls -d /sys/class/infiniband_srp/srp-*/add_target | head -n 1)\""
            )
        ]
    );
    assert!(steps.discover.is_empty() && steps.at_boot.commands.is_empty());
    assert_eq!(lines.disconnect.len(), 1);
    assert!(
        lines
            .notes
            .iter()
            .all(|note| !note.contains("initiatorname.iscsi"))
    );
}
