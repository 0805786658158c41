//! The messages of this crate's errors.

use block::every_variant;
use block::testing::messages;
use initiator::QueueError;

use super::*;
use crate::numbers::NumberError;

fn name() -> String {
    "nvme+tcp://192.0.2.1/nqn.2025-01.com.example:rd0".to_owned()
}

fn denied() -> io::Error {
    io::Error::other("Permission denied")
}

#[test]
fn messages_of_runs_that_were_not_made() {
    let errors = every_variant!(BenchError {
        BenchError::Attach { .. } => [BenchError::Attach {
            source_name: name(),
            source: ConnectError::NoTarget { example: name() },
        }],
        BenchError::Open { .. } => [BenchError::Open { path: "/dev/nvme1n1".into(), source: denied() }],
        BenchError::InUse { .. } => [BenchError::InUse { path: "/dev/nvme1n1".into() }],
        BenchError::EmptyFile { .. } => [BenchError::EmptyFile { path: "file".into() }],
        BenchError::TooFewQueues { .. } => [BenchError::TooFewQueues { source_name: name(), wanted: 200, possible: 128 }],
        BenchError::TooDeep { .. } => [BenchError::TooDeep { source_name: name(), wanted: 4096, possible: 1023 }],
        BenchError::TransferTooLong { .. } => [BenchError::TransferTooLong {
            source_name: name(),
            wanted: 2 << 20,
            possible: 1 << 20,
        }],
        BenchError::Unaligned { .. } => [BenchError::Unaligned { source_name: name(), bs: 512, unit_bytes: 4096 }],
        BenchError::UnalignedOffset { .. } => [BenchError::UnalignedOffset {
            source_name: name(),
            offset_bytes: 100,
            unit_bytes: 512,
        }],
        BenchError::BeyondEnd { .. } => [BenchError::BeyondEnd {
            source_name: name(),
            len_bytes: 1 << 30,
            end_bytes: 2 << 30,
        }],
        BenchError::RegionTooSmall { .. } => [BenchError::RegionTooSmall {
            source_name: name(),
            region_bytes: 512,
            bs: 4096,
        }],
        BenchError::Option { .. } => [BenchError::Option { option: "iodepth", value: 0, expected: "choose 1 to 1024" }],
        BenchError::Time { .. } => [BenchError::Time {
            option: "runtime",
            time: Duration::ZERO,
            min: Duration::from_millis(1),
            max: Duration::from_secs(3600),
        }],
        BenchError::Memory { .. } => [BenchError::Memory { wanted_bytes: 64 << 30, available_bytes: 8 << 30 }],
        BenchError::NotStorage { .. } => [BenchError::NotStorage { path: "/dev/null".into() }],
        BenchError::HoldsData { .. } => [BenchError::HoldsData { names: name() }],
        BenchError::Lengthens { .. } => [BenchError::Lengthens { names: "file".to_owned() }],
        BenchError::Interrupted => [BenchError::Interrupted],
        BenchError::Combination { .. } => [BenchError::Combination {
            option: "offset",
            conflict: "is not possible with --suite; leave it out",
        }],
        BenchError::Pin { .. } => [BenchError::Pin { cpu: 99, source: io::Error::other("Invalid argument") }],
        BenchError::Port { .. } => [
            BenchError::Port { source_name: name(), source: PortError::Queue(QueueError::Detached) },
            BenchError::Port { source_name: name(), source: PortError::Silent { waited: Duration::from_secs(60) } },
            BenchError::Port { source_name: "file".to_owned(), source: PortError::File(denied()) },
        ],
        BenchError::Write { .. } => [BenchError::Write { path: "latency.svg".into(), source: denied() }],
        BenchError::Draw { .. } => [BenchError::Draw { path: "latency.svg".into(), reason: "no font".to_owned() }],
    });
    insta::assert_snapshot!(messages(&errors));
}

#[test]
fn messages_of_numbers_that_cannot_be_read() {
    let text = || "4x".to_owned();
    let errors = every_variant!(NumberError {
        NumberError::Len { .. } => [NumberError::Len { text: text() }],
        NumberError::Time { .. } => [NumberError::Time { text: text() }],
        NumberError::Cpus { .. } => [NumberError::Cpus { text: text() }],
    });
    insta::assert_snapshot!(messages(&errors));
}
