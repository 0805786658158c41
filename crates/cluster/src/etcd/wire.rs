//! Messages of etcd's JSON gateway: fields that are used here. Bytes are base64 and 64-bit integers
//! are decimal texts (protocol buffers' JSON mapping); a field with its default value is absent.
//!
//! Read first: etcd's `rpc.proto` and `kv.proto`, version 3.4.

use base64ct::{Base64, Encoding as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes, as base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&Base64::encode_string(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Base64::decode_vec(&text)
            .map(Self)
            .map_err(|_| serde::de::Error::custom("expected base64"))
    }
}

/// A 64-bit integer, as decimal text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Int(pub(super) i64);

impl Serialize for Int {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(Self)
            .map_err(|_| serde::de::Error::custom("expected an integer as text"))
    }
}

/// The same, without a sign: member and lease numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Id(pub(super) u64);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map(Self)
            .map_err(|_| serde::de::Error::custom("expected a number as text"))
    }
}

/// `ResponseHeader`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub(super) revision: Int,
}

/// `RangeRequest`.
#[derive(Debug, Default, Serialize)]
pub(super) struct RangeRequest {
    pub(super) key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Bytes>,
    /// 0: no limit.
    pub(super) limit: Int,
    /// 0: the newest.
    pub(super) revision: Int,
}

/// `KeyValue`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    pub(super) mod_revision: Int,
    /// 0: none.
    pub(super) lease: Int,
}

/// `RangeResponse`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeResponse {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
    pub(super) more: bool,
}

/// `Compare`.
#[derive(Debug, Serialize)]
pub(super) struct Compare {
    pub(super) key: Bytes,
    pub(super) target: &'static str,
    pub(super) result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mod_revision: Option<Int>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) create_revision: Option<Int>,
}

/// `RequestOp`: one of its fields is there.
#[derive(Debug, Default, Serialize)]
pub(super) struct RequestOp {
    #[serde(rename = "requestPut", skip_serializing_if = "Option::is_none")]
    pub(super) put: Option<PutRequest>,
    #[serde(rename = "requestDeleteRange", skip_serializing_if = "Option::is_none")]
    pub(super) delete: Option<DeleteRangeRequest>,
}

/// `PutRequest`.
#[derive(Debug, Serialize)]
pub(super) struct PutRequest {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    /// 0: none.
    pub(super) lease: Int,
}

/// `DeleteRangeRequest`.
#[derive(Debug, Serialize)]
pub(super) struct DeleteRangeRequest {
    pub(super) key: Bytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Bytes>,
}

/// `TxnRequest`.
#[derive(Debug, Serialize)]
pub(super) struct TxnRequest {
    pub(super) compare: Vec<Compare>,
    pub(super) success: Vec<RequestOp>,
}

/// `TxnResponse`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnResponse {
    pub(super) header: Header,
    pub(super) succeeded: bool,
}

/// `LeaseGrantRequest`.
#[derive(Debug, Serialize)]
pub(super) struct LeaseGrantRequest {
    /// Seconds.
    #[serde(rename = "TTL")]
    pub(super) ttl: Int,
}

/// `LeaseKeepAliveRequest` and `LeaseRevokeRequest`.
#[derive(Debug, Serialize)]
pub(super) struct LeaseRequest {
    #[serde(rename = "ID")]
    pub(super) id: Int,
}

/// `LeaseGrantResponse` and `LeaseKeepAliveResponse`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseResponse {
    #[serde(rename = "ID")]
    pub(super) id: Int,
    /// Seconds; 0 of a lease that does not exist.
    #[serde(rename = "TTL")]
    pub(super) ttl: Int,
}

/// A message of a stream.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: T,
}

/// `WatchRequest` with its `WatchCreateRequest`.
#[derive(Debug, Serialize)]
pub(super) struct WatchRequest {
    pub(super) create_request: WatchCreateRequest,
}

/// `WatchCreateRequest`.
#[derive(Debug, Serialize)]
pub(super) struct WatchCreateRequest {
    pub(super) key: Bytes,
    pub(super) range_end: Bytes,
    pub(super) start_revision: Int,
}

/// `WatchResponse`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchResponse {
    pub(super) header: Header,
    pub(super) canceled: bool,
    pub(super) compact_revision: Int,
    pub(super) events: Vec<WireEvent>,
}

/// `Event`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireEvent {
    /// `PUT`, which is left out, or `DELETE`.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) kv: KeyValue,
}

/// An empty object.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Empty {}

/// `MemberListResponse`, and what adding, promoting and removing a member answers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MembersResponse {
    pub(super) members: Vec<WireMember>,
}

/// `Member`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMember {
    #[serde(rename = "ID")]
    pub(super) id: Id,
    pub(super) name: String,
    #[serde(rename = "peerURLs")]
    pub(super) peer_urls: Vec<String>,
    #[serde(rename = "clientURLs")]
    pub(super) client_urls: Vec<String>,
    #[serde(rename = "isLearner")]
    pub(super) is_learner: bool,
}

/// `MemberAddRequest`.
#[derive(Debug, Serialize)]
pub(super) struct MemberAddRequest {
    #[serde(rename = "peerURLs")]
    pub(super) peer_urls: Vec<String>,
    #[serde(rename = "isLearner")]
    pub(super) is_learner: bool,
}

/// `MemberRemoveRequest` and `MemberPromoteRequest`.
#[derive(Debug, Serialize)]
pub(super) struct MemberRequest {
    #[serde(rename = "ID")]
    pub(super) id: Id,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_base64_and_integers_are_texts() {
        let request = RangeRequest {
            key: Bytes(b"a".to_vec()),
            range_end: Some(Bytes(b"b".to_vec())),
            limit: Int(5),
            revision: Int(-1),
        };
        let text = serde_json::to_string(&request).expect("serialised");
        assert_eq!(
            text,
            r#"{"key":"YQ==","range_end":"Yg==","limit":"5","revision":"-1"}"#
        );
    }

    #[test]
    fn what_etcd_leaves_out_is_the_default_and_other_types_are_errors() {
        let read = |text: &str| serde_json::from_str::<RangeResponse>(text);
        let empty = read("{}").expect("read");
        assert_eq!((empty.header.revision, empty.kvs.len()), (Int(0), 0));
        let one = r#"{"header":{"revision":"7"},"kvs":[{"key":"YQ==","mod_revision":"3"}],"x":1}"#;
        let one = read(one).expect("read");
        assert_eq!(one.kvs[0].key, Bytes(b"a".to_vec()));
        assert_eq!(one.kvs[0].mod_revision, Int(3));
        for text in [
            r#"{"header":{"revision":7}}"#,
            r#"{"header":{"revision":"9223372036854775808"}}"#,
            r#"{"kvs":[{"key":"*"}]}"#,
            r#"{"kvs":{}}"#,
            "[]x",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
