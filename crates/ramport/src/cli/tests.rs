use clap::CommandFactory;

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

pub(super) fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("ramport").chain(line.split(' ')))
}

#[test]
fn cores_are_a_number_of_threads_or_a_list() {
    assert_eq!(parse_cores("2").expect("a number"), Cores::Count(2));
    assert_eq!(parse_cores("1,").expect("a list"), Cores::Pinned(vec![1]));
    let list = parse_cores("0,2-4").expect("a list");
    assert_eq!(list, Cores::Pinned(vec![0, 2, 3, 4]));
    for wrong in ["0", "", "a", "3-1", "1-", "0-99999999"] {
        assert!(parse_cores(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn memory_is_a_size_or_a_percentage() {
    assert_eq!(
        parse_memory("1G").expect("a size"),
        MemoryBudget::Bytes(1 << 30)
    );
    assert_eq!(
        parse_memory("80%").expect("a part"),
        MemoryBudget::Percent(80)
    );
    for wrong in ["0%", "101%", "%", "80 percent", "-1%", "1.5%"] {
        assert!(parse_memory(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_token_is_needed_for_tcp() {
    for line in ["serve --api-listen 127.0.0.1:1", "--api 127.0.0.1:1 ls"] {
        let error = parse(line).expect_err(line);
        assert!(error.to_string().contains("--api-token-file"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn json_is_accepted_before_and_after_a_verb() {
    for line in [
        "--json volume list",
        "volume list --json",
        "volume --json ls",
    ] {
        assert!(parse(line).expect(line).connection.json, "{line}");
    }
    parse("bench --json file").expect("bench has its own");
}

/// The ends of the verbs' help texts.
const EXAMPLES: [(&[&str], &str); 14] = [
    (&["serve"], examples::SERVE),
    (&["volume", "create"], examples::VOLUME_CREATE),
    (&["volume", "save"], examples::VOLUME_SAVE),
    (&["volume", "snapshot"], examples::VOLUME_SNAPSHOT),
    (&["target", "create"], examples::TARGET_CREATE),
    (&["portal", "create"], examples::PORTAL_CREATE),
    (&["portal", "set"], examples::PORTAL_SET),
    (&["host"], examples::HOST),
    (&["host", "create"], examples::HOST),
    (&["connect-line"], examples::CONNECT_LINE),
    (&["shell"], examples::SHELL),
    (&["apply"], examples::APPLY),
    (&["discover"], examples::DISCOVER),
    (&["bench"], examples::BENCH),
];

#[test]
fn the_examples_in_the_help_are_taken_as_they_stand() {
    for (verb, text) in EXAMPLES {
        let joined = text.replace("\\\n", "");
        let lines = joined
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ramport "));
        let lines: Vec<String> = lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in &lines {
            let line = line.split(" > ").next().expect("the part before a file");
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let verb = verb.join(" ");
        assert!(lines.iter().any(|line| line.starts_with(&verb)), "{verb}");
    }
}

#[test]
fn the_file_in_the_help_is_one_that_apply_takes() {
    let file = examples::definitions_example();
    let definitions = control::Definitions::from_toml(file).expect("definitions");
    assert_eq!(
        (definitions.volumes.len(), definitions.targets.len()),
        (1, 1)
    );
}

#[test]
fn the_examples_are_in_the_help_and_in_the_manual() {
    let mut whole = Cli::command();
    whole.build();
    for (verb, text) in EXAMPLES {
        let command = verb.iter().fold(&mut whole, |command, name| {
            command.find_subcommand_mut(name).expect("a verb")
        });
        let help = command.render_long_help().to_string();
        assert!(help.contains(text), "{verb:?}:\n{help}");
        let page = crate::manual::page(command, None).replace("\\-", "-");
        let page = page.replace("\\*(Aq", "'").replace("\\\\", "\\");
        for line in text.lines().skip(1).map(str::trim) {
            assert!(page.contains(line), "{verb:?}: {line:?}");
        }
    }
}
