#[expect(dead_code, reason = "nothing is typed")]
#[path = "../../tests/program/terminal.rs"]
mod terminal;

use control::{
    CacheFigures, CapacityView, Figures, PortalFigures, SessionFigures, ThreadFigures,
    VolumeFigures,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::*;
use crate::cli::View;
use crate::live::{LiveScreen, on_terminal};

/// Figures at a rate, with a latency.
fn figures(iops: f64, latency_us: f64) -> Figures {
    let has_commands = iops > 0.0;
    Figures {
        iops,
        read_iops: iops,
        read_bytes_per_s: iops * 4096.0,
        latency_mean_us: has_commands.then_some(latency_us),
        latency_p99_us: has_commands.then_some(latency_us * 4.0),
        queue_depth: iops * latency_us / 1e6,
        ..Figures::default()
    }
}

fn session(id: u64, host: u8, figures: Figures) -> SessionFigures {
    SessionFigures {
        id,
        target: Some("nqn.2025-01.com.example:a-long-name-of-a-target:rd0".to_owned()),
        shares: Vec::new(),
        host: format!("nqn.2014-08.org.nvmexpress:uuid:1111111{host}"),
        peer: "192.0.2.7:40000".to_owned(),
        transport: "nvme+tcp".to_owned(),
        connections: 5,
        figures,
    }
}

fn memory() -> CapacityView {
    CapacityView {
        budget_bytes: 40 << 30,
        used_bytes: 10 << 30,
        free_bytes: 30 << 30,
        promised_bytes: 150 << 30,
        oversized_volumes: 2,
        failed_writes: 0,
        rejected_connections: 0,
        connection_idle_bytes: 36 << 10,
        connection_max_bytes: 1 << 20,
        volume_bytes: 8 << 10,
        slab_bytes: 2 << 20,
    }
}

fn cache() -> CacheFigures {
    CacheFigures {
        read_hit_percent: Some(87.654),
        write_hit_percent: None,
        evictions_per_s: 1234.5,
        slower_read_bytes_per_s: 1.5e9,
        slower_write_bytes_per_s: 4096.0,
        resident_bytes: 1 << 30,
        dirty_bytes: 77 << 20,
    }
}

fn document() -> TopView {
    let volume = |name: &str, used_bytes, figures| VolumeFigures {
        name: name.to_owned(),
        size_bytes: 50 << 30,
        used_bytes,
        cache: None,
        figures,
    };
    let broken = Figures {
        errors: 1,
        errors_total: 123_456_789,
        ..figures(0.5, 3_500_000.0)
    };
    let thread = |name: &str, cpu_percent, figures| ThreadFigures {
        name: name.to_owned(),
        connections: 3,
        cpu_percent,
        figures,
    };
    TopView {
        time_unix_ms: 1_764_022_271_999,
        interval_ms: 1000.4,
        cpu_percent: 183.4,
        memory: memory(),
        total: figures(250_000.5, 12.3),
        volumes: vec![
            volume("backup", 0, Figures::default()),
            volume("db1", 10 << 30, figures(249_000.0, 12.3)),
            VolumeFigures {
                cache: Some(cache()),
                ..volume("scratch", 77 << 20, broken)
            },
        ],
        sessions: vec![
            session(3, 1, figures(9.5, 20.0)),
            session(17, 2, figures(249_000.0, 12.3)),
        ],
        portals: vec![PortalFigures {
            url: "nvme+tcp://192.0.2.1:4420".to_owned(),
            connections: 10,
            figures: figures(250_000.5, 12.3),
        }],
        threads: vec![
            thread("reactor-0", 99.97, figures(125_000.0, 11.0)),
            thread("reactor-1", 83.4, figures(125_000.5, 13.0)),
            thread("rdma-0 192.0.2.1", 0.0, Figures::default()),
        ],
    }
}

fn screen() -> Screen {
    let mut screen = Screen::new(View::Volumes, Column::Iops, String::new());
    screen.update(document());
    screen
}

/// What is drawn on a terminal of this size.
fn drawn(screen: &mut Screen, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| screen.draw(frame)).expect("drawn");
    terminal.backend().to_string()
}

fn press(screen: &mut Screen, keys: &[KeyCode]) {
    for key in keys {
        let flow = screen.handle_key(KeyEvent::new(*key, KeyModifiers::NONE));
        assert!(flow.is_continue(), "{key:?}");
    }
}

fn type_in(screen: &mut Screen, text: &str) {
    let keys: Vec<_> = text.chars().map(KeyCode::Char).collect();
    press(screen, &keys);
}

#[test]
fn every_view_fits_80_columns() {
    let mut screen = screen();
    let mut views = Vec::new();
    for _ in View::ALL {
        views.push(drawn(&mut screen, 80, 24));
        press(&mut screen, &[KeyCode::Tab]);
    }
    assert_eq!(screen.view, View::Volumes, "the views are a ring");
    insta::assert_snapshot!(views.join("\n"));
}

#[test]
fn a_wide_screen_has_whole_names_and_hosts() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Char('2')]);
    insta::assert_snapshot!(drawn(&mut screen, 120, 40));
}

#[test]
fn help_lies_above_the_rows_and_any_key_closes_it() {
    let mut screen = screen();
    let before = drawn(&mut screen, 80, 24);
    press(&mut screen, &[KeyCode::Char('?')]);
    insta::assert_snapshot!(drawn(&mut screen, 80, 24));
    press(&mut screen, &[KeyCode::Char('x')]);
    assert_eq!(drawn(&mut screen, 80, 24), before);
}

#[test]
fn a_filter_is_typed_kept_and_cleared() {
    let mut screen = screen();
    let rows = |screen: &mut Screen| {
        let drawn = drawn(screen, 80, 24);
        ["backup", "db1", "scratch"].map(|name| drawn.contains(name))
    };
    type_in(&mut screen, "/Qb1");
    assert_eq!(rows(&mut screen), [false; 3]);
    press(
        &mut screen,
        &[KeyCode::Backspace, KeyCode::Backspace, KeyCode::Backspace],
    );
    // While a filter is typed, q is a letter.
    type_in(&mut screen, "DB");
    insta::assert_snapshot!(drawn(&mut screen, 80, 24));
    press(&mut screen, &[KeyCode::Enter]);
    assert_eq!(rows(&mut screen), [false, true, false]);
    assert!(drawn(&mut screen, 80, 24).contains("filter: DB (Esc clears it)"));
    press(&mut screen, &[KeyCode::Esc]);
    assert_eq!(rows(&mut screen), [true; 3]);
}

#[test]
fn a_paused_screen_stays_until_it_goes_on() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Char('p')]);
    let paused = drawn(&mut screen, 80, 24);
    assert!(paused.contains("PAUSED"), "{paused}");
    let mut later = document();
    later.time_unix_ms += 60_000;
    screen.update(later.clone());
    assert_eq!(drawn(&mut screen, 80, 24), paused);
    press(&mut screen, &[KeyCode::Char(' ')]);
    screen.update(later);
    let shown = drawn(&mut screen, 80, 24);
    assert!(
        !shown.contains("PAUSED") && shown.contains("22:12:11 UTC"),
        "{shown}"
    );
}

#[test]
fn rows_are_sorted_by_any_column_both_ways() {
    let mut screen = screen();
    let order = |screen: &mut Screen| {
        let drawn = drawn(screen, 80, 24);
        let mut names = ["backup", "db1", "scratch"];
        names.sort_by_key(|name| drawn.find(name));
        names
    };
    assert_eq!(order(&mut screen), ["db1", "scratch", "backup"], "by IOPS");
    press(&mut screen, &[KeyCode::Char('r')]);
    assert_eq!(order(&mut screen), ["backup", "scratch", "db1"]);
    press(
        &mut screen,
        &[KeyCode::Char('r'), KeyCode::Left, KeyCode::Left],
    );
    assert_eq!(order(&mut screen), ["backup", "db1", "scratch"], "by name");
    press(&mut screen, &[KeyCode::Right; 4]);
    assert_eq!(
        order(&mut screen),
        ["scratch", "db1", "backup"],
        "by mean latency"
    );
    press(&mut screen, &[KeyCode::Right; 9]);
    assert_eq!(
        order(&mut screen),
        ["db1", "scratch", "backup"],
        "by used memory"
    );
    // Other views have no such column.
    press(&mut screen, &[KeyCode::Char('4')]);
    let shown = drawn(&mut screen, 80, 24);
    assert!(
        shown.find("reactor-1") < shown.find("reactor-0"),
        "by IOPS: {shown}"
    );
}

#[test]
fn rows_that_do_not_fit_are_scrolled_to() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::End]);
    let shown = drawn(&mut screen, 80, 8);
    assert!(
        !shown.contains("db1") && shown.contains("backup"),
        "{shown}"
    );
    press(&mut screen, &[KeyCode::Up]);
    let shown = drawn(&mut screen, 80, 8);
    assert!(
        shown.contains("db1") && !shown.contains("backup"),
        "{shown}"
    );
    press(&mut screen, &[KeyCode::PageDown, KeyCode::Home]);
    assert!(drawn(&mut screen, 80, 8).contains("db1"));
}

#[test]
fn a_daemon_that_does_not_answer_is_said_below_its_last_figures() {
    let mut screen = screen();
    screen.lose("no ramport daemon answers at /run/ramport/ramport.sock; start one with `ramport serve`, or give its socket".to_owned());
    let shown = drawn(&mut screen, 80, 24);
    for part in [
        "no figures; trying again: no ramport daemon",
        "or give its socket",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(shown.contains("db1"), "{shown}");
    screen.update(document());
    assert!(!drawn(&mut screen, 80, 24).contains("trying again"));
}

#[test]
fn any_size_is_drawn_and_control_c_ends() {
    let mut screen = screen();
    press(&mut screen, &[KeyCode::Char('2'), KeyCode::Char('?')]);
    for (width, height) in [(1, 1), (10, 3), (40, 5), (300, 100)] {
        drawn(&mut screen, width, height);
    }
    press(&mut screen, &[KeyCode::Esc]);
    for (width, height) in [(1, 1), (10, 3), (40, 5)] {
        drawn(&mut screen, width, height);
    }
    type_in(&mut screen, "/q");
    let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(screen.handle_key(key).is_break());
}

/// Set in the process that panics.
const PANICS: &str = "RAMPORT_TEST_PANICS";

#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    if std::env::var_os(PANICS).is_some() {
        let shown = on_terminal(|terminal| {
            terminal.draw(|frame| frame.render_widget("figures", frame.area()))?;
            panic!("the screen is wrong");
        });
        shown.expect("a terminal");
    }
    let program = std::env::current_exe().expect("a test program");
    let test = "top::tests::a_panic_restores_the_terminal_before_its_message";
    let command = format!(
        "stty rows 24 cols 80; before=$(stty -g); {PANICS}=1 {} --exact {test} --nocapture; echo \"status $?\"; \
         test \"$before\" = \"$(stty -g)\" && echo restored",
        program.display()
    );
    let mut terminal = terminal::Terminal::run(&command, &[]);
    // The alternate screen (xterm's control sequences, DECSET 1049) is entered and left.
    terminal.wait_for("\u{1b}[?1049h");
    let screen = terminal.wait_for("\u{1b}[?1049l");
    assert!(screen.contains("figures"), "{screen:?}");
    assert!(!screen.contains("the screen is wrong"), "{screen:?}");
    terminal.wait_for("the screen is wrong");
    terminal.wait_for("status 101");
    terminal.wait_for("restored");
    terminal.end();
}
