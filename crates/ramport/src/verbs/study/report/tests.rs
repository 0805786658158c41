use block::testing::Folder;

use super::*;

/// A report with a figure of each kind.
fn report() -> StudyReport {
    let text = |text: &str| Cell::Text(text.to_owned());
    StudyReport {
        name: "example",
        title: "One way and another".to_owned(),
        machine: Machine {
            cpu: "A Processor".to_owned(),
            cores: 2,
            kernel: "6.12.1".to_owned(),
            adapters: Vec::new(),
            portals: vec!["nvme+tcp://192.0.2.1:4420 (TCP)".to_owned()],
        },
        method: vec![
            "Each way was measured three times.".to_owned(),
            "Medians are shown.".to_owned(),
        ],
        sections: vec![Section {
            title: "Latency".to_owned(),
            columns: ["mix", "one (us)", "another (us)", "change (%)"]
                .map(str::to_owned)
                .to_vec(),
            rows: vec![
                vec![
                    text("100/0"),
                    Cell::Number(63.04, 1),
                    Cell::Number(43.0, 1),
                    Cell::change(63.04, 43.0),
                ],
                vec![
                    text("a|b"),
                    Cell::Number(75.0, 1),
                    Cell::Missing,
                    Cell::change(0.0, 1.0),
                ],
            ],
            drawn: vec![1, 2],
            measure: "us".to_owned(),
        }],
        remarks: vec!["the goal of -40 % was missed".to_owned()],
    }
}

#[test]
fn the_report_is_markdown() {
    insta::assert_snapshot!(report(), @r"
    # One way and another

    - CPU: A Processor
    - Cores: 2
    - Kernel: 6.12.1
    - RDMA adapters: none with an active port
    - Portals: nvme+tcp://192.0.2.1:4420 (TCP)

    Each way was measured three times. Medians are shown.

    ## Latency

    | mix   | one (us) | another (us) | change (%) |
    |-------|---------:|-------------:|-----------:|
    | 100/0 |     63.0 |         43.0 |     -31.79 |
    | a\|b  |     75.0 |            – |          – |

    ## Remarks

    - the goal of -40 % was missed
    ");
}

#[test]
fn a_change_without_a_figure_to_compare_with_is_missing() {
    assert_eq!(Cell::change(0.0, 5.0), Cell::Missing);
    assert_eq!(Cell::change(0.0, 0.0), Cell::Missing);
    assert_eq!(Cell::change(100.0, 150.0), Cell::Change(50.0));
    assert_eq!(Cell::Change(-31.7).to_string(), "-31.70");
    assert_eq!(Cell::Change(23.884).to_string(), "+23.88");
}

#[test]
fn a_folder_gets_the_report_in_all_forms() {
    let folder = Folder::new();
    report().write_files(&folder.join("")).expect("written");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("a file");
    assert_eq!(read("study-example.md"), report().to_string());
    let json: serde_json::Value = serde_json::from_str(&read("study-example.json")).expect("JSON");
    let row = &json["sections"][0]["rows"][0];
    assert_eq!((&row[0], &row[1]), (&"100/0".into(), &63.04.into()));
    assert!(json["sections"][0]["rows"][1][2].is_null());
    assert_eq!(json["machine"]["cores"], 2);
    let picture = read("study-example.svg");
    for word in ["Latency", "100/0", "another (us)"] {
        assert!(picture.contains(word), "{word}");
    }
    let error = report()
        .write_files(&folder.join("none"))
        .expect_err("no such folder");
    assert!(matches!(error, Failure::Mistake(_)), "{error:?}");
}
