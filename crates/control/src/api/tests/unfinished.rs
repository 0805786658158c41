//! Changes while a thread hangs in the middle of a command.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use block::testing::{LateVolume, Lateness};
use block::{BlockSize, Blocks, Extent, Lba};
use initiator::{Device, DeviceOptions, Operation, Request, Slot};
use server::{HostPolicy, LoginPolicy, NamespaceDefinition, TargetDefinition, VolumeName};
use volume::Managed;

use super::*;
use crate::text::Portal;

const TARGET: &str = "nqn.2026-11.com.example:slow";
/// How long a thread may take to come to a command: far more than it needs.
const PATIENCE: Duration = Duration::from_secs(30);

impl Daemon {
    /// Offers a volume that no definition knows, and has the reactor stop in a write to it until
    /// [`LateVolume::go_on`]. Returns the host, too.
    fn stop_in_write(&self) -> (Arc<Managed<LateVolume>>, Device) {
        let slow = Arc::new(Managed::new(LateVolume::new(BlockSize::B512, 2048)));
        slow.volume().set_lateness(Lateness::Never);
        let server = self.engine.server();
        let name: VolumeName = "slow".parse().expect("a name");
        let added = server.add_volume(name.clone(), slow.clone());
        added.expect("a new name");
        let target = TargetDefinition {
            name: TARGET.parse().expect("a name"),
            logins: LoginPolicy::default(),
            hosts: HostPolicy::Local,
            namespaces: vec![NamespaceDefinition {
                nsid: 1,
                volume: name,
            }],
        };
        server.create_target(target).expect("a target");
        let Portal(portal) = "nvme+tcp://127.0.0.1:0".parse().expect("a portal");
        let portal = server.add_portal(portal).expect("a free port");
        let url = format!("{portal}/{TARGET}?ns=1").parse().expect("a URL");
        let device = Device::connect(&url, &DeviceOptions::default());
        let mut device = device.expect("connects");
        let mut queue = device.take_queues().remove(0);
        slow.volume().stop_next_write();
        let write = Request {
            slot: Slot(0),
            operation: Operation::Write,
            extent: Extent::new(Lba(0), Blocks(1)),
        };
        queue.submit(write).expect("the slot is free");
        let end = Instant::now() + PATIENCE;
        while !slow.volume().is_stopped() {
            queue.poll(Instant::now(), &mut Vec::new()).expect("up");
            assert!(Instant::now() < end, "no write");
            thread::sleep(Duration::from_millis(1));
        }
        (slow, device)
    }

    /// The error of a request, which the daemon answers with a status of 500.
    fn unfinished(&self, method: &str, path: &str, body: &Value) {
        let (status, text) = self.client.raw(method, path, body).expect("an answer");
        assert_eq!(status, 500, "{text}");
        let answer: Value = serde_json::from_str(&text).expect("a document");
        assert_eq!(answer["error"]["kind"], "unfinished", "{text}");
        assert!(text.contains("the change is made, but"), "{text}");
    }

    fn status(&self, method: &str, path: &str, body: &Value) -> u16 {
        let answer = self.client.raw(method, path, body);
        answer.expect("an answer").0
    }
}

#[test]
fn a_change_that_a_hanging_thread_may_not_obey_is_made_and_reported() {
    let daemon = Daemon::start();
    for name in ["a", "b"] {
        let path = format!("/v1/volumes/{name}");
        assert_eq!(daemon.status("POST", &path, &json!({"size": "1M"})), 201);
    }
    let (slow, _device) = daemon.stop_in_write();
    daemon.unfinished("PATCH", "/v1/volumes/a", &json!({"read_only": true}));
    daemon.unfinished("DELETE", "/v1/volumes/b", &Value::Null);
    slow.volume().go_on();
    let is_locked = || {
        let (_, text) = daemon
            .client
            .raw("GET", "/v1/definitions", &Value::Null)
            .expect("an answer");
        let definitions: Value = serde_json::from_str(&text).expect("a document");
        let volumes = definitions["volumes"].as_object().expect("volumes");
        assert_eq!(volumes.keys().collect::<Vec<_>>(), ["a"]);
        volumes["a"]["read_only"] == true
    };
    assert!(is_locked());
    assert_eq!(daemon.status("GET", "/v1/volumes/b", &Value::Null), 404);
    // What gives a right back does not wait for threads, and a thread that goes on ends a wait.
    for read_only in [false, true] {
        let patch = json!({"read_only": read_only});
        assert_eq!(daemon.status("PATCH", "/v1/volumes/a", &patch), 200);
    }
    assert!(is_locked());
}
