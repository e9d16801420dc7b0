//! Any bytes as a dump to load: text, JSON lines, and what `mdb_dump` writes. What is loaded can be read.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use kvb::{Bucket, Options};
use kvb_fuzz::workplace::Workplace;
use libfuzzer_sys::fuzz_target;

static PLACE: LazyLock<Workplace> = LazyLock::new(|| {
    let place = Workplace::new("dumps");
    Bucket::create(place.path("empty"), Options::default().segment_bytes_max(16 << 10))
        .and_then(Bucket::close)
        .unwrap();
    place
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(count) = cli::bucket::count_rows(bytes) else {
        return;
    };
    let place = &*PLACE;
    place.write("dump", bytes);
    let bucket = place.path("bucket");
    let _ = fs::remove_file(&bucket);
    // One that is made for it has the settings that the dump asks for.
    if bytes.len() % 8 != 0 {
        fs::copy(place.path("empty"), &bucket).unwrap();
    }
    if cli::bucket::run(place.line("kvb load @bucket @dump --quiet")).is_ok() {
        let reader = Bucket::open_read_only(&bucket).unwrap();
        let rows = reader.snapshot().unwrap().scan(b"").map(|row| row.unwrap()).count();
        assert!(u64::try_from(rows).unwrap() <= count);
    }
});
