//! The screen of `ramport watch`.

use std::ops::ControlFlow;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::figures::{Document, NUMBERS, TITLES};
use crate::live::LiveScreen;
use crate::output;

/// The last line.
const HINT: &str = "q quit";

/// The state of the screen.
#[derive(Debug, Default)]
pub(super) struct WatchScreen {
    document: Option<Document>,
    /// Why there are no new documents.
    lost: Option<String>,
}

impl LiveScreen for WatchScreen {
    type Document = Document;

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let mut lines = match &self.document {
            Some(document) => {
                let mut lines = output::layout(&TITLES, &NUMBERS, document.rows(), None);
                lines.push(String::new());
                lines.extend(document.remarks());
                lines
            }
            None => vec!["waiting for the figures of the first interval".to_owned()],
        };
        lines.push(match &self.lost {
            Some(reason) => format!("no figures: {reason}; trying again"),
            None => HINT.to_owned(),
        });
        let lines: Vec<_> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines), frame.area());
    }

    fn is_empty(&self) -> bool {
        self.document.is_none()
    }

    fn update(&mut self, document: Document) {
        self.lost = None;
        self.document = Some(document);
    }

    fn lose(&mut self, reason: String) {
        self.lost = Some(reason);
    }

    fn handle_key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => ControlFlow::Break(()),
            KeyCode::Char('c') if is_control => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
