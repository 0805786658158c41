//! Worked examples, which stand at the end of `--help` and of the manual pages. A test parses each
//! of them and, for `apply`, the file.

pub(crate) const SERVE: &str = "\
Examples:
  An NVMe/TCP portal; RAM is allocated on write, up to 80 % of available memory:
    ramport serve --nvme-tcp 192.0.2.1
  Both protocols, at most 50 GiB, pinned to two cores:
    ramport serve --nvme-tcp 192.0.2.1 --iscsi 192.0.2.1 --memory 4G --cores 0,1
  Without root, with all files in one directory:
    ramport serve --state rd/state --socket rd/socket
  Scratch space: after a restart, serve empty volumes without an acknowledgement:
    ramport serve --nvme-tcp 192.0.2.1 --lost-contents zeros
  REST over TCP too, with a token:
    ramport serve --api-listen 127.0.0.1:8080 --api-token-file token";

pub(crate) const VOLUME_CREATE: &str = "\
Examples:
  Memory is allocated on write and freed by discards:
    ramport volume create rd0 --size 50G
  All memory allocated at once, and blocks of 4096 bytes:
    ramport volume create rd1 --size 512MiB --block-size 4096 --thick
  In a file, which is created; and in a disk, of which all is used:
    ramport volume create v0 --file /srv/v0.img --size 10G
    ramport volume create v1 --file /dev/nvme0n1 --block-size 4096
  Saved every five minutes and at shutdown, and restored from there after a restart:
    ramport volume create rd2 --size 1G --save-to /srv/saves --save-every 5m --after-crash restore";

pub(crate) const VOLUME_SAVE: &str = "\
Examples:
  To a file, once:
    ramport volume save rd0 /srv/saves/rd0-monday.save
  Every five minutes and at shutdown, as /srv/saves/rd0.save, and now:
    ramport volume set rd0 --save-to /srv/saves --save-every 5m
    ramport volume save rd0
  Back to what it was:
    ramport volume restore rd0 /srv/saves/rd0-monday.save --force";

pub(crate) const VOLUME_SNAPSHOT: &str = "\
Examples:
  A snapshot of one volume, and a copy of it that can be written:
    ramport volume snapshot rd0 --name before-upgrade
    ramport volume clone before-upgrade --name trial
  Of two volumes at one moment, named rd0-monday and rd1-monday:
    ramport volume snapshot rd0 rd1 --suffix -monday
  Back to what the volume was:
    ramport volume rollback rd0 --to before-upgrade --force";

pub(crate) const TARGET_CREATE: &str = "\
Examples:
  For one NVMe host; its name is in its /etc/nvme/hostnqn:
    ramport target create nqn.2025-01.com.example:rd0 --volume rd0 \\
      --host nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6
  Two volumes, as namespaces 1 and 7, for every host of a trusted network:
    ramport target create nqn.2025-01.com.example:two --volume rd0 --volume rd1=7 --allow-any-host
  Over iSCSI, with a generated name; LUN 0 is rd0:
    ramport target create --iscsi --volume rd0 --host iqn.1993-08.org.debian:01:9b8e2c";

pub(crate) const PORTAL_CREATE: &str = "\
Examples:
  NVMe/TCP on one address, and at another port on every address of the machine:
    ramport portal create nvme+tcp://192.0.2.1:4420
    ramport portal create nvme+tcp://[::]:4421
  iSCSI, in portal group 2:
    ramport portal create iscsi://192.0.2.1:3260,2
  NVMe over RDMA:
    ramport portal create nvme+rdma://192.0.2.1:4420
  The same, with an adapter only:
    ramport portal create nvme+rdma://192.0.2.1:4420?rdma=hw
  iSCSI over RDMA (iSER):
    ramport portal create iser://192.0.2.1:3260";

pub(crate) const PORTAL_SET: &str = "\
Examples:
  Serve NVMe targets over RDMA too:
    ramport portal set nvme+tcp://192.0.2.1:4420 --rdma on
  Serve iSCSI targets over iSER too, and stop that:
    ramport portal set iscsi://192.0.2.1:3260 --rdma on
    ramport portal set iscsi://192.0.2.1:3260 --rdma off
  Move its hosts from an adapter to software, and back:
    ramport portal set nvme+tcp://192.0.2.1:4420 --rdma soft
    ramport portal set nvme+tcp://192.0.2.1:4420 --rdma hw";

pub(crate) const HOST: &str = "\
Examples:
  An NVMe host that may connect only from one network:
    ramport host create nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6 \\
      --address 192.0.2.0/24
  An iSCSI initiator with CHAP; the file contains the secret:
    ramport host create iqn.1993-08.org.debian:01:9b8e2c --chap-user other --chap-secret-file secret
  Any host at an address, whatever name it gives:
    ramport host create backup --address 192.0.2.7 --told-by-address
  A target lists hosts by these names:
    ramport target set nqn.2025-01.com.example:rd0 --host backup";

pub(crate) const CONNECT_LINE: &str = "\
Examples:
  Everything for the only host of a target, through each portal:
    ramport connect-line nqn.2025-01.com.example:rd0
  For one host, through one portal:
    ramport connect-line iqn.2025-01.com.example:rd0 --host iqn.1993-08.org.debian:01:9b8e2c \\
      --portal iscsi://192.0.2.1:3260
  For scripts:
    ramport connect-line nqn.2025-01.com.example:rd0 --json";

pub(crate) const SHELL: &str = "\
Examples:
  With prompt, history and completion by the Tab key:
    ramport shell
  At its prompt, the place fills in the command and the object:
    cd /volumes/rd0
    grow 1G
    filter set --iops 50000
    cd /targets
    ls
  Some commands; the first that fails ends them with its exit status:
    ramport shell 'cd /volumes; create rd0 --size 1G; ls'
  A script, of one or more commands a line:
    ramport shell < script";

pub(crate) const APPLY: &str = "\
Examples:
  Show what would change, then apply all of it or nothing:
    ramport apply site.toml --diff
    ramport apply site.toml
  In a script: 0 means no difference, 3 that something would change, 1 that it would be refused:
    ramport apply site.toml --diff --force
  Keep CHAP secrets in files of their own (first line, readable by the owner only):
    [hosts.\"iqn.1993-08.org.debian:01:9b8e2c\".chap]
    user = \"other\"
    secret_file = \"other.secret\"
A file:
  portals = [\"nvme+tcp://192.0.2.1:4420\"]
  [volumes.rd0]
  size = \"50G\"
  [targets.\"nqn.2025-01.com.example:rd0\"]
  namespaces = { 1 = \"rd0\" }
  hosts = { \"nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6\" = \"read_write\" }
  [hosts.\"nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6\"]
  addresses = [\"192.0.2.0/24\"]";

/// The file in [`APPLY`], indented.
pub(crate) fn definitions_example() -> &'static str {
    let (_, file) = APPLY.split_once("A file:\n").expect("the help has a file");
    file
}

pub(crate) const EXPORT: &str = "\
Examples:
  Definitions for another daemon; CHAP secrets are hidden:
    ramport export > site.toml
  A backup, and its restoration on a new machine (the old one must not serve any more):
    ramport export --with-secrets --output backup.toml
    ramport apply backup.toml";

pub(crate) const TOP: &str = "\
Examples:
  A screen; ? shows its keys:
    ramport top
  Sessions whose target or host has db1 in its name, those with the highest latency first:
    ramport top --view sessions --filter db1 --sort p99
  The figures of one interval, as a table and as JSON:
    ramport top --once
    ramport top --once --json --interval 500ms";

pub(crate) const DISCOVER: &str = "\
Examples:
    ramport discover nvme+tcp://192.0.2.1
    ramport discover nvme+rdma://192.0.2.1
    ramport discover iscsi://192.0.2.1:3260 --timeout 2s
  As the CHAP user `other`, as JSON:
    ramport discover iscsi://other%twelve-bytes-or-more@192.0.2.1 --json";

pub(crate) const BENCH: &str = "\
Examples:
  Random reads of 4 KiB at depth 32 for 10 s:
    ramport bench nvme+tcp://192.0.2.1/nqn.2025-01.com.example:rd0 \\
      --rw randread --bs 4k --iodepth 32 --runtime 10
  A mixed load at a given rate, with a latency plot:
    ramport bench /dev/nvme1n1 --write --rw randrw --rwmixread 70 \\
      --rate-iops 20000 --svg latency.svg
  Write and verify every block (existing data are lost):
    ramport bench iscsi://192.0.2.1/iqn.2025-01.com.example:rd0/0 --write \\
      --rw write --verify --size 1g
  All shapes of the suite that only read:
    ramport bench nvme+tcp://192.0.2.1/nqn.2025-01.com.example:rd0 --suite quick --rw read
  Two volumes in turn, five times each:
    ramport bench --compare nvme+tcp://192.0.2.1/nqn.2025-01.com.example:rd0 /dev/ram0 --runs 5";
