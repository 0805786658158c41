use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

fn parse(line: &str) -> Result<Cli, clap::Error> {
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
fn a_token_is_needed_for_tcp() {
    for line in ["serve --api-listen 127.0.0.1:1", "--api 127.0.0.1:1 ls"] {
        let error = parse(line).expect_err(line);
        assert!(error.to_string().contains("--api-token-file"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn json_may_stand_before_and_after_a_verb() {
    for line in [
        "--json volume list",
        "volume list --json",
        "volume --json ls",
    ] {
        assert!(parse(line).expect(line).connection.json, "{line}");
    }
    parse("bench --json file").expect("bench has its own");
}
