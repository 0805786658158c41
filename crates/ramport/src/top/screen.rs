//! The screen: its state, the keys that change it, and how it is drawn. It knows no terminal.

use std::ops::ControlFlow;

use control::TopView;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Table, Wrap};

use super::rows::{Row, summary};
use crate::cli::{Column, View};
use crate::live::LiveScreen;

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) view: View,
    sort: Column,
    is_reversed: bool,
    filter: String,
    /// Keys go into the filter.
    is_typing: bool,
    is_paused: bool,
    shows_help: bool,
    /// The first row that is shown.
    offset: usize,
    /// The rows that fit, as of the last drawing.
    page: usize,
    document: Option<TopView>,
    /// Why there are no new documents.
    lost: Option<String>,
}

/// The narrowest screen with the hosts of sessions.
const WIDTH_WITH_HOSTS: u16 = 110;

/// The longest filter in characters.
const FILTER_MAX_CHARS: usize = 256;

/// The most lines that a reason takes at the bottom.
const FOOT_LINES_MAX: usize = 3;

const HINTS: &str =
    "Tab view  \u{2190}/\u{2192} sort  r reverse  / filter  p pause  ? help  q quit";

const HELP: &str = "\
Tab, Shift-Tab, 1-5   volumes, sessions, portals, threads,
                      caches
\u{2190} \u{2192}                   the column to sort by
r                     reverse the order
\u{2191} \u{2193} PgUp PgDn Home   scroll
/                     filter by name or host; Enter keeps it,
                      Esc clears it
p, Space              pause and continue
? or h                this help
q, Ctrl-C             quit

R and W     MiB read and written per second
MEAN, P99   latency in the server, not what a host sees
DEPTH       mean number of commands in the server
ERRORS      failed commands since counting began
CPU %       100 is one core; busy threads poll
HIT%        reads and writes that a cache had in memory
EVICT/s     blocks of a cache that made room for others
DISK R, W   MiB per second of the volume behind a cache";

impl Screen {
    pub(super) fn new(view: View, sort: Column, filter: String) -> Self {
        Self {
            view,
            sort,
            is_reversed: false,
            filter,
            is_typing: false,
            is_paused: false,
            shows_help: false,
            offset: 0,
            page: 1,
            document: None,
            lost: None,
        }
    }

    fn on_filter_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(char) if self.filter.chars().count() < FILTER_MAX_CHARS => {
                self.filter.push(char);
            }
            _ => {}
        }
        self.offset = 0;
    }

    /// Drawing keeps the offset within the rows.
    fn on_scroll_key(&mut self, code: KeyCode) {
        self.offset = match code {
            KeyCode::Up => self.offset.saturating_sub(1),
            KeyCode::Down => self.offset + 1,
            KeyCode::PageUp => self.offset.saturating_sub(self.page),
            KeyCode::PageDown => self.offset + self.page,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX,
            _ => self.offset,
        };
    }

    fn turn_view(&mut self, step: usize) {
        let at = View::ALL.iter().position(|view| *view == self.view);
        let next = (at.unwrap_or(0) + step) % View::ALL.len();
        self.show_view(View::ALL[next]);
    }

    fn show_view(&mut self, view: View) {
        self.view = view;
        self.offset = 0;
        if !view.columns().contains(&self.sort) {
            self.sort = Column::Iops;
        }
    }

    /// Sorts by the column that is `step` to the right, up to the ends.
    fn turn_sort(&mut self, step: usize) {
        let columns = self.view.columns();
        let at = columns.iter().position(|column| *column == self.sort);
        let next = at.unwrap_or(0).wrapping_add(step);
        if let Some(column) = columns.get(next) {
            self.sort = *column;
        }
    }

    /// The rows of the view, filtered and sorted.
    fn rows(&self) -> Vec<Row> {
        let Some(document) = &self.document else {
            return Vec::new();
        };
        let mut rows = self.view.rows(document, &self.filter);
        self.sort.sort(&mut rows);
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    fn head(&self) -> Vec<Line<'static>> {
        let Some(document) = &self.document else {
            return vec![Line::from(
                "ramport top: waiting for the end of the first interval",
            )];
        };
        let mut title = vec![
            Span::styled("ramport top", BOLD),
            Span::from(format!(
                "  {}  interval {:.1} s",
                time_of_day(document.time_unix_ms),
                document.interval_ms / 1e3
            )),
        ];
        if self.is_paused {
            title.push(Span::styled("  PAUSED", BOLD));
        }
        let [rates, resources] = summary(document);
        vec![
            Line::from(title),
            Line::from(rates),
            Line::from(resources),
            self.tabs(document),
        ]
    }

    fn tabs(&self, document: &TopView) -> Line<'static> {
        let tabs = View::ALL.iter().map(|view| {
            let count = view.len(document);
            let style = if *view == self.view {
                REVERSED
            } else {
                Style::new()
            };
            Span::styled(format!(" {} {count} ", view.title()), style)
        });
        Line::from(tabs.collect::<Vec<_>>())
    }

    fn foot(&self) -> Line<'static> {
        if let Some(reason) = &self.lost {
            return Line::styled(format!("no figures; trying again: {reason}"), BOLD);
        }
        if self.is_typing {
            return Line::from(format!("filter: {}_", self.filter));
        }
        if self.filter.is_empty() {
            return Line::from(HINTS);
        }
        Line::from(format!(
            "filter: {} (Esc clears it)  ? help  q quit",
            self.filter
        ))
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let rows = self.rows();
        self.page = usize::from(area.height.saturating_sub(1)).max(1);
        self.offset = self.offset.min(rows.len().saturating_sub(self.page));
        let mut columns = self.view.columns();
        if area.width < WIDTH_WITH_HOSTS {
            columns.retain(|column| *column != Column::Host);
        }
        let names = columns
            .iter()
            .filter(|column| column.width().is_none())
            .count();
        let figures = columns.iter().filter_map(|column| column.width());
        let taken: u16 = figures.map(|width| width + 1).sum();
        let name_width = area.width.saturating_sub(taken) / (names as u16).max(1);
        let head = columns.iter().map(|column| {
            let style = if *column == self.sort { REVERSED } else { BOLD };
            Cell::from(aligned(*column, column.title().to_owned()).style(style))
        });
        let shown = rows.iter().skip(self.offset).take(self.page).map(|row| {
            let cells = columns.iter().map(|column| {
                let text = column.text(row);
                let text = match column.width() {
                    Some(_) => text,
                    None => end_of(text, usize::from(name_width)),
                };
                Cell::from(aligned(*column, text))
            });
            TableRow::new(cells.collect::<Vec<_>>())
        });
        let widths = columns.iter().map(|column| match column.width() {
            Some(width) => Constraint::Length(width),
            None => Constraint::Fill(1),
        });
        let head = TableRow::new(head.collect::<Vec<_>>());
        let table = Table::new(shown.collect::<Vec<_>>(), widths.collect::<Vec<_>>());
        frame.render_widget(table.header(head), area);
    }
}

impl LiveScreen for Screen {
    type Document = TopView;

    /// Whether anything was shown yet.
    fn is_empty(&self) -> bool {
        self.document.is_none()
    }

    /// Shows new figures, unless the screen is paused.
    fn update(&mut self, document: TopView) {
        self.lost = None;
        if !self.is_paused {
            self.document = Some(document);
        }
    }

    /// Says why there are no new figures.
    fn lose(&mut self, reason: String) {
        self.lost = Some(reason);
    }

    /// Handles a key; breaks if the program is to end.
    fn handle_key(&mut self, key: KeyEvent) -> ControlFlow<()> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            return ControlFlow::Break(());
        }
        if self.is_typing {
            self.on_filter_key(key.code);
            return ControlFlow::Continue(());
        }
        if self.shows_help {
            self.shows_help = false;
            return ControlFlow::Continue(());
        }
        match key.code {
            KeyCode::Char('q') => return ControlFlow::Break(()),
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab => self.turn_view(1),
            KeyCode::BackTab => self.turn_view(View::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='5') => {
                self.show_view(View::ALL[digit as usize - '1' as usize]);
            }
            KeyCode::Left => self.turn_sort(usize::MAX),
            KeyCode::Right => self.turn_sort(1),
            code => self.on_scroll_key(code),
        }
        ControlFlow::Continue(())
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let foot = self.foot();
        let foot_lines = foot
            .width()
            .div_ceil(usize::from(frame.area().width.max(1)));
        let areas = Layout::vertical([
            Constraint::Length(4),
            Constraint::Fill(1),
            Constraint::Length(foot_lines.clamp(1, FOOT_LINES_MAX) as u16),
        ]);
        let [head, body, foot_area] = areas.areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        self.draw_table(frame, body);
        let foot = Paragraph::new(foot).wrap(Wrap { trim: true });
        frame.render_widget(foot, foot_area);
        if self.shows_help {
            draw_help(frame);
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Names to the left, figures to the right.
fn aligned(column: Column, text: String) -> Line<'static> {
    let alignment = match column.width() {
        Some(_) => Alignment::Right,
        None => Alignment::Left,
    };
    Line::from(text).alignment(alignment)
}

/// A name in at most `width` characters. Names differ in their ends, so the ends are kept.
fn end_of(name: String, width: usize) -> String {
    let len = name.chars().count();
    if len <= width {
        return name;
    }
    let end = name.chars().skip(len - width.saturating_sub(1));
    std::iter::once('\u{2026}').chain(end).collect()
}

fn draw_help(frame: &mut Frame<'_>) {
    let width = HELP.lines().map(|line| line.chars().count()).max();
    let width = width.unwrap_or(0) as u16 + 4;
    let height = HELP.lines().count() as u16 + 2;
    let area = frame
        .area()
        .centered(Constraint::Length(width), Constraint::Length(height));
    let block = Block::bordered().title(" Keys and columns; any key closes this ");
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}

/// The time of day in UTC.
fn time_of_day(unix_ms: u64) -> String {
    let second = unix_ms / 1000 % 86_400;
    format!(
        "{:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}
