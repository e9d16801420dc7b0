//! Any bytes as a dump to load: text, JSON lines, and what `mdb_dump` writes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = cli::bucket::count_rows(bytes);
});
