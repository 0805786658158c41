//! The stream of figures, as server-sent events (WHATWG HTML, section 9.2): each event is a line
//! `data: ` with a JSON document, and an empty line.
//!
//! Each stream reads the counters for itself, and only after its client has taken the document
//! before. So a client that does not read costs one document and one of the places, and that for at
//! most [`STALLED_MAX`].

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer::{ApiError, call};
use super::wait;
use crate::engine::{Engine, Reading, TopInterval, TopView};

/// The most streams at once.
pub(super) const TOP_STREAMS_MAX: usize = 16;

/// How long a client may take to read a document.
const STALLED_MAX: Duration = Duration::from_secs(60);

/// The media type of server-sent events.
const CONTENT_TYPE: &str = "text/event-stream";

/// The places of streams, for all listeners together.
#[derive(Clone, Debug)]
pub(super) struct TopStreams {
    places: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
}

impl TopStreams {
    /// All places are free. Streams end when `stopped` becomes true.
    pub(super) fn new(stopped: watch::Receiver<bool>) -> Self {
        Self {
            places: Arc::new(Semaphore::new(TOP_STREAMS_MAX)),
            stopped,
        }
    }

    /// A stream with a document per interval, as long as its client is permitted to have it.
    pub(super) fn open(
        &self,
        engine: Engine,
        interval: TopInterval,
        is_permitted: impl Fn() -> bool + Send + 'static,
    ) -> Result<Response, ApiError> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_| ApiError::too_many_streams(TOP_STREAMS_MAX))?;
        let (sender, documents) = mpsc::channel(1);
        let stopped = self.stopped.clone();
        tokio::spawn(async move {
            let _place = place;
            tokio::select! {
                () = send_documents(engine, interval, is_permitted, sender) => {}
                () = wait(stopped) => {}
            }
        });
        let head = [
            (header::CONTENT_TYPE, CONTENT_TYPE),
            (header::CACHE_CONTROL, "no-store"),
        ];
        Ok((head, Body::new(Events(documents))).into_response())
    }
}

/// Sends a document at the end of each interval, until the client is gone, does not read, or is no
/// longer permitted to.
async fn send_documents(
    engine: Engine,
    interval: TopInterval,
    is_permitted: impl Fn() -> bool,
    sender: mpsc::Sender<Bytes>,
) {
    let Ok(mut before) = read(&engine).await else {
        return;
    };
    while let Ok(Ok(room)) = timeout(STALLED_MAX, sender.reserve()).await {
        let end = Instant::from_std(before.at() + interval.length());
        tokio::select! {
            () = sender.closed() => return,
            () = sleep_until(end) => {}
        }
        if !is_permitted() {
            return;
        }
        let Ok(now) = read(&engine).await else {
            return;
        };
        room.send(event(&TopView::between(&before, &now)));
        before = now;
    }
}

async fn read(engine: &Engine) -> Result<Reading, ApiError> {
    call(engine.clone(), |engine| Ok(engine.read_counters())).await
}

fn event(view: &TopView) -> Bytes {
    let json = serde_json::to_string(view).expect("views are structs that serialise");
    Bytes::from(format!("data: {json}\n\n"))
}

/// The body of a response: what is sent into a channel, until its sender is dropped.
struct Events(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
