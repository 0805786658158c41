//! The messages for command lines that cannot be understood.

use block::every_variant;
use block::testing::messages;

use super::tests::parse;
use super::values::ValueError;

/// Command lines, each with a mistake of its own.
const LINES: [&str; 55] = [
    "volum ls",
    "volume creat rd0",
    "volume create",
    "volume create rd0",
    "volume create rd0 --size 50X",
    "volume create rd0 --size 1.3K",
    "volume create rd0 --size 1G --kind disk",
    "volume snapshot rd0",
    "volume snapshot rd0 --name s1 --suffix -1",
    "volume clone s1",
    "volume set rd0",
    "volume set rd0 --save-to a --no-save",
    "volume create rd0 --size 1G --save-every often",
    "volume acknowledge",
    "volume acknowledge rd0 --all",
    "volume filter set rd0",
    "volume filter set rd0 --delay soon",
    "volume filter set rd0 --fault read:broken",
    "volume filter clear rd0 everything",
    "target create",
    "target create nqn.2025-01.com.example:rd0 --volume rd0=x",
    "target create nqn.2025-01.com.example:rd0 --host a --allow-any-host",
    "target create iqn.2025-01.com.example:rd0 --luns a",
    "target set a --chap-user a",
    "host create a --address nowhere",
    "host create a --told-by-address",
    "portal create localhost",
    "portal create smb://192.0.2.1",
    "portal create nfs://192.0.2.1?rdma=on",
    "share create db --options rw,krb5",
    "share create db --options anonuid=nobody",
    "share create db --files 0",
    "share set db",
    "portal set nvme+tcp://192.0.2.1 --rdma maybe",
    "portal set nvme+tcp://192.0.2.1",
    "portal create nfs://192.0.2.1?auth=required",
    "serve --cores none",
    "serve --memory 120%",
    "serve --api-tls on",
    "serve --api-listen 127.0.0.1:8080 --api-cert cert.pem",
    "serve --api-client-ca ca.pem",
    "token create ci --role root",
    "--api 192.0.2.1:8443 --api-client-cert cert.pem ls",
    "--api 192.0.2.1:8443 --api-client-key key.pem ls",
    "--api 192.0.2.1 --api-token-file token ls",
    "serve --drain 5x",
    "--api 127.0.0.1:8080 ls",
    "session show first",
    "discover 192.0.2.1",
    "top --interval 50ms",
    "portal create nvme+tcp://192.0.2.1:70000",
    "discover nvme+tcp://192.0.2.1:70000",
    "bench disk --rw sideways",
    "bench disk --runtime soon",
    "bench nvme+rdma://192.0.2.1/a?rdma=maybe",
];

#[test]
fn messages_of_mistakes() {
    let told = LINES.map(|line| {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
        format!("$ ramport {line}\n{error}")
    });
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn messages_of_values_that_cannot_be() {
    let text = || "x".to_owned();
    let errors = every_variant!(ValueError {
        ValueError::Nsid(_) => [ValueError::Nsid(text())],
        ValueError::LunMap(_) => [ValueError::LunMap(text())],
        ValueError::Memory(_) => [ValueError::Memory(text())],
        ValueError::Cores(_) => [ValueError::Cores(text())],
        ValueError::Fault(_) => [ValueError::Fault(text())],
    });
    insta::assert_snapshot!(messages(&errors));
}
