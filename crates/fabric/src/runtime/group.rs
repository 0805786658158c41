//! The runtimes of one address.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use memory::Budget;
use net::{ReactorHandle, ThreadUsage};

use super::{MessageAcceptor, Meter, Metered, Runtime, RuntimeError, RuntimeOptions};

/// Runtimes whose providers share an address, so that peers' connections are spread over threads.
/// They listen and stop together.
pub struct RuntimeGroup(Vec<Runtime>);

impl RuntimeGroup {
    /// Starts a thread for each of `providers`, of which there is at least one. They share the
    /// bounds of `options` equally.
    pub fn start<P: Metered + Send + 'static>(
        providers: Vec<P>,
        reactors: &ReactorHandle,
        budget: &Arc<Budget>,
        options: &RuntimeOptions,
    ) -> Result<Self, RuntimeError> {
        let count = providers.len();
        assert!(count > 0, "a group has a member");
        let start = |(index, provider)| {
            let thread_name = if count == 1 {
                options.thread_name.clone()
            } else {
                format!("{}-{index}", options.thread_name)
            };
            let options = RuntimeOptions {
                thread_name,
                pool_max_bytes: options.pool_max_bytes / count as u64,
            };
            Runtime::start(move || Ok(provider), reactors, Arc::clone(budget), options)
        };
        let runtimes: Result<_, _> = providers.into_iter().enumerate().map(start).collect();
        Ok(Self(runtimes?))
    }

    /// See [`Runtime::listen`]. All of them listen, or none.
    pub fn listen(
        &self,
        port: u16,
        acceptor: &Arc<dyn MessageAcceptor>,
    ) -> Result<(), RuntimeError> {
        for (index, runtime) in self.0.iter().enumerate() {
            if let Err(error) = runtime.listen(port, Arc::clone(acceptor)) {
                self.0[..index].iter().for_each(|one| one.unlisten(port));
                return Err(error);
            }
        }
        Ok(())
    }

    /// See [`Runtime::unlisten`].
    pub fn unlisten(&self, port: u16) {
        self.each(|runtime| runtime.unlisten(port));
    }

    /// See [`Runtime::is_unused`].
    pub fn is_unused(&self) -> bool {
        self.0.iter().all(Runtime::is_unused)
    }

    /// Whether one of them has ended (see [`Runtime::has_ended`]). The others then no longer serve
    /// all packets.
    pub fn has_ended(&self) -> bool {
        self.0.iter().any(Runtime::has_ended)
    }

    /// See [`Runtime::stop`].
    pub fn stop(&self, timeout: Duration) {
        self.each(|runtime| runtime.stop(timeout));
    }

    /// The threads with the CPU time that they have used.
    pub fn usage(&self) -> Vec<ThreadUsage> {
        self.0.iter().filter_map(Runtime::usage).collect()
    }

    /// Reads the counts of all threads, from any thread.
    pub fn meter(&self) -> Meter {
        Meter::of(self.0.iter().map(Runtime::published))
    }

    /// Does something with all of them at once, since it may take long.
    fn each(&self, f: impl Fn(&Runtime) + Sync) {
        thread::scope(|scope| {
            for runtime in &self.0 {
                scope.spawn(|| f(runtime));
            }
        });
    }
}
