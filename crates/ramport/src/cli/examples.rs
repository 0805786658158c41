//! Worked examples of every verb, which stand at the end of `--help` and of the manual pages. A
//! test parses each of them and, for `apply`, the file; tests/docs/run executes them.

pub(crate) const SERVE: &str = "\
Examples:
  An NVMe/TCP portal; RAM is allocated on write, up to 80 % of available memory:
    ramport serve --nvme-tcp 192.0.2.1
  Both protocols, at most 4 GiB, pinned to two cores:
    ramport serve --nvme-tcp 192.0.2.1 --iscsi 192.0.2.1 --memory 4G --cores 0,1
  Without root, with all files in one directory:
    ramport serve --state rd/state --socket rd/socket
  Scratch space: after a restart, serve empty volumes without an acknowledgement:
    ramport serve --nvme-tcp 192.0.2.1 --lost-contents zeros
  REST over TCP too, with a token; and over TLS, with a log of who changes what:
    ramport serve --api-listen 127.0.0.1:8080 --api-token-file token
    ramport serve --api-listen 192.0.2.1:8443 --audit-log audit
  A machine that may become a node of a cluster (docs/cluster.md):
    ramport serve --cluster 192.0.2.1 --cluster-token-file cluster-token --memory 4G";

pub(crate) const TOKEN: &str = "\
Examples:
  From creation to removal:
    ramport token create monitoring --role read-only
    ramport token ls
    ramport token remove monitoring";

pub(crate) const TOKEN_CREATE: &str = "\
Examples:
  For one who takes snapshots; the token is printed once:
    ramport token create backup --role operator
  For a client with a certificate for ops.example (`serve --api-client-ca`):
    ramport token create ops.example --role read-only --certificate";

pub(crate) const TOKEN_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport token ls
    ramport token ls --json";

pub(crate) const TOKEN_REMOVE: &str = "\
Examples:
  Its next request is rejected:
    ramport token remove backup";

pub(crate) const CLUSTER: &str = "\
Examples:
  On one of three machines that run `serve --cluster`, then on any of them:
    ramport cluster create lab --nodes 192.0.2.1,192.0.2.2,192.0.2.7
    ramport cluster ls
    ramport node ls";

pub(crate) const CLUSTER_CREATE: &str = "\
Examples:
  Three nodes, which run etcd:
    ramport cluster create lab --nodes 192.0.2.1,192.0.2.2,192.0.2.7
  Two nodes and a machine that only runs etcd:
    ramport cluster create lab --nodes 192.0.2.1,192.0.2.2 --witness 192.0.2.7
  With an etcd that exists:
    ramport cluster create lab --nodes 192.0.2.1,192.0.2.2 --etcd https://192.0.2.7:2379 \\
      --etcd-ca ca.pem --etcd-cert client.pem --etcd-key client-key.pem";

pub(crate) const CLUSTER_JOIN: &str = "\
Examples:
  On the new machine, with the address of a node:
    ramport cluster join 192.0.2.1";

pub(crate) const CLUSTER_LEAVE: &str = "\
Examples:
  This machine lends the cluster no memory any more:
    ramport cluster leave --force";

pub(crate) const CLUSTER_SET: &str = "\
Examples:
  Machines that are away for less than an hour find their copies again:
    ramport cluster set --repair-after 1h
  Copies are made elsewhere only when a node is drained:
    ramport cluster set --repair-after never";

pub(crate) const CLUSTER_LIST: &str = "\
Examples:
  For people, and for scripts:
    ramport cluster ls
    ramport cluster ls --json";

pub(crate) const NODE: &str = "\
Examples:
  Which nodes are up; then one of them:
    ramport node ls
    ramport node show n1
  Before a machine is stopped, and when it is back:
    ramport node drain n1
    ramport node undrain n1";

pub(crate) const NODE_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport node ls
    ramport node ls --json";

pub(crate) const NODE_DRAIN: &str = "\
Examples:
  Before the machine is stopped:
    ramport node drain n1
  Without waiting; then how far that is:
    ramport node drain n1 --no-wait
    ramport node show n1";

pub(crate) const NODE_UNDRAIN: &str = "\
Examples:
  When the machine is back:
    ramport node undrain n1";

pub(crate) const NODE_SHOW: &str = "\
Examples:
  One node:
    ramport node show n1";

pub(crate) const VOLUME_CREATE: &str = "\
Examples:
  Memory is allocated on write and freed by discards:
    ramport volume create rd0 --size 50G
  All memory allocated at once, and blocks of 4096 bytes:
    ramport volume create rd1 --size 512MiB --block-size 4096 --thick
  In a file, which is created; and in a disk, of which all is used:
    ramport volume create v0 --file /srv/v0.img --size 10G
    ramport volume create v1 --file /dev/nvme0n1 --block-size 4096
  Two volumes one after another; and units of 16 KiB of three in turn:
    ramport volume create l0 --linear rd0,rd2
    ramport volume create s0 --stripe rd3,rd4,rd5 --stripe-unit 16K
  The same bytes on two volumes, of which either may fail:
    ramport volume create m0 --mirror rd9,rd10
  512 MiB of memory in front of a volume in a file:
    ramport volume create c0 --cache-of v0 --cache-size 512M
  On the disk of another machine:
    ramport volume create r0 --remote nvme+tcp://192.0.2.2/nqn.2026-11.com.example:rd0
  A copy in the memory of two nodes of a cluster:
    ramport volume create v1 --size 1G --copies 2
  Saved every five minutes and at shutdown, and restored from there after a restart:
    ramport volume create rd6 --size 1G --save-to /srv/saves --save-every 5m --after-crash restore
  What another volume was when it was saved:
    ramport volume create rd7 --from /srv/saves/rd0-monday.save";

pub(crate) const VOLUME_COPY: &str = "\
Examples:
  A volume into a file, and back; only what is not zero is written:
    ramport volume copy rd0 /srv/rd0.img
    ramport volume copy /srv/rd0.img rd1 --verify
  The disk of another machine into a volume that holds data:
    ramport volume copy nvme+tcp://192.0.2.2/nqn.2026-11.com.example:rd0 rd0 --force";

pub(crate) const VOLUME_SET: &str = "\
Examples:
  Saved every five minutes and at shutdown, and restored from there after a restart:
    ramport volume set rd0 --save-to /srv/saves --save-every 5m --after-crash restore
  Not any more:
    ramport volume set rd0 --no-save";

pub(crate) const VOLUME_RESTORE: &str = "\
Examples:
  From the file of --save-to; and from another:
    ramport volume restore rd0 --force
    ramport volume restore rd0 /srv/saves/rd0-monday.save --force";

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
    ramport portal create iser://192.0.2.1:3260
  SRP, for the targets of iSCSI:
    ramport portal create srp://192.0.2.1:5555
  BRP, for ramport itself on other machines (`ramport bench`, volumes of kind remote):
    ramport portal create brp://192.0.2.1:4424
    ramport portal create brp+rdma://192.0.2.1:4424
  NFS:
    ramport portal create nfs://192.0.2.1:2049
  For hosts with secrets only, for discovery too:
    ramport portal create iscsi://192.0.2.2:3260 --require-auth";

pub(crate) const SHARE: &str = "\
Examples:
  From creation to removal:
    ramport portal create nfs://192.0.2.1
    ramport share create db --client 192.0.2.0/24
    ramport share show db
    ramport share remove db";

pub(crate) const SHARE_CREATE: &str = "\
Examples:
  For the clients of one network, with at most 8 GiB of memory:
    ramport share create db --client 192.0.2.0/24 --quota 8G
  One client writes; every client may read, as nobody:
    ramport share create scratch --client 192.0.2.7 --options rw,no_root_squash
    ramport share create docs --client 0.0.0.0/0 --client ::/0 --options ro,all_squash
  A directory of this machine, for which all clients act as its owner, user 990:
    ramport share create pub --kind dir --path /srv/pub --client 192.0.2.0/24
    ramport share set pub --options all_squash,anonuid=990,anongid=990";

pub(crate) const SHARE_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport share ls
    ramport share ls --json";

pub(crate) const SHARE_SHOW: &str = "\
Examples:
  Files, memory, clients, options, and the line that mounts it:
    ramport share show db";

pub(crate) const SHARE_SET: &str = "\
Examples:
  Read-only from now on; other options stay:
    ramport share set db --options ro
  More memory, and other clients:
    ramport share set db --quota 16G --client 192.0.2.7 --client 2001:db8::/32";

pub(crate) const SHARE_ERASE: &str = "\
Examples:
  A share that no session uses:
    ramport share erase scratch
  A share that is in use:
    ramport share erase db --force";

pub(crate) const SHARE_REMOVE: &str = "\
Examples:
  A share without files and sessions:
    ramport share remove scratch
  A share with files, which are lost:
    ramport share remove db --force";

pub(crate) const PORTAL_SET: &str = "\
Examples:
  Serve NVMe targets over RDMA too:
    ramport portal set nvme+tcp://192.0.2.1:4420 --rdma on
  Serve iSCSI targets over iSER too, and stop that:
    ramport portal set iscsi://192.0.2.1:3260 --rdma on
    ramport portal set iscsi://192.0.2.1:3260 --rdma off
  Move its hosts from an adapter to software, and back:
    ramport portal set nvme+tcp://192.0.2.1:4420 --rdma soft
    ramport portal set nvme+tcp://192.0.2.1:4420 --rdma hw
  Reject hosts without a secret from now on:
    ramport portal set nvme+tcp://192.0.2.1:4420 --require-auth on";

pub(crate) const HOST: &str = "\
Examples:
  An NVMe host that may connect only from one network:
    ramport host create nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6 \\
      --address 192.0.2.0/24
  An iSCSI initiator with CHAP; the file contains the secret:
    ramport host create iqn.1993-08.org.debian:01:9b8e2c --chap-user other --chap-secret-file secret
  An NVMe host that has to prove a secret; the file contains it:
    ramport host create nqn.2014-08.org.nvmexpress:uuid:5d0f2a91-c02c-11ee-8442-830d068a36c6 \\
      --dhchap-secret-file dhchap-secret
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

pub(crate) const WATCH: &str = "\
Examples:
  A screen:
    ramport watch
  The figures of one interval, as a table and as JSON:
    ramport watch --once
    ramport watch --once --json --interval 500ms";

pub(crate) const FLEET: &str = "\
Examples:
  Two clients, each with a volume; all volumes are loaded at the same time:
    ramport fleet create --clients 2
    ramport fleet run --sweep runtime=1
    ramport fleet rm";

pub(crate) const FLEET_CREATE: &str = "\
Examples:
    ramport fleet create --clients 2 --size 32M";

pub(crate) const FLEET_LIST: &str = "\
Examples:
    ramport fleet ls
    ramport fleet ls --json";

pub(crate) const FLEET_REMOVE: &str = "\
Examples:
    ramport fleet rm";

pub(crate) const FLEET_RUN: &str = "\
Examples:
  Reads alone, and with 10 and 30 % writes:
    ramport fleet run --sweep bs=4k --sweep w=0,10,30 --sweep runtime=1
  All figures for other programs:
    ramport fleet run --sweep runtime=1 --json
    ramport fleet run --sweep runtime=1 --csv fleet.csv --svg fleet.svg
  On each of several nodes, the same time to begin, and counts for `fleet merge`:
    ramport fleet run --sweep runtime=1 --begin 4102444800 --counts n1.counts";

pub(crate) const FLEET_MERGE: &str = "\
Examples:
  What fleets on two nodes counted, whose commands had the same --sweep and --begin:
    ramport fleet merge n1.counts n2.counts
    ramport fleet merge n1.counts n2.counts --csv fleet.csv --svg fleet.svg";

pub(crate) const STUDY_RDMA: &str = "\
Examples:
  A short one:
    ramport study rdma --runtime 1 --repeats 1 --warm-up 0
  As the published one, as Markdown, JSON and SVG:
    ramport study rdma --output /tmp";

pub(crate) const DISCOVER: &str = "\
Examples:
    ramport discover nvme+tcp://192.0.2.1
    ramport discover nvme+rdma://192.0.2.1
    ramport discover iscsi://192.0.2.1:3260 --timeout 2s
  As the CHAP user `other`, as JSON:
    ramport discover iscsi://other%twelve-bytes-or-more@192.0.2.1 --json";

pub(crate) const ATTACH: &str = "\
Examples:
  A disk over NVMe/TCP, as a block device such as /dev/loop0:
    ramport attach nvme+tcp://192.0.2.1/nqn.2025-01.com.example:rd0
  By a name, for reading only; requests fail when the target has been away for 30 s:
    ramport attach iscsi://192.0.2.1/iqn.2025-01.com.example:rd0/0 --name db1 --read-only \\
      --give-up-after 30s";

pub(crate) const DETACH: &str = "\
Examples:
  List the attached disks, and detach one that is not mounted:
    ramport detach
    ramport detach disk0";

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

pub(crate) const RAMPORT: &str = "\
Examples:
  A disk of 50 GiB for one host, and what that host needs to use it:
    ramport serve --nvme-tcp 192.0.2.1
    ramport volume create rd0 --size 50G
    ramport target create nqn.2025-01.com.example:rd0 --volume rd0 \\
      --host nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6
    ramport connect-line nqn.2025-01.com.example:rd0";

pub(crate) const DEMO: &str = "\
Examples:
  A disk of 256 MiB, without serving it afterwards:
    ramport demo --size 256M --once";

pub(crate) const VOLUME: &str = "\
Examples:
  From creation to removal:
    ramport volume create db1 --size 50G
    ramport volume show db1
    ramport volume grow db1 10G
    ramport volume remove db1";

pub(crate) const VOLUME_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport volume ls
    ramport volume ls --json";

pub(crate) const VOLUME_SHOW: &str = "\
Examples:
  Size, filters, identifiers and counters:
    ramport volume show rd0";

pub(crate) const VOLUME_RESIZE: &str = "\
Examples:
  To a larger size, which attached hosts see:
    ramport volume resize rd0 --size 2G
  To a smaller size; data beyond are lost:
    ramport volume resize rd0 --size 512M --force";

pub(crate) const VOLUME_GROW: &str = "\
Examples:
  By 10 GiB, while hosts use it:
    ramport volume grow rd0 10G";

pub(crate) const VOLUME_ADD_MEMBER: &str = "\
Examples:
  Create a third volume, and let a linear volume grow by it:
    ramport volume create c --size 1G
    ramport volume add-member l0 c
  By a volume in a file, also if the others are memory:
    ramport volume create d --file /srv/d.img --size 1G
    ramport volume add-member l0 d";

pub(crate) const VOLUME_CACHE: &str = "\
Examples:
  Answer writes when they are in the cache; hosts flush what has to be safe:
    ramport volume cache c0 --mode write-back
  Give it more memory, and keep long sequential streams, too:
    ramport volume cache c0 --size 1G --sequential-bypass 0
  Give memory back; what is dirty is written first:
    ramport volume cache c0 --size 64M";

pub(crate) const VOLUME_MIRROR: &str = "\
Examples:
  Take a member out of use, and use it again; only what it missed is copied:
    ramport volume mirror m0 --fail b
    ramport volume mirror m0 --return b
  Replace a member while hosts use the mirror:
    ramport volume create c --size 1G
    ramport volume mirror m0 --replace b=c
  Copy at most 100 MiB per second to members that missed something:
    ramport volume mirror m0 --resync-rate 100M";

pub(crate) const VOLUME_SCRUB: &str = "\
Examples:
  Report where members of a mirror differ, and repair that:
    ramport volume scrub m0
    ramport volume scrub m0 --repair";

pub(crate) const VOLUME_SHRINK: &str = "\
Examples:
  By 512 MiB; data beyond the new end are lost:
    ramport volume shrink rd0 512M --force";

pub(crate) const VOLUME_ERASE: &str = "\
Examples:
  A volume that no host uses:
    ramport volume erase rd1
  A volume that hosts use:
    ramport volume erase rd0 --force";

pub(crate) const VOLUME_LOCK: &str = "\
Examples:
  Keep hosts from writing:
    ramport volume lock rd0";

pub(crate) const VOLUME_UNLOCK: &str = "\
Examples:
  Let hosts write again:
    ramport volume unlock rd0";

pub(crate) const VOLUME_ACKNOWLEDGE: &str = "\
Examples:
  One volume, or every volume that lost its contents:
    ramport volume acknowledge rd0
    ramport volume acknowledge --all";

pub(crate) const VOLUME_CLONE: &str = "\
Examples:
  A copy of a snapshot that can be written:
    ramport volume clone before-upgrade --name trial";

pub(crate) const VOLUME_ROLLBACK: &str = "\
Examples:
  Back to what the volume was; what was written since is lost:
    ramport volume rollback rd0 --to before-upgrade --force";

pub(crate) const FILTER: &str = "\
Examples:
  Emulate a slower disk, and end that:
    ramport volume filter set rd0 --iops 50000
    ramport volume filter clear rd0";

pub(crate) const FILTER_SET: &str = "\
Examples:
  Limits:
    ramport volume filter set rd0 --iops 50000 --bandwidth 200M
  A delay of every read:
    ramport volume filter set rd0 --delay-read 250us
  One read in 10,000 fails; every thousandth command is answered with busy:
    ramport volume filter set rd0 --fault read:read_error:ppm=100 --fault any:busy:every=1000";

pub(crate) const FILTER_CLEAR: &str = "\
Examples:
  Only the delays:
    ramport volume filter clear rd0 delay
  All filters:
    ramport volume filter clear rd0";

pub(crate) const VOLUME_REMOVE: &str = "\
Examples:
  A volume that is not attached and holds no data:
    ramport volume remove rd1
  A volume that is attached, or holds data, which are lost:
    ramport volume remove rd2 --force";

pub(crate) const TARGET: &str = "\
Examples:
  A target for every host of a trusted network, with another volume for a while:
    ramport target create nqn.2025-01.com.example:db1 --volume rd1 --allow-any-host
    ramport target attach nqn.2025-01.com.example:db1 rd2
    ramport target detach nqn.2025-01.com.example:db1 rd2
    ramport target remove nqn.2025-01.com.example:db1";

pub(crate) const TARGET_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport target ls
    ramport target ls --json";

pub(crate) const TARGET_SHOW: &str = "\
Examples:
  Volumes, hosts, sessions and counters:
    ramport target show nqn.2025-01.com.example:rd0";

pub(crate) const TARGET_SET: &str = "\
Examples:
  Replace the list of hosts:
    ramport target set nqn.2025-01.com.example:rd0 \\
      --host nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6
  Any host may read:
    ramport target set nqn.2025-01.com.example:rd0 --allow-any-host=read-only
  CHAP for every initiator without CHAP settings of its own; the file contains the secret:
    ramport target set iqn.2025-01.com.example:rd0 --chap-secret-file secret";

pub(crate) const TARGET_ATTACH: &str = "\
Examples:
  With the lowest free number, and with a given number:
    ramport target attach nqn.2025-01.com.example:rd0 rd1
    ramport target attach nqn.2025-01.com.example:rd0 rd2 --nsid 7";

pub(crate) const TARGET_DETACH: &str = "\
Examples:
  By name, and by number even if hosts use it:
    ramport target detach nqn.2025-01.com.example:rd0 rd0
    ramport target detach iqn.2025-01.com.example:rd0 0 --force";

pub(crate) const TARGET_REMOVE: &str = "\
Examples:
  A target without sessions; its volumes stay:
    ramport target remove nqn.2025-01.com.example:rd0
  A target with sessions, which end:
    ramport target remove iqn.2025-01.com.example:rd0 --force";

pub(crate) const HOST_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport host ls
    ramport host ls --json";

pub(crate) const HOST_SHOW: &str = "\
Examples:
  Addresses, CHAP and targets:
    ramport host show backup";

pub(crate) const HOST_SET: &str = "\
Examples:
  Other addresses; what is not given gets its default:
    ramport host set backup --address 192.0.2.8 --told-by-address";

pub(crate) const HOST_KEYGEN: &str = "\
Examples:
  A secret, and the commands that use it on both sides:
    ramport host keygen nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6
  The same, with the target and its portals in the line for the host:
    ramport host keygen --target nqn.2025-01.com.example:rd0 nqn.2014-08.org.example:h
  The secret alone, for a file:
    ramport host keygen --json
  A longer key:
    ramport host keygen --hash sha512";

pub(crate) const HOST_REMOVE: &str = "\
Examples:
  A host that no target lists:
    ramport host remove backup";

pub(crate) const PORTAL: &str = "\
Examples:
  Open a portal, look at it, and close it:
    ramport portal create nvme+tcp://192.0.2.2:4420
    ramport portal show nvme+tcp://192.0.2.2:4420
    ramport portal remove nvme+tcp://192.0.2.2:4420";

pub(crate) const PORTAL_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport portal ls
    ramport portal ls --json";

pub(crate) const PORTAL_SHOW: &str = "\
Examples:
  Whether it is open, and what connects to it:
    ramport portal show nvme+tcp://192.0.2.1:4420";

pub(crate) const PORTAL_REMOVE: &str = "\
Examples:
  A portal without connections:
    ramport portal remove nvme+tcp://192.0.2.1:4420
  A portal with connections, which end:
    ramport portal remove iscsi://192.0.2.1:3260 --force";

pub(crate) const REFERRAL: &str = "\
Examples:
  Refer hosts to another machine, and end that:
    ramport referral create nvme+tcp://192.0.2.2:8009
    ramport referral ls
    ramport referral remove nvme+tcp://192.0.2.2:8009";

pub(crate) const REFERRAL_CREATE: &str = "\
Examples:
  Discovery here also lists that service:
    ramport referral create nvme+tcp://192.0.2.2:8009";

pub(crate) const REFERRAL_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport referral ls
    ramport referral ls --json";

pub(crate) const REFERRAL_SHOW: &str = "\
Examples:
  One referral:
    ramport referral show nvme+tcp://192.0.2.7:8009";

pub(crate) const REFERRAL_REMOVE: &str = "\
Examples:
  Discovery here no longer lists that service:
    ramport referral remove nvme+tcp://192.0.2.7:8009";

pub(crate) const SESSION: &str = "\
Examples:
  Find a session, and end it:
    ramport session ls
    ramport session remove 1";

pub(crate) const SESSION_LIST: &str = "\
Examples:
  As a table, and for scripts:
    ramport session ls
    ramport session ls --json";

pub(crate) const SESSION_SHOW: &str = "\
Examples:
  Names, addresses, negotiated keys and counters:
    ramport session show 1";

pub(crate) const SESSION_REMOVE: &str = "\
Examples:
  A host may connect again; `ramport target set` keeps it away:
    ramport session remove 1";

pub(crate) const LS: &str = "\
Examples:
  As a tree, and for scripts:
    ramport ls
    ramport ls --json";

pub(crate) const CAPACITY: &str = "\
Examples:
  As a table, and for scripts:
    ramport capacity
    ramport capacity --json";

pub(crate) const FABRIC: &str = "\
Examples:
  As a table, and for scripts:
    ramport fabric ls
    ramport fabric ls --json";

pub(crate) const COMPLETIONS: &str = "\
Examples:
  For a session of bash, whose file `make install` and the packages install:
    ramport completions bash > ramport.bash
  For zsh, in a folder of its fpath:
    ramport completions zsh > _ramport";

pub(crate) const MAN: &str = "\
Examples:
  In a folder that `man --manpath` or `man ./man/ramport.1` reads:
    ramport man man";

pub(crate) const STUDY: &str = "\
Examples:
  Latencies of BRP beside SRP, NVMe and iSCSI, in a few seconds:
    ramport study brp --series latency --quick";

pub(crate) const STUDY_BRP: &str = "\
Examples:
  This machine, all series (about two hours), with the report in a folder:
    ramport study brp --output /srv/report
  A first impression of latencies:
    ramport study brp --series latency --quick
  The daemon of another machine, measured from this one:
    ramport --api https://192.0.2.2:8443 --api-token-file token study brp --target 192.0.2.2";
