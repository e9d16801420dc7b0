//! `rubin-node` with odd files, odd pipes, and input that never ends.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/run.rs"]
mod run;
#[path = "../../kvb/tests/support/touched.rs"]
mod touched;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rubin::Genesis;
use rubin::synthetic as maker;
use run::{Place, Ran};
use touched::files;

fn command(place: &Place, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rubin-node"));
    command.args(args).current_dir(place.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(place: &Place, args: &[&str]) -> Ran {
    command(place, args).output().unwrap().into()
}

fn start(place: &Place, args: &[&str]) -> Child {
    command(place, args).stdin(Stdio::piped()).spawn().unwrap()
}

/// A line of shell in which `$node` is the program.
fn shell(place: &Place, line: &str) -> Ran {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("node", env!("CARGO_BIN_EXE_rubin-node"));
    shell.current_dir(place.path()).stdin(Stdio::null()).output().unwrap().into()
}

/// A place with a chain of devnet, and blocks for it.
fn place(count: u64) -> (Place, Vec<Vec<u8>>) {
    let place = Place::new();
    run(&place, &["init", "--datadir", "data"]).ok();
    let mut prev = Genesis::devnet().hash();
    let blocks = (1..=count).map(|height| {
        let block = maker::block(prev, height, &[maker::coinbase(height, &[maker::coin(0)])]);
        prev = maker::hash_of(&block);
        block
    });
    let blocks = blocks.collect();
    (place, blocks)
}

fn binary(blocks: &[Vec<u8>]) -> Vec<u8> {
    let framed = blocks.iter().map(|block| {
        let len = u32::try_from(block.len()).unwrap();
        [&len.to_le_bytes()[..], block].concat()
    });
    framed.collect::<Vec<_>>().concat()
}

fn hex(blocks: &[Vec<u8>], line_end: &str) -> String {
    blocks.iter().map(|block| format!("{}{line_end}", rubin::to_hex(block))).collect()
}

/// The words that an import of these bytes prints, and its exit code.
fn import(place: &Place, bytes: &[u8]) -> (Vec<String>, i32, String) {
    std::fs::write(place.file("blocks"), bytes).unwrap();
    let ran = run(place, &["import", "--datadir", "data", "--quiet", "blocks"]);
    (ran.text().lines().map(str::to_owned).collect(), ran.code, ran.err)
}

#[test]
fn every_form_of_a_file_is_read() {
    let applied = |count: usize| vec!["APPLIED_AS_NEW_TIP".to_owned(); count];
    for line_end in ["\n", "\r\n", "\n\n \n"] {
        let (place, blocks) = place(3);
        let (words, code, err) = import(&place, hex(&blocks, line_end).as_bytes());
        assert_eq!((words, code), (applied(3), 0), "{err}");
    }
    let (place, blocks) = place(5);
    let text = hex(&blocks[..2], "\n");
    let (words, code, _) = import(&place, text.trim_end().as_bytes());
    assert_eq!((words, code), (applied(2), 0), "without an end of the line");
    let (words, code, _) = import(&place, &binary(&blocks[2..4]));
    assert_eq!((words, code), (applied(2), 0));
    let (words, code, _) = import(&place, b"");
    assert_eq!((words, code), (Vec::new(), 0));
    let upper = hex(&blocks[4..], "\n").to_uppercase();
    assert_eq!(import(&place, upper.as_bytes()).0, applied(1));
    // What is no block does not stop the others.
    let lines = format!("abc\n{}zz\nff\n{}", hex(&blocks[..1], "\n"), hex(&blocks[4..], "\n"));
    let (words, code, err) = import(&place, lines.as_bytes());
    let parse = "BLOCK_ERR_PARSE";
    assert_eq!(words, [parse, "STORED_NOT_SELECTED", parse, parse, "APPLIED_AS_NEW_TIP"]);
    assert_eq!(code, 1);
    assert!(err.contains("3 blocks were rejected"), "{err}");
}

#[test]
fn a_binary_file_that_is_cut_off_gives_all_blocks_before() {
    let (place, blocks) = place(3);
    let whole = binary(&blocks);
    let last = binary(&blocks[2..]).len();
    for cut in [1, last - 4, last - 3, last - 1] {
        let (words, code, err) = import(&place, &whole[..whole.len() - cut]);
        assert_eq!((words.len(), code), (2, 1), "{err}");
        assert!(err.contains("cut off"), "{err}");
    }
    let (words, code, err) = import(&place, &[&whole[..], &[0xff; 9]].concat());
    assert_eq!((words.len(), code), (3, 1));
    assert!(err.contains("not a file of blocks"), "{err}");
    let (words, code, _) = import(&place, &[0; 8]);
    assert_eq!((words, code), (vec!["BLOCK_ERR_PARSE".to_owned(); 2], 1), "blocks of no bytes");
}

#[test]
fn a_pipe_may_be_slow_and_every_block_is_answered_at_once() {
    let (place, blocks) = place(3);
    let mut child = start(&place, &["import", "--datadir", "data", "--quiet", "-"]);
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = BufReader::new(stdout).lines();
    for block in &blocks {
        // The first byte of the length alone is a digit in hex.
        let block = [block.as_slice()].map(<[u8]>::to_vec);
        let bytes = binary(&block);
        let (first, rest) = bytes.split_at(1);
        stdin.write_all(first).unwrap();
        std::thread::sleep(Duration::from_millis(60));
        stdin.write_all(rest).unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "APPLIED_AS_NEW_TIP");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn input_that_never_ends_is_given_up() {
    let (place, _) = place(1);
    let line = "head -c 50000000 /dev/zero | tr '\\0' a | $node import --datadir data -q -";
    let ran = shell(&place, line);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("not a file of blocks"), "{}", ran.err);
    for args in [
        ["import-block", "--datadir", "data", "--block-hex-file", "/dev/zero"],
        ["import-block", "--datadir", "data", "--block-hex-file", "/dev"],
        ["utxo-set-hash", "--datadir", "data", "--profile", "/dev/zero"],
    ] {
        let ran = run(&place, &args);
        assert!(ran.code == 1 || ran.code == 2, "{args:?}: {}", ran.err);
        assert!(!ran.err.is_empty());
    }
}

#[test]
fn an_interrupt_while_nothing_comes_is_one() {
    let (place, blocks) = place(2);
    let mut child = start(&place, &["import", "--datadir", "data", "--quiet", "-"]);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(hex(&blocks[..1], "\n").as_bytes()).unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(answers.next().unwrap().unwrap(), "APPLIED_AS_NEW_TIP");
    // Meanwhile nobody else imports, and everybody can look.
    let second = run(&place, &["import", "--datadir", "data", "/dev/null"]);
    assert_eq!(second.code, 1);
    assert!(second.err.contains("in use by"), "{}", second.err);
    assert!(run(&place, &["tip", "--datadir", "data"]).ok().text().starts_with("1 "));
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(ran.err.contains("interrupted"), "{}", ran.err);
    drop(stdin);
}

#[test]
fn a_reader_that_goes_away_does_not_stop_an_import() {
    let (place, blocks) = place(2);
    let bad = vec![vec![7; 10]; 20_000];
    let all = [&blocks[..1], &bad, &blocks[1..]].concat();
    std::fs::write(place.file("blocks"), hex(&all, "\n")).unwrap();
    let line = "($node import --datadir data -q blocks; echo $? >code) | head -1";
    let ran = shell(&place, line);
    assert_eq!(ran.text(), "APPLIED_AS_NEW_TIP\n");
    assert_eq!(std::fs::read_to_string(place.file("code")).unwrap(), "1\n", "some are rejected");
    assert!(run(&place, &["tip", "--datadir", "data"]).ok().text().starts_with("2 "));
}

#[test]
fn commands_that_look_touch_no_file() {
    let (place, blocks) = place(3);
    import(&place, hex(&blocks, "\n").as_bytes());
    let tip = maker::hash_of(&blocks[2]).to_string();
    let block = rubin::Block::decode(&blocks[0]).unwrap();
    let output = format!("{}:0", block.transactions[0].txid);
    let before = files(&place.file("data"));
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["utxo-set-hash"],
        vec!["tip"],
        vec!["block", &tip],
        vec!["utxo", &output],
        vec!["reorg-plan", &tip],
        vec!["stats"],
        vec!["verify"],
        vec!["verify", "--no-replay"],
        vec!["export", "--out", "out.snap"],
    ];
    for table in rubin::tables::ALL {
        commands.push(vec!["dump", "--table", table.name]);
    }
    for command in commands {
        for more in [&["--datadir", "data"][..], &["--datadir", "data", "--json"]] {
            let _ = std::fs::remove_file(place.file("out.snap"));
            let args: Vec<&str> = command.iter().chain(more).copied().collect();
            run(&place, &args).ok();
            assert_eq!(files(&place.file("data")), before, "{args:?}");
        }
    }
    for wrong in ["", ":", "00:0", &tip, &format!("{tip}:"), &format!("{tip}:4294967296")] {
        assert_eq!(run(&place, &["utxo", "--datadir", "data", wrong]).code, 2, "{wrong}");
    }
    assert_eq!(run(&place, &["utxo", "--datadir", "data", &format!("{tip}:0")]).code, 1);
    assert_eq!(run(&place, &["block", "--datadir", "data", &"0".repeat(64)]).code, 1);
    assert_eq!(run(&place, &["reorg-plan", "--datadir", "data", &"0".repeat(64)]).code, 1);
    assert_eq!(run(&place, &["dump", "--datadir", "data", "--table", "none"]).code, 2);
    assert_eq!(files(&place.file("data")), before);
}

#[test]
fn a_dump_is_json_if_somebody_wants_that() {
    let (place, blocks) = place(2);
    import(&place, hex(&blocks, "\n").as_bytes());
    let args = ["dump", "--datadir", "data", "--table", "blocks_by_hash"];
    let text = run(&place, &args).ok().text();
    let json = run(&place, &[&args[..], &["--json"]].concat()).ok().text();
    let rows: Vec<String> = json
        .lines()
        .map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {}", row["key"].as_str().unwrap(), row["value"].as_str().unwrap())
        })
        .collect();
    assert_eq!(rows, text.lines().collect::<Vec<_>>());
    assert_eq!(rows.len(), 3);
}

#[test]
fn whoever_does_not_listen_to_errors_gets_the_exit_code_all_the_same() {
    let (place, blocks) = place(2);
    std::fs::write(place.file("blocks"), hex(&blocks, "\n")).unwrap();
    std::fs::write(place.file("bad"), "00\n").unwrap();
    // Whoever reads has gone before anything is written.
    let code = |args: &str| {
        let line = format!("( (sleep 0.3; $node {args}; echo $? >code) 2>&1 >out | true)");
        shell(&place, &line);
        std::fs::read_to_string(place.file("code")).unwrap()
    };
    assert_eq!(code("import-block --datadir data --block-hex 00"), "1\n");
    assert_eq!(code("import --datadir data bad"), "1\n");
    assert_eq!(code("import --datadir data blocks"), "0\n");
    assert!(run(&place, &["tip", "--datadir", "data"]).ok().text().starts_with("2 "));
}

#[test]
fn a_verdict_is_the_exit_code_whoever_has_read_enough() {
    let (place, blocks) = place(5);
    import(&place, hex(&blocks, "\n").as_bytes());
    let verify = |more: &str| {
        let line =
            format!("( (sleep 0.3; $node verify --datadir data {more}; echo $? >code) | true)");
        shell(&place, &line);
        std::fs::read_to_string(place.file("code")).unwrap()
    };
    assert_eq!(verify(""), "0\n");
    // Everything that the blocks make is said to be wrong, so that it is more than a buffer has.
    let path = chain_path(&place).join("db/data.kvb");
    let engine = ledger::KvbEngine::open(&path).unwrap();
    let mut batch = ledger::Batch::new();
    for number in 0..3000_u32 {
        let key = [&[7; 32][..], &number.to_le_bytes()].concat();
        batch.put(rubin::tables::UTXO, &key, b"nothing");
    }
    ledger::Engine::commit(&engine, batch).unwrap();
    drop(engine);
    assert_eq!(run(&place, &["verify", "--datadir", "data"]).code, 1);
    assert_eq!(verify(""), "1\n");
    assert_eq!(verify("--json"), "1\n");
}

/// The directory of the only chain.
fn chain_path(place: &Place) -> std::path::PathBuf {
    let id = Genesis::devnet().chain_id().to_string();
    place.file("data").join("chains").join(id)
}

#[test]
fn an_import_of_an_export_that_was_cut_off_at_the_end_is_finished() {
    let (place, blocks) = place(2);
    import(&place, hex(&blocks[..1], "\n").as_bytes());
    // The database has its name, and the manifest has not.
    let path = chain_path(&place);
    let cut = || {
        std::fs::rename(path.join("MANIFEST.json"), path.join("db/MANIFEST.json")).unwrap();
    };
    cut();
    let ran = run(&place, &["tip", "--datadir", "data"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("nothing is lost"), "{}", ran.err);
    let (words, code, err) = import(&place, hex(&blocks[1..], "\n").as_bytes());
    assert_eq!((words, code), (vec!["APPLIED_AS_NEW_TIP".to_owned()], 0), "{err}");
    assert!(run(&place, &["tip", "--datadir", "data"]).ok().text().starts_with("2 "));
    for more in [&["--profile", "devnet"][..], &[]] {
        cut();
        let args = ["import", "--datadir", "data", "-q", "/dev/null"];
        run(&place, &[&args[..], more].concat()).ok();
    }
    // Looking finishes nothing, and says who does.
    cut();
    let before = files(&place.file("data"));
    for command in ["tip", "verify", "migrate"] {
        let ran = run(&place, &[command, "--datadir", "data"]);
        assert!(ran.code == 1 && ran.err.contains("nothing is lost"), "{command}: {}", ran.err);
    }
    assert_eq!(files(&place.file("data")), before);
    run(&place, &["init", "--datadir", "data"]).ok();
    assert!(run(&place, &["tip", "--datadir", "data"]).ok().text().starts_with("2 "));
}
