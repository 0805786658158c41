use super::*;

fn context(place: &str) -> Context {
    Context {
        program: ["ramport", "--socket", "/nonexistent/socket"]
            .map(str::to_owned)
            .to_vec(),
        place: Place::Root.at(place).expect("a place"),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_place_fills_in_the_verb_and_the_object() {
    for (place, typed, line) in [
        ("/", "volume grow rd0 1G", "volume grow rd0 1G"),
        (
            "/volumes",
            "create rd1 --size 1G",
            "volume create rd1 --size 1G",
        ),
        ("/volumes", "rm rd0", "volume rm rd0"),
        ("/volumes/rd0", "grow 1G", "volume grow rd0 1G"),
        ("/volumes/rd0", "set --size 1G", "volume set rd0 --size 1G"),
        (
            "/volumes/rd0",
            "filter clear delay",
            "volume filter clear rd0 delay",
        ),
        (
            "/volumes/rd0",
            "create rd1 --size 1G",
            "volume create rd1 --size 1G",
        ),
        ("/volumes/rd0", "volume show rd1", "volume show rd1"),
        ("/volumes/rd0", "capacity", "capacity"),
        ("/targets/nqn.a", "attach rd0", "target attach nqn.a rd0"),
        (
            "/targets/nqn.a",
            "connect-line --json",
            "connect-line nqn.a --json",
        ),
        ("/volumes/rd0", "connect-line nqn.a", "connect-line nqn.a"),
        (
            "/portals/nvme+tcp://[::1]:1",
            "set --rdma on",
            "portal set nvme+tcp://[::1]:1 --rdma on",
        ),
        ("/sessions/3", "rm", "session rm 3"),
        ("/sessions/3", "nonsense 1", "nonsense 1"),
    ] {
        assert_eq!(
            context(place).filled_in(&words(typed)).join(" "),
            line,
            "{place}"
        );
    }
}

#[test]
fn removing_the_object_leaves_its_place() {
    let removes = |place, line| context(place).removes_place(&words(line));
    assert!(removes("/volumes/rd0", "volume rm rd0 --force"));
    assert!(!removes("/volumes/rd0", "volume rm rd1"));
    assert!(!removes("/volumes/rd0", "volume erase rd0"));
    assert!(!removes("/hosts/rd0", "volume rm rd0"));
    assert!(!removes("/volumes", "volume rm rd0"));
}

#[test]
fn commands_options_and_places_are_completed() {
    let candidates = |place, line| context(place).candidates(&words(line));
    assert_eq!(candidates("/", "cd /vo"), ["/volumes/"]);
    assert_eq!(candidates("/", "cd t"), ["targets/", "tokens/"]);
    assert_eq!(
        candidates("/volumes", "sh"),
        ["share", "shell", "show", "shrink"]
    );
    assert_eq!(candidates("/volumes/rd0", "grow --f"), ["--force"]);
    assert_eq!(
        candidates("/volumes/rd0", "filter set --fault-s"),
        ["--fault-seed"]
    );
    assert_eq!(candidates("/", "pw"), ["pwd"]);
    assert_eq!(candidates("/", "help volume sho"), ["show"]);
}

#[test]
fn messages_of_lines_that_cannot_be_understood() {
    let place = Place::Root.at("volume").expect_err("no place");
    let statement = statement::statements("volume ls; echo 'a").expect_err("an open quote");
    let told = [place.to_string(), statement.to_string()];
    insta::assert_snapshot!(told.join("\n"));
}
