//! Members of etcd.

use super::error::EtcdError;
use super::wire::{Empty, Id, MemberAddRequest, MemberRequest, MembersResponse};
use super::{Etcd, Repeat};
use crate::url::EtcdUrl;

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub id: u64,
    /// Its name; empty until it has started.
    pub name: String,
    /// Where other members reach it.
    pub peer_urls: Vec<String>,
    /// Where clients reach it; none until it has started.
    pub client_urls: Vec<EtcdUrl>,
    /// Whether it has no vote yet.
    pub is_learner: bool,
}

impl Etcd {
    /// All members.
    pub async fn members(&self) -> Result<Vec<Member>, EtcdError> {
        let path = "/v3/cluster/member/list";
        let answer: MembersResponse = self.ask(Repeat::Safe, path, &Empty {}).await?;
        let members = answer.members.into_iter().map(|member| Member {
            id: member.id.0,
            name: member.name,
            peer_urls: member.peer_urls,
            client_urls: member
                .client_urls
                .iter()
                .filter_map(|url| url.parse().ok())
                .collect(),
            is_learner: member.is_learner,
        });
        Ok(members.collect())
    }

    /// Adds a member without a vote, which cannot hold up the others.
    pub async fn add_learner(&self, peer_url: String) -> Result<(), EtcdError> {
        let request = MemberAddRequest {
            peer_urls: vec![peer_url],
            is_learner: true,
        };
        let path = "/v3/cluster/member/add";
        let done: Result<Empty, _> = self.ask(Repeat::Unsafe, path, &request).await;
        done.map(drop)
    }

    /// Gives a member a vote, once it has all that the others have; until then etcd refuses.
    pub async fn promote(&self, id: u64) -> Result<(), EtcdError> {
        let path = "/v3/cluster/member/promote";
        let request = MemberRequest { id: Id(id) };
        let done: Result<Empty, _> = self.ask(Repeat::Unsafe, path, &request).await;
        done.map(drop)
    }

    /// Removes a member.
    pub async fn remove_member(&self, id: u64) -> Result<(), EtcdError> {
        let path = "/v3/cluster/member/remove";
        let request = MemberRequest { id: Id(id) };
        let done: Result<Empty, _> = self.ask(Repeat::Unsafe, path, &request).await;
        done.map(drop)
    }
}
