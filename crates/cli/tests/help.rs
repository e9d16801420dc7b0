//! Help that teaches: every command has examples, and they are commands that exist.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/run.rs"]
mod run;

use run::Place;

/// All commands, those of `rekey` too.
fn commands(place: &Place) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = place.run(&args).ok().text();
        let listed = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next());
        for line in listed.unwrap_or_default().lines() {
            // Descriptions go on further to the right.
            let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
            let Some(name) = name.and_then(|rest| rest.split_whitespace().next()) else { continue };
            if name != "help" {
                open.push([path.clone(), vec![name.to_owned()]].concat());
            }
        }
        if !path.is_empty() {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A word of an example with a hash where it only hints at one: in capitals, or with dots.
fn filled_in(word: &str) -> String {
    let hash = "00".repeat(32);
    let (front, last) = word.rsplit_once(':').unwrap_or(("", word));
    if !last.contains("...") && !last.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return word.to_owned();
    }
    if front.is_empty() { hash } else { format!("{front}:{hash}") }
}

/// Runs every example of every command of a program, as far as its arguments go.
fn check_examples(place: &Place, name: &str, least: usize) {
    let commands = commands(place);
    assert!(commands.len() >= least, "{commands:?}");
    for command in &commands {
        let mut args: Vec<&str> = command.iter().map(String::as_str).collect();
        args.push("--help");
        let help = place.run(&args).ok().text();
        let examples =
            help.split("Examples:\n").nth(1).unwrap_or_else(|| panic!("{command:?}: {help}"));
        let lines = examples.lines().take_while(|line| line.starts_with("  "));
        let parts = lines.flat_map(|line| line.split(" && ")).flat_map(|line| line.split(" | "));
        let mut count = 0;
        for part in parts.map(str::trim) {
            let Some(part) = part.strip_prefix(name).filter(|rest| rest.starts_with(' ')) else {
                continue;
            };
            // What stands behind three spaces explains, and what is redirected is not an argument.
            let part = part.split("   ").next().unwrap().split([';', '>', '<']).next().unwrap();
            let words: Vec<String> = part.split_whitespace().map(filled_in).collect();
            // Asking for help checks the names of commands; an unknown option comes before it.
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            words.push("--help");
            let ran = place.run(&words);
            assert_eq!(ran.code, 0, "{part}: {}", ran.err);
            count += 1;
        }
        assert!(count > 0, "{command:?} has no example");
    }
}

#[test]
fn every_command_has_examples_that_can_be_run() {
    for (name, least, place) in programs() {
        check_examples(&place, name, least);
    }
}

/// Every program, how many commands it has at least, and where it runs.
fn programs() -> [(&'static str, usize, Place); 5] {
    [
        ("kvb", 27, Place::new()),
        ("misaka-indexer", 12, Place::of(env!("CARGO_BIN_EXE_misaka-indexer"))),
        ("misaka-node", 21, Place::of(env!("CARGO_BIN_EXE_misaka-node"))),
        ("rubin-node", 17, Place::of(env!("CARGO_BIN_EXE_rubin-node"))),
        ("utxo-csmt", 19, Place::of(env!("CARGO_BIN_EXE_utxo-csmt"))),
    ]
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for (name, _, place) in programs() {
        let all = commands(&place);
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = place.run(&["completions", shell]).ok().text();
            for command in &all {
                assert!(script.contains(command.last().unwrap()), "{name}, {shell}: {command:?}");
            }
        }
        let script = place.run(&["completions", "bash"]).ok().out;
        std::fs::write(place.file("script.bash"), script).unwrap();
        let mut shell = std::process::Command::new("bash");
        let checked = shell.arg("-n").arg(place.file("script.bash")).status();
        assert!(checked.unwrap().success());
        std::fs::create_dir(place.file("man")).unwrap();
        place.run(&["man", "--out", "man"]).ok();
        for command in &all {
            let page = place.file(&format!("man/{name}-{}.1", command.join("-")));
            let text =
                std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{page:?}: {error}"));
            assert!(text.contains("Examples"), "{page:?}");
        }
        assert!(place.run(&["man"]).ok().text().contains(&format!(".TH {name} 1")));
        // What all of them take, in the same words.
        let help = place.run(&["--help"]).ok().text();
        for option in ["--json", "-q, --quiet", "-v, --verbose", "-h, --help", "-V, --version"] {
            assert!(help.contains(option), "{name}: {option}");
        }
        assert!(help.contains("Exit codes: 0 done"), "{name}");
    }
}

#[test]
fn the_version_is_the_crates() {
    let place = Place::new();
    let version = place.run(&["--version"]).ok().text();
    assert_eq!(version, format!("kvb {}\n", env!("CARGO_PKG_VERSION")));
}
