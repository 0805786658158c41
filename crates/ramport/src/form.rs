//! The form of answers and errors.

/// The form of answers and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

impl Form {
    /// JSON if `is_json`.
    pub(crate) fn when(is_json: bool) -> Self {
        if is_json { Self::Json } else { Self::Text }
    }
}
