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
fn times_to_wait_are_seconds_or_have_a_unit() {
    for (text, milliseconds) in [("5", 5_000), ("500ms", 500), ("2s", 2_000)] {
        let time = parse_wait(text).expect(text);
        assert_eq!(time.0, std::time::Duration::from_millis(milliseconds));
        parse(&format!("serve --drain {text}")).expect(text);
        parse(&format!("discover iscsi://192.0.2.1 --timeout {text}")).expect(text);
    }
}

#[test]
fn a_token_is_needed_for_tcp() {
    let error = parse("--api 127.0.0.1:1 ls").expect_err("no token");
    assert!(error.to_string().contains("--api-token-file"), "{error}");
    let error = parse("--api 192.0.2.1:1 --api-client-cert c ls").expect_err("no key");
    assert!(error.to_string().contains("--api-client-key"), "{error}");
    parse("--api 192.0.2.1:1 --api-client-cert c --api-client-key k ls").expect("no token");
    assert_eq!(error.exit_code(), 2);
    parse("serve --api-listen 127.0.0.1:1").expect("tokens may be created later");
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

/// Every command that is shown: its words, its examples and its page of the manual.
fn commands() -> Vec<(String, String, String)> {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let mut found = Vec::new();
    let mut left = vec![&program];
    while let Some(command) = left.pop() {
        let name = command.get_display_name().unwrap_or("ramport");
        let examples = command.get_after_help().map(ToString::to_string);
        let page = crate::manual::page(command, None);
        found.push((name.to_owned(), examples.unwrap_or_default(), page));
        left.extend(command.get_subcommands().filter(|verb| !verb.is_hide_set()));
    }
    found
}

#[test]
fn every_command_has_examples_that_are_taken_as_they_stand() {
    for (name, examples, _) in commands() {
        let joined = examples.replace("\\\n", "");
        let lines = joined
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ramport "));
        let lines: Vec<String> = lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert!(!lines.is_empty(), "{name} has no example");
        for line in &lines {
            let line = line.split(" > ").next().expect("the part before a file");
            parse(line).unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
        }
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
fn the_examples_are_in_the_manual() {
    for (name, examples, page) in commands() {
        let page = page.replace("\\-", "-");
        let page = page.replace("\\*(Aq", "'").replace("\\\\", "\\");
        for line in examples.lines().skip(1).map(str::trim) {
            assert!(page.contains(line), "{name}: {line:?}");
        }
    }
}
