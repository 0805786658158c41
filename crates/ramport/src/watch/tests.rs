use control::{NodeCounters, NodeState, RebuildProgress, WatchedNode};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::live::LiveScreen as _;

/// Counters after `operations` commands, a quarter of them writes, of 4 KiB and 100 us each.
fn counters(at_s: u64, operations: u64) -> NodeCounters {
    let (reads, writes) = (operations - operations / 4, operations / 4);
    NodeCounters {
        started_unix_us: 1,
        read_at_us: at_s * 1_000_000,
        operations,
        reads,
        writes,
        read_bytes: reads * 4096,
        write_bytes: writes * 4096,
        latency_sum_ns: operations * 100_000,
        copies: 3,
        copies_in_sync: 2,
        ..NodeCounters::default()
    }
}

/// Two readings of three nodes, 2 s apart: one at work, one that copies to it, one that is down.
fn readings() -> (WatchView, WatchView) {
    let view = |first, second| WatchView {
        cluster: Some("lab".to_owned()),
        nodes: vec![
            WatchedNode::answered("n1", first),
            WatchedNode::answered("n2", second),
            WatchedNode::silent("n3", "its lease has ended".to_owned()),
        ],
        problem: None,
    };
    let rebuild = RebuildProgress {
        node: "n1".to_owned(),
        copies: 1,
        done_bytes: 42 << 20,
        size_bytes: 100 << 20,
    };
    let second = NodeCounters {
        rebuilds: vec![rebuild],
        ..counters(52, 6_000)
    };
    let before = view(counters(10, 1_000), counters(50, 2_000));
    (before, view(counters(12, 9_000), second))
}

fn lines(document: &Document) -> String {
    let mut lines = output::layout(&TITLES, &NUMBERS, document.rows(), None);
    lines.extend(document.remarks());
    lines.join("\n")
}

#[test]
fn each_node_and_the_total_have_a_row_and_a_node_that_is_down_says_so() {
    let (before, now) = readings();
    insta::assert_snapshot!(lines(&Document::between(&before, &now)), @r"
    NODE   IOPS   R/s   W/s  R MiB/s  W MiB/s  MEAN us  QUEUE  IN SYNC  REBUILD
    n1     4000  3000  1000     11.7      3.9    100.0    0.4      2/3  1 copy, 42 %
    n2     2000  1500   500      5.9      2.0    100.0    0.2      2/3  -
    n3     down
    total  6000  4500  1500     17.6      5.9    100.0    0.6      4/6  1 copy, 42 %
    n3 is down: its lease has ended
    ");
}

#[test]
fn totals_are_sums_and_the_mean_latency_is_that_of_all_commands() {
    let (before, mut now) = readings();
    let slow = now.nodes[1].counters.as_mut().expect("it answered");
    // 4,000 commands of 300 us beside 8,000 of 100 us.
    slow.latency_sum_ns = 2_000 * 100_000 + 4_000 * 300_000;
    let document = serde_json::to_value(Document::between(&before, &now)).expect("JSON");
    let total = &document["total"];
    for (name, expected) in [
        ("iops", 6_000.0),
        ("reads_per_s", 4_500.0),
        ("writes_per_s", 1_500.0),
        ("read_bytes_per_s", 4_500.0 * 4096.0),
        ("latency_mean_us", 2_000.0 / 12.0),
        ("queue", 1.0),
    ] {
        let given = total[name].as_f64().expect("a figure");
        assert!((given - expected).abs() < 1e-6, "{name}: {given}");
    }
    assert_eq!(
        (&total["copies"], &total["copies_in_sync"]),
        (&6.into(), &4.into())
    );
    assert_eq!(total["rebuild"], document["nodes"][0]["figures"]["rebuild"]);
    assert!(document["nodes"][2]["figures"].is_null());
}

#[test]
fn a_daemon_that_has_started_again_has_no_figures_for_that_interval() {
    let (before, mut now) = readings();
    let restarted = now.nodes[0].counters.as_mut().expect("it answered");
    restarted.started_unix_us = 2;
    let document = serde_json::to_value(Document::between(&before, &now)).expect("JSON");
    let figures = &document["nodes"][0]["figures"];
    assert_eq!(
        (&figures["iops"], &figures["copies"]),
        (&0.0.into(), &3.into())
    );
    // A node that was down before has none either.
    now.nodes[2] = WatchedNode::answered("n3", counters(7, 70_000));
    let document = serde_json::to_value(Document::between(&before, &now)).expect("JSON");
    assert_eq!(document["nodes"][2]["figures"]["iops"], 0.0);
    assert_eq!(now.nodes[2].state, NodeState::Up);
}

#[test]
fn the_screen_shows_the_table_and_why_figures_stop() {
    let mut terminal = Terminal::new(TestBackend::new(100, 12)).expect("in memory");
    let mut screen = WatchScreen::default();
    let mut drawn = |screen: &mut WatchScreen| {
        let frame = terminal.draw(|frame| screen.draw(frame)).expect("drawn");
        let cells = frame.buffer.content().iter();
        cells.map(ratatui::buffer::Cell::symbol).collect::<String>()
    };
    assert!(screen.is_empty() && drawn(&mut screen).contains("waiting"));
    let (before, now) = readings();
    screen.update(Document::between(&before, &now));
    let text = drawn(&mut screen);
    assert!(text.contains("REBUILD") && text.contains("n3"), "{text}");
    screen.lose("the daemon is gone".to_owned());
    assert!(drawn(&mut screen).contains("the daemon is gone; trying again"));
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    assert!(screen.handle_key(key(KeyCode::Char('x'))).is_continue());
    assert!(screen.handle_key(key(KeyCode::Char('q'))).is_break());
}
