//! `misaka-indexer` from end to end: a validator's database, an index of it, every question; killed, left behind, built anew; on a server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../misaka/tests/support/chain.rs"]
mod chain;
#[cfg(feature = "postgres")]
#[path = "../../misaka-indexer/tests/support/cluster.rs"]
mod cluster;
#[path = "../../misaka-indexer/tests/support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/mount.rs"]
mod mount;
#[path = "support/run.rs"]
mod run;

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use chain::{Chain, effort};
use fastrand::Rng;
use ledger::EngineKind;
use misaka::{Database, Open, Settings, hex};
use misaka_indexer::{Embedded, Index};
use model::Model;
use mount::{Mounted, cuts};
use run::Place;
use serde_json::Value;

const TAG: &str = "0x2::coin::Coin";

/// A place with the database of a validator in `node`, and what an index of it should have.
struct Story {
    place: Place,
    chain: Chain,
    model: Model,
    rng: Rng,
}

impl Story {
    fn new(seed: u64, settings: Settings) -> Story {
        let place = Place::of(env!("CARGO_BIN_EXE_misaka-indexer"));
        Database::new(place.file("node")).init(EngineKind::Kvb, settings, effort()).unwrap();
        let chain = Chain::new(settings, 1);
        Story { place, chain, model: Model::default(), rng: Rng::with_seed(seed) }
    }

    fn open(&self) -> Open {
        let database = Database::new(self.place.file("node"));
        let start = Instant::now();
        loop {
            match database.open(effort()) {
                // A process that another test starts has all files of this one open for a moment, and with them the lock.
                Err(misaka::Error::Locked(_)) if start.elapsed() < Duration::from_secs(20) => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return opened.unwrap(),
            }
        }
    }

    fn grow(&mut self, store: &Open, count: usize) {
        for _ in 0..count {
            let checkpoint = self.chain.grow(&mut self.rng, 12);
            store.apply(&checkpoint).unwrap();
            self.model.apply(&checkpoint);
        }
    }

    fn tip(&self) -> u64 {
        self.model.tip.unwrap().seq
    }

    /// Asks the index itself everything.
    fn check(&mut self, model: &Model) {
        let index = Embedded::open_to_read(self.place.file("index")).unwrap();
        model.check(&index, &mut self.rng);
    }
}

/// Lines of JSON.
fn lines(place: &Place, args: &[&str]) -> Vec<Value> {
    let text = place.run(&[args, &["--json"]].concat()).ok().text();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const FOLLOW: &[&str] = &["follow", "--quiet", "--db", "node", "--index", "index"];

#[test]
fn every_question_has_the_answer_of_the_model() {
    let mut story = Story::new(1, Settings::default());
    let store = story.open();
    story.grow(&store, 40);
    drop(store);
    let place = &story.place;
    let followed = lines(place, FOLLOW);
    assert_eq!(followed[0]["checkpoints"], 40);
    assert_eq!(followed[0]["tip"]["seq"], story.tip());
    assert_eq!(lines(place, FOLLOW)[0]["checkpoints"], 0);
    let tip = place.run(&["tip", "--index", "index"]).ok().text();
    assert_eq!(tip, format!("{} {}\n", story.tip(), story.model.tip.unwrap().digest));
    // Owners, in pages.
    let index = Embedded::open_to_read(place.file("index")).unwrap();
    let holder = misaka_indexer::Holder::Address([1; 32]);
    let owned = index.owned(&holder, misaka_indexer::Page::first(1000)).unwrap();
    assert!(owned.len() > 3);
    let address = "01".repeat(32);
    let found = lines(place, &["owner", "--index", "index", &address]);
    let ids = |list: &[Value]| -> Vec<String> {
        list.iter().map(|live| live["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&found), owned.iter().map(|live| live.id.to_string()).collect::<Vec<_>>());
    assert_eq!(found[0]["version"], owned[0].version);
    assert_eq!(found[0]["checkpoint_seq"], owned[0].seq);
    let part = place.run(&["owner", "--index", "index", &address, "--limit", "2"]).ok();
    assert_eq!(part.text().lines().count(), 2);
    let after = owned[1].id.to_string();
    assert!(part.err.contains(&format!("--after {after}")), "{}", part.err);
    let args = ["owner", "--index", "index", &address, "--after", &after];
    assert_eq!(ids(&lines(place, &args)), ids(&found)[2..]);
    let of_objects = lines(place, &["owner", "--index", "index", "--object", &address]);
    assert!(ids(&of_objects) != ids(&found));
    let nobody = place.run(&["owner", "--index", "index", &"77".repeat(32)]).ok();
    assert_eq!((nobody.text().as_str(), nobody.err.as_str()), ("", ""));
    // Types.
    let all = lines(place, &["type", "--index", "index", TAG, "--limit", "100000"]);
    let stats = &lines(place, &["stats", "--index", "index"])[0];
    assert_eq!(stats["objects"], all.len());
    assert_eq!(stats["engine"], "kvb");
    // Histories.
    let (id, records) = story.model.history.iter().max_by_key(|(_, list)| list.len()).unwrap();
    let id = id.to_string();
    let found = lines(place, &["history", "--index", "index", &id]);
    assert_eq!(found.len(), records.len());
    for (found, record) in found.iter().zip(records) {
        assert_eq!(found["version"], record.version);
        assert_eq!(found["checkpoint_seq"], record.seq);
        assert_eq!(found["bytes"], hex(&record.bytes));
    }
    let middle = &records[records.len() / 2];
    let seq = middle.seq.to_string();
    let then = &lines(place, &["history", "--index", "index", &id, "--as-of", &seq])[0];
    let newest = records.iter().rfind(|record| record.seq <= middle.seq).unwrap();
    assert_eq!(then["version"], newest.version);
    let before = place.run(&["history", "--index", "index", &id, "--as-of", "0"]);
    assert_eq!(before.code, 1);
    assert!(before.err.contains("not found"), "{}", before.err);
    // Transactions, events, checkpoints.
    let (digest, at) = story.model.transactions.iter().next().unwrap();
    let found = place.run(&["tx", "--index", "index", &digest.to_string()]).ok().text();
    assert_eq!(found, format!("{} {}\n", at.seq, at.index));
    let found = lines(place, &["events", "--index", "index", "--limit", "100000"]);
    assert_eq!(found.len(), story.model.events.len());
    for (found, (key, bytes)) in found.iter().zip(&story.model.events) {
        assert_eq!(found["checkpoint_seq"], key.seq);
        assert_eq!(
            (&found["tx_index"], &found["event_index"]),
            (&key.tx.into(), &key.number.into())
        );
        assert_eq!(found["event"], hex(bytes));
    }
    let key = *story.model.events.keys().next().unwrap();
    let (seq, tx) = (key.seq.to_string(), key.tx.to_string());
    let found = lines(place, &["events", "--index", "index", "--checkpoint", &seq, "--tx", &tx]);
    let wanted = story.model.events.keys().filter(|at| (at.seq, at.tx) == (key.seq, key.tx));
    assert_eq!(found.len(), wanted.count());
    let after = format!("{seq}:{tx}:{}", key.number);
    let rest = lines(place, &["events", "--index", "index", "--after", &after, "--limit", "5000"]);
    assert_eq!(rest.len(), story.model.events.len() - 1);
    let found = &lines(place, &["checkpoint", "--index", "index", "7"])[0];
    let wanted = story.model.checkpoints[&7];
    assert_eq!(found["digest"], wanted.digest.to_string());
    assert_eq!(
        (&found["writes"], &found["created"]),
        (&wanted.writes.into(), &wanted.created.into())
    );
    let words = place.run(&["checkpoint", "--index", "index", "7"]).ok().text();
    assert!(words.contains("event bytes"), "{words}");
    drop(index);
    let model = story.model.clone();
    story.check(&model);
}

/// Told, with this code, and with these words.
#[track_caller]
fn check_words(place: &Place, args: &[&str], code: i32, words: &[&str]) {
    let ran = place.run(args);
    assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
    for word in words {
        assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
    }
}

#[test]
fn whoever_errs_is_told_what_to_do() {
    let mut story = Story::new(2, Settings { event_retention: 4, ..Settings::default() });
    let store = story.open();
    story.grow(&store, 3);
    let place = &story.place;
    let says = |args: &[&str], code, words: &[&str]| check_words(place, args, code, words);
    let id = "00".repeat(32);
    says(&["tip"], 2, &["--index"]);
    #[cfg(feature = "postgres")]
    says(&["tip", "--index", "a", "--postgres", "b"], 2, &["cannot be used with"]);
    says(&["owner", "--index", "index", "123"], 2, &["64 hex digits"]);
    says(&["events", "--index", "index", "--tx", "1"], 2, &["--checkpoint"]);
    says(&["events", "--index", "index", "--after", "1:2"], 2, &["CHECKPOINT:TX:NUMBER"]);
    says(&["rebuild", "--index", "index"], 2, &["--from-db"]);
    says(&["tip", "--index", "index"], 1, &["there is no index", "misaka-indexer follow"]);
    says(&["follow", "--db", "no", "--index", "index"], 1, &["no database", "--db"]);
    says(&["rebuild", "--from-snapshot", "no", "--index", "index"], 1, &["no manifest"]);
    assert!(!place.file("index").exists());
    #[cfg(feature = "postgres")]
    {
        says(&["tip", "--postgres", "nonsense"], 1, &["no address of a server"]);
        says(&["tip", "--postgres", "host=/nowhere user=a"], 1, &["reached", "is the server up"]);
    }
    place.run(FOLLOW).ok();
    says(&["tx", "--index", "index", &id], 1, &["not found", "up to 3"]);
    says(&["history", "--index", "index", &id], 1, &["not found"]);
    says(&["checkpoint", "--index", "index", "9"], 1, &["not found", "up to 3"]);
    says(&["events", "--index", "index", "--checkpoint", "9"], 1, &["not found"]);
    let some = story.model.history.keys().next().unwrap().to_string();
    says(&["history", "--index", "index", &some, "--as-of", "9"], 1, &["ends with 3"]);
    // Left behind.
    story.grow(&store, 6);
    let place = &story.place;
    let says = |args: &[&str], code, words: &[&str]| check_words(place, args, code, words);
    says(FOLLOW, 1, &["has checkpoint 3", "is 6", "misaka-indexer rebuild"]);
    // A rebuild that was cut off.
    Embedded::init(place.file("index"), EngineKind::Kvb).unwrap().forget().unwrap();
    says(&["tip", "--index", "index"], 1, &["not whole", "misaka-indexer rebuild"]);
    says(FOLLOW, 1, &["not whole"]);
    let args = ["rebuild", "--quiet", "--index", "index", "--from-db", "node"];
    let rebuilt = &lines(place, &args)[0];
    assert_eq!(rebuilt["objects"], story.model.history.len());
    says(
        &["checkpoint", "--index", "index", "3"],
        1,
        &["not found", "built from the objects after checkpoint 9"],
    );
    // Somebody else has it.
    let held = Embedded::init(place.file("index"), EngineKind::Kvb).unwrap();
    says(FOLLOW, 1, &["in use by process", "wait for it"]);
    drop(held);
    let rebuilt = story.model.rebuilt();
    story.check(&rebuilt);
    let dir = story.place.file("snap");
    std::fs::create_dir(&dir).unwrap();
    let watch = misaka::snapshot::Watch::NOBODY;
    misaka::snapshot::create(&store, &host::FileDir::new(&dir), 3000, 1, watch).unwrap();
    let args = ["rebuild", "--quiet", "--index", "index", "--from-snapshot", "snap"];
    assert_eq!(lines(&story.place, &args)[0]["tip"]["base"], 9);
    story.check(&rebuilt);
}

#[test]
fn killed_in_the_middle_it_goes_on() {
    let mut story = Story::new(3, Settings::default());
    let store = story.open();
    story.grow(&store, 150);
    drop(store);
    let mut rng = Rng::with_seed(4);
    // On a machine that is busy the first one may come to its end before it is killed.
    let wanted = std::env::var("KVB_KILLS").map_or(1, |text| text.parse().unwrap());
    let model = story.model.clone();
    let mut killed = 0;
    while killed < wanted {
        let _ = std::fs::remove_dir_all(story.place.file("index"));
        killed += kill_until_done(&story.place, &mut rng);
        story.check(&model);
    }
    eprintln!("killed {killed} times");
}

/// Starts following and kills it, until one comes to its end. Gives how many were killed.
fn kill_until_done(place: &Place, rng: &mut Rng) -> u32 {
    let (mut last, mut killed) = (0, 0);
    loop {
        let mut child = place.start(FOLLOW);
        std::thread::sleep(Duration::from_millis(rng.u64(5..20 + u64::from(killed))));
        if child.try_wait().unwrap().is_some() {
            assert!(child.wait().unwrap().success());
            return killed;
        }
        child.kill().unwrap();
        killed += u32::from(!child.wait().unwrap().success());
        let ran = place.run(&["tip", "--index", "index", "--json"]);
        let tip = match ran.code {
            0 => ran.json()["tip"]["seq"].as_u64().unwrap_or(0),
            // Killed before there was an index.
            _ => 0,
        };
        assert!(tip >= last, "{tip} after {last}");
        last = tip;
    }
}

/// Cuts the power under an index that follows a validator on another file system.
fn cut_power(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(kind, dir.path()) else { return };
    let mut story = Story::new(7, Settings::default());
    let index = mounted.point().join("index");
    let args = ["follow", "--quiet", "--db", "node", "--index", index.to_str().unwrap()];
    // What the validator has and the index may have.
    let mut fed = VecDeque::new();
    let mut acknowledged = 0;
    for cut in 0..cuts() {
        let store = story.open();
        for _ in 0..40 {
            let checkpoint = story.chain.grow(&mut story.rng, 12);
            store.apply(&checkpoint).unwrap();
            fed.push_back(checkpoint);
        }
        drop(store);
        let newest = story.chain.next - 1;
        let mut child = story.place.start(&args);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // It says one thing: that it has everything.
        let end = std::thread::spawn(move || lines.map_while(Result::ok).count() > 0);
        std::thread::sleep(Duration::from_millis(story.rng.u64(..120)));
        let has_ended = end.is_finished();
        let ended = mounted.cut_under(&mut child);
        assert!(ended(), "{kind} does not come back");
        if end.join().unwrap() && has_ended {
            acknowledged = newest;
        }
        let tip = match Embedded::open_to_read(&index) {
            Ok(index) => index.tip().unwrap().map_or(0, |tip| tip.seq),
            // It was being made.
            Err(_) if acknowledged == 0 => 0,
            Err(error) => panic!("{kind}, cut {cut}: {error}"),
        };
        assert!(tip >= acknowledged, "{kind}, cut {cut}: {acknowledged} acknowledged, {tip} there");
        while fed.front().is_some_and(|checkpoint| checkpoint.header.seq <= tip) {
            story.model.apply(&fed.pop_front().unwrap());
        }
        acknowledged = tip;
        if tip > 0 {
            story.model.check(&Embedded::open_to_read(&index).unwrap(), &mut story.rng);
        }
    }
    eprintln!("{kind}: misaka-indexer lost power {} times, {acknowledged} checkpoints", cuts());
    story.place.run(&args).ok();
    fed.iter().for_each(|checkpoint| story.model.apply(checkpoint));
    story.model.check(&Embedded::open_to_read(&index).unwrap(), &mut story.rng);
}

#[test]
fn power_cuts_lose_and_double_nothing_on_ext4() {
    cut_power("ext4");
}

#[test]
fn power_cuts_lose_and_double_nothing_on_xfs() {
    cut_power("xfs");
}

/// Waits until an index has a checkpoint.
fn wait_for(story: &Story, place: &[&str], seq: u64) {
    let start = Instant::now();
    loop {
        let ran = story.place.run(&[&["tip", "--json"], place].concat());
        if ran.code == 0 && ran.json()["tip"]["seq"].as_u64() == Some(seq) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{}", ran.err);
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// Asks a program to end, and gives its exit code.
fn interrupt(mut child: Child) -> i32 {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    child.wait().unwrap().code().unwrap_or(-1)
}

#[test]
fn whoever_waits_follows_a_validator_that_is_at_work() {
    let mut story = Story::new(5, Settings::default());
    let store = story.open();
    let mut args = FOLLOW.to_vec();
    args.push("--wait");
    let child = story.place.start(&args);
    for _ in 0..3 {
        story.grow(&store, 4);
        wait_for(&story, &["--index", "index"], story.tip());
    }
    assert_eq!(interrupt(child), 130);
    let model = story.model.clone();
    story.check(&model);
}

#[cfg(feature = "postgres")]
#[test]
fn a_server_that_goes_down_is_waited_for() {
    let Some(cluster) = cluster::Cluster::start() else { return };
    cluster.database("misaka");
    let url = cluster.url("misaka");
    let mut story = Story::new(6, Settings::default());
    let store = story.open();
    story.grow(&store, 4);
    let on = ["--postgres", url.as_str()];
    let absent = story.place.run(&[&["tip"], &on[..]].concat());
    assert!(absent.code == 1 && absent.err.contains("there is no index"), "{}", absent.err);
    let args = [&["follow", "--quiet", "--db", "node", "--wait"], &on[..]].concat();
    let child = story.place.start(&args);
    wait_for(&story, &on, story.tip());
    cluster.crash();
    story.grow(&store, 4);
    std::thread::sleep(Duration::from_millis(300));
    cluster.up();
    wait_for(&story, &on, story.tip());
    assert_eq!(interrupt(child), 130);
    let address = "01".repeat(32);
    let found = lines(&story.place, &[&["owner", &address], &on[..]].concat());
    assert!(!found.is_empty());
    let stats = &lines(&story.place, &[&["stats"], &on[..]].concat())[0];
    assert_eq!((&stats["engine"], &stats["checkpoints"]), (&"postgresql".into(), &8.into()));
    let rebuilt = [&["rebuild", "--quiet", "--from-db", "node"], &on[..]].concat();
    assert_eq!(lines(&story.place, &rebuilt)[0]["objects"], story.model.history.len());
    let again = lines(&story.place, &[&["owner", &address], &on[..]].concat());
    assert_eq!(again, found);
}
