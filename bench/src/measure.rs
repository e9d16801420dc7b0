//! What is measured: a row of the tables each.

/// Which way a measure is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    High,
    Low,
    /// Shown, but not compared.
    Neither,
}

/// A row of the tables.
pub struct Measure {
    pub name: &'static str,
    pub title: &'static str,
    pub better: Better,
}

/// All measures in the order they are shown.
pub const MEASURES: &[Measure] = &[
    high("load_per_s", "load, batches of 1000 /s"),
    high("load_sync_per_s", "load incl. final sync /s"),
    low("load_rest_s", "load until at rest, s"),
    low("load_device", "load, device written / bytes put"),
    low("put_mean_us", "durable put mean us"),
    low("put_p10_us", "durable put p10 us"),
    low("put_p50_us", "durable put p50 us"),
    low("put_p99_us", "durable put p99 us"),
    neither("put_raw_us", "raw sync beside the puts us"),
    high("writers1_per_s", "durable puts, 1 writer /s"),
    high("writers2_per_s", "durable puts, 2 writers /s"),
    high("writers4_per_s", "durable puts, 4 writers /s"),
    high("writers8_per_s", "durable puts, 8 writers /s"),
    high("writers16_per_s", "durable puts, 16 writers /s"),
    high("writers32_per_s", "durable puts, 32 writers /s"),
    low("block_mean_ms", "block apply mean ms"),
    low("block_p50_ms", "block apply p50 ms"),
    low("block_p99_ms", "block apply p99 ms"),
    high("block_per_s", "block apply /s"),
    high("get_per_s", "get hit, 1 thread /s"),
    high("get2_per_s", "get hit, 2 threads /s"),
    high("miss_per_s", "get miss, 1 thread /s"),
    high("miss2_per_s", "get miss, 2 threads /s"),
    high("scan_full_loaded_per_s", "full scan as loaded, rows/s"),
    high("scan_full_compact_per_s", "full scan compacted, rows/s"),
    high("scan10_loaded_per_s", "scan of 10 as loaded /s"),
    high("scan10_compact_per_s", "scan of 10 compacted /s"),
    high("scan100_loaded_per_s", "scan of 100 as loaded /s"),
    high("scan100_compact_per_s", "scan of 100 compacted /s"),
    high("scan_back_loaded_per_s", "100 rows back as loaded /s"),
    high("scan_back_compact_per_s", "100 rows back compacted /s"),
    low("compact_s", "compaction after load s"),
    low("disk_compact_mb", "disk after load, compacted MB"),
    high("churn_per_s", "churn, changes /s"),
    high("churn_scan_per_s", "full scan after churn, rows/s"),
    neither("churn_raw_us", "raw sync beside the churn us"),
    low("churn_p50_us", "churn commit p50 us"),
    low("churn_p99_us", "churn commit p99 us"),
    low("churn_p999_us", "churn commit p99.9 us"),
    low("churn_max_us", "churn commit max us"),
    low("churn_space_max", "churn, disk / live bytes, max"),
    low("churn_space_end", "churn, disk / live bytes, end"),
    low("churn_space_compact", "churn, disk / live bytes, compacted"),
    low("churn_space_max_record", "churn, all blocks of the file / live records, max"),
    low("churn_space_end_record", "churn, all blocks of the file / live records, end"),
    low("churn_space_compact_record", "churn, all blocks of the file / live records, compacted"),
    low("churn_blocks_max_record", "churn, blocks without index images / live records, max"),
    low(
        "churn_blocks_compact_record",
        "churn, blocks without index images / live records, compacted",
    ),
    low("churn_segments_max_record", "churn, sealed segments as kvb counts / live records, max"),
    low(
        "churn_segments_compact_record",
        "churn, sealed segments as kvb counts / live records, compacted",
    ),
    low("churn_image_bytes_per_key", "churn, index image bytes a key"),
    low("churn_images_bytes_per_key", "churn, index image and room for the next, bytes a key"),
    low("churn_anon_max_mb", "churn, anonymous memory max MB"),
    low("churn_anon_end_mb", "churn, anonymous memory at rest behind it MB"),
    low("churn_device", "churn, device written / bytes put"),
    low("churn_written", "churn, dirtied / bytes put"),
    low("churn_written_record", "churn, dirtied / records put"),
    low("churn_logged", "churn, log / bytes put"),
    low("churn_moved", "churn, moved by compaction / bytes put"),
    low("churn_compact_s", "compaction after churn s"),
    high("latency_per_s", "busy durable put /s"),
    neither("latency_raw_us", "raw sync beside busy puts us"),
    low("latency_p50_us", "busy durable put p50 us"),
    low("latency_p99_us", "busy durable put p99 us"),
    low("latency_p999_us", "busy durable put p99.9 us"),
    low("latency_max_us", "busy durable put max us"),
    neither("latency_raw_p999_us", "raw sync p99.9 when idle us"),
    neither("latency_moved_mb", "moved by compaction during busy puts MB"),
    neither("latency_checkpoints", "checkpoints during busy puts"),
    neither("mixed_raw_us", "raw sync beside commits beside gets us"),
    high("mixed_commit_per_s", "commits of 100 beside gets /s"),
    low("mixed_commit_p50_us", "commit beside gets p50 us"),
    low("mixed_commit_p99_us", "commit beside gets p99 us"),
    low("mixed_commit_p999_us", "commit beside gets p99.9 us"),
    low("mixed_commit_max_us", "commit beside gets max us"),
    high("mixed_get_per_s", "get beside commits /s"),
    low("mixed_get_p50_us", "get beside commits p50 us"),
    low("mixed_get_p99_us", "get beside commits p99 us"),
    low("mixed_get_p999_us", "get beside commits p99.9 us"),
    low("mixed_get_max_us", "get beside commits max us"),
    neither("mixed_moved_mb", "moved by compaction during commits beside gets MB"),
    neither("mixed_checkpoints", "checkpoints during commits beside gets"),
    high("long_block_per_s", "block apply without a rest /s"),
    neither("long_raw_us", "raw sync beside blocks without a rest us"),
    low("long_block_p50_ms", "block apply without a rest p50 ms"),
    low("long_block_p99_ms", "block apply without a rest p99 ms"),
    low("long_block_p999_ms", "block apply without a rest p99.9 ms"),
    low("long_block_max_ms", "block apply without a rest max ms"),
    low("reopen_cold_ms", "reopen cold ms"),
    high("cold_get_per_s", "cold get /s"),
    neither("cold_get_read_bytes", "cold get, bytes read of the device"),
    neither("cold_warm_read_mb", "read of the device before cold gets MB"),
    high("cold_many_per_s", "cold get, batches of 32, keys/s"),
    neither("cold_raw_per_s", "cold raw read /s"),
    neither("cold_raw32_per_s", "cold raw read, 32 threads /s"),
    high("limited_load_per_s", "little memory, load incl. sync /s"),
    high("limited_get_per_s", "little memory, get hit /s"),
    high("limited_block_per_s", "little memory, block apply /s"),
    low("close_ms", "close ms"),
    low("reopen_clean_ms", "reopen clean ms"),
    low("reopen_killed_ms", "reopen after kill -9 ms"),
    neither("fresh_kept_pct", "unsynced kept after kill %"),
    low("anon_mb", "anonymous memory MB"),
    low("disk_load_mb", "disk after load MB"),
    low("disk_end_mb", "disk at the end MB"),
];

impl Measure {
    /// Whether it is the most of something. The most of several rounds is the largest of them, not the middle.
    pub fn is_max(&self) -> bool {
        self.name.contains("_max")
    }
}

/// The measure called `name`.
pub fn find(name: &str) -> Option<&'static Measure> {
    MEASURES.iter().find(|measure| measure.name == name)
}

const fn high(name: &'static str, title: &'static str) -> Measure {
    Measure { name, title, better: Better::High }
}

const fn neither(name: &'static str, title: &'static str) -> Measure {
    Measure { name, title, better: Better::Neither }
}

const fn low(name: &'static str, title: &'static str) -> Measure {
    Measure { name, title, better: Better::Low }
}
