//! The program around a session, in a test.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;

use file_tree::FileTree;

use crate::{
    Answer, Backend, ClientCounts, Clients, Completed, Export, ExportId, ExportOptions, Grant,
    Refusal, ReplyCache, Squash, TRANSFER_BYTES_MAX, WaitingCall,
};

/// Exports, replies and counts of a server. One value is the backend of all its connections, which
/// come from one client.
pub struct TestServer {
    /// What is exported.
    pub exports: Vec<Export>,
    /// The path of an export that the client may not use.
    pub denied: Option<String>,
    /// Completed calls since the value was last cleared, the last [`TestServer::COMPLETED_MAX`] of
    /// them.
    pub completed: Vec<Completed>,
    /// Mounted paths.
    pub mounts: Vec<Vec<u8>>,
    /// See [`Backend::write_verifier`].
    pub verifier: [u8; 8],
    /// See [`Backend::client`].
    pub client: IpAddr,
    /// See [`Backend::back_channel`].
    pub back_channel: Option<u64>,
    /// See [`Backend::transfer_bytes_max`].
    pub transfer_bytes_max: usize,
    /// Calls that wait, until [`finish`](Self::finish) is called.
    pub waiting: Vec<WaitingCall>,
    /// Whether no call may wait.
    pub is_busy: bool,
    /// Whether there is no memory for calls that wait.
    pub is_poor: bool,
    answers: VecDeque<Answer>,
    replies: ReplyCache,
    clients: Clients,
    starts: u32,
}

impl TestServer {
    /// The identifier of the export `/db`.
    pub const ID: ExportId = ExportId(*b"test export /db ");
    /// How many completed calls are remembered.
    pub const COMPLETED_MAX: usize = 256;

    /// A server that exports a tree as `/db` to everyone, root included.
    pub fn new(tree: Arc<dyn FileTree>) -> Self {
        let options = ExportOptions {
            squash: Squash::None,
            ..ExportOptions::default()
        };
        Self {
            exports: vec![Export {
                id: Self::ID,
                path: "/db".into(),
                tree,
                outlives_restart: false,
                may_delegate: true,
                options,
            }],
            denied: None,
            completed: Vec::with_capacity(Self::COMPLETED_MAX),
            mounts: Vec::new(),
            verifier: *b"instance",
            client: Ipv4Addr::LOCALHOST.into(),
            back_channel: None,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            waiting: Vec::new(),
            is_busy: false,
            is_poor: false,
            answers: VecDeque::new(),
            replies: ReplyCache::default(),
            clients: Clients::new(0x5eed),
            starts: 1,
        }
    }

    /// The program ends and starts again: it has noted the clients that may hold state, and nothing
    /// else.
    pub fn restart(&mut self, now: Instant) {
        let (records, hosts) = (self.clients.records(), self.clients.lock_hosts());
        self.clients = Clients::new(0x5eed + self.starts);
        self.starts += 1;
        self.replies = ReplyCache::default();
        self.clients.begin_grace(now, records);
        self.clients.remember_hosts(now, hosts);
    }

    /// Executes a call that waits, as another thread would.
    pub fn finish(&mut self, at: usize) {
        let call = self.waiting.remove(at);
        let answer = call.execute(self);
        self.answers.push_back(answer);
    }

    /// A granted lock of which the client has to be notified.
    pub fn next_grant(&mut self) -> Option<Grant> {
        self.clients.next_grant()
    }

    /// The client has replied to a callback.
    pub fn end_grant(&mut self, grant: &Grant, is_accepted: bool) {
        self.clients.end_grant(grant, is_accepted);
    }

    /// A connection that has something to send.
    pub fn next_wake(&mut self) -> Option<u64> {
        self.clients.next_wake()
    }

    /// What all clients hold.
    pub fn count_clients(&self) -> ClientCounts {
        self.clients.count()
    }

    fn find(&self, is_it: impl Fn(&Export) -> bool) -> Result<&Export, Refusal> {
        let export = self.exports.iter().find(|export| is_it(export));
        let export = export.ok_or(Refusal::Unknown)?;
        match &self.denied {
            Some(denied) if *denied == export.path => Err(Refusal::Denied),
            _ => Ok(export),
        }
    }
}

impl Backend for TestServer {
    fn by_id(&mut self, id: ExportId) -> Result<&Export, Refusal> {
        self.find(|export| export.id == id)
    }

    fn by_path(&mut self, path: &[u8]) -> Result<&Export, Refusal> {
        self.find(|export| export.path.as_bytes() == path)
    }

    fn each_export(&mut self, take: &mut dyn FnMut(&str, &[String])) {
        for export in &self.exports {
            take(
                &export.path,
                &["192.0.2.0/24".into(), "198.51.100.1".into()],
            );
        }
    }

    fn each_mount(&mut self, take: &mut dyn FnMut(&str, &[u8])) {
        for path in &self.mounts {
            take("127.0.0.1", path);
        }
    }

    fn mounted(&mut self, path: &[u8]) {
        self.mounts.push(path.into());
    }

    fn unmounted(&mut self, path: Option<&[u8]>) {
        self.mounts
            .retain(|mounted| path.is_some_and(|path| path != mounted));
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.verifier
    }

    fn scope(&self) -> [u8; 16] {
        *b"test server here"
    }

    fn client(&self) -> IpAddr {
        self.client
    }

    fn transfer_bytes_max(&self) -> usize {
        self.transfer_bytes_max
    }

    fn back_channel(&self) -> Option<u64> {
        self.back_channel
    }

    fn local(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn with_replies(&mut self, use_cache: &mut dyn FnMut(&mut ReplyCache)) {
        use_cache(&mut self.replies);
    }

    fn with_clients(&mut self, use_clients: &mut dyn FnMut(&mut Clients)) {
        use_clients(&mut self.clients);
    }

    fn settle_records(&mut self) {}

    fn charge_waiting(&mut self) -> bool {
        !self.is_poor
    }

    fn submit(&mut self, call: WaitingCall) -> Result<(), WaitingCall> {
        if self.is_busy {
            return Err(call);
        }
        self.waiting.push(call);
        Ok(())
    }

    fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    fn count(&mut self, completed: &Completed, _: Instant) {
        if self.completed.len() == Self::COMPLETED_MAX {
            self.completed.clear();
        }
        self.completed.push(*completed);
    }
}
