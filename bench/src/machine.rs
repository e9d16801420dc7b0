//! What the machine can tell: memory and disk use, and what it is.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fs::{Advice, FallocateFlags};

use crate::times::Times;

/// How long [`rest`] waits at most, and between two looks.
const REST_MAX: Duration = Duration::from_secs(60);
const REST_LOOK: Duration = Duration::from_millis(400);

/// The lock file names the exact versions that were built.
const LOCK: &str = include_str!("../Cargo.lock");

/// Anonymous memory of this process; mapped files do not count.
pub fn anon_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let kib = field(&status, "RssAnon:").context("no RssAnon")?;
    Ok(kib.trim_end_matches("kB").trim().parse::<u64>()? * 1024)
}

/// Bytes the files under `dir` take on the disk, holes excluded.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // A store may remove a file while we look.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        total += match metadata.is_dir() {
            true => disk_bytes(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(total)
}

/// Bytes written to the device that `dir` is on, by everybody.
pub fn device_bytes(dir: &Path) -> Result<u64> {
    let device = fs::metadata(dir)?.dev();
    let device = [rustix::fs::major(device).to_string(), rustix::fs::minor(device).to_string()];
    let stats = fs::read_to_string("/proc/diskstats")?;
    let mut lines = stats.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = lines.find(|fields| fields.iter().take(2).eq(device.iter()));
    let sectors = found.and_then(|fields| fields.get(9)?.parse::<u64>().ok());
    Ok(sectors.context("the device keeps no statistics")? * 512)
}

/// Microseconds that a small write into allocated space and a sync take in `dir`, median of 500:
/// how busy others keep the disk.
pub fn raw_sync_us(dir: &Path) -> Result<f64> {
    Ok(raw_syncs(dir, 500)?.at(0.5))
}

/// Microseconds that each of so many small writes into allocated space takes in `dir` with its sync.
pub fn raw_syncs(dir: &Path, count: u64) -> Result<Times> {
    const BYTES: u64 = 184;
    let path = dir.join("raw");
    let file = fs::File::create(&path)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, (count * BYTES).max(1 << 20))?;
    file.sync_all()?;
    let mut times = Vec::new();
    for number in 0..count {
        let start = Instant::now();
        file.write_all_at(&[1; BYTES as usize], number * BYTES)?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    fs::remove_file(&path)?;
    Times::new(times)
}

/// Bytes of pages this process has made dirty. Too many where the file system keeps large folios:
/// one changed page then counts as a whole folio.
pub fn written_bytes() -> Result<u64> {
    let io = fs::read_to_string("/proc/self/io")?;
    Ok(field(&io, "write_bytes:").context("no write_bytes")?.parse()?)
}

/// Bytes this process has had read from devices.
pub fn read_bytes() -> Result<u64> {
    let io = fs::read_to_string("/proc/self/io")?;
    Ok(field(&io, "read_bytes:").context("no read_bytes")?.parse()?)
}

/// Waits until the threads of this process have nothing left to do, or for [`REST_MAX`]; since when they have nothing.
pub fn rest() -> Result<Instant> {
    let start = Instant::now();
    let look = || anyhow::Ok((Instant::now(), cpu_ticks()?, written_bytes()?, read_bytes()?));
    let mut before = look()?;
    while start.elapsed() < REST_MAX {
        std::thread::sleep(REST_LOOK);
        let now = look()?;
        // A tick for looking.
        if now.1 <= before.1 + 1 && now.2 == before.2 && now.3 == before.3 {
            return Ok(before.0);
        }
        before = now;
    }
    eprintln!("    still at work after {} s", REST_MAX.as_secs());
    Ok(Instant::now())
}

/// Ticks of processor time this process has used.
fn cpu_ticks() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may hold anything; user and system time are the 12th and 13th
    // fields behind it.
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    ticks.sum::<Result<u64, _>>().context("no times in stat")
}

/// Waits until the file system of `dir` has nothing left to write.
pub fn settle(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(fs::File::open(dir)?)?)
}

/// Touches half of the memory that is free. A virtual machine gets its memory from the host page by page at the first
/// touch, and whoever is measured first would pay for that.
pub fn touch_memory() -> Result<()> {
    let memory = fs::read_to_string("/proc/meminfo")?;
    let kib = field(&memory, "MemAvailable:").and_then(|text| text.split(' ').next());
    let bytes = kib.context("no MemAvailable")?.parse::<usize>()? * 1024 / 2;
    let mut touched = vec![0_u8; bytes];
    touched.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&touched);
    Ok(())
}

/// Takes what lies under `dirs` out of the page cache, and says how. Pages that a living process
/// has mapped stay, so stores must be closed.
pub fn drop_caches(dirs: &[&Path]) -> Result<()> {
    rustix::fs::sync();
    if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        eprintln!("    page cache dropped, all of it");
        return Ok(());
    }
    for dir in dirs {
        forget(dir)?;
    }
    eprintln!("    page cache dropped, file by file");
    Ok(())
}

fn forget(path: &Path) -> Result<()> {
    if path.is_dir() {
        return fs::read_dir(path)?.try_for_each(|entry| forget(&entry?.path()));
    }
    Ok(rustix::fs::fadvise(fs::File::open(path)?, 0, None, Advice::DontNeed)?)
}

/// Processor, cores, memory, kernel and load.
pub fn description() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let model = field(&cpu, "model name").map_or("?", |text| text.trim_start_matches([':', ' ']));
    let cores = cpu.lines().filter(|line| line.starts_with("processor")).count();
    let kib = field(&memory, "MemTotal:").and_then(|text| text.split(' ').next()?.parse().ok());
    let gib = kib.unwrap_or(0.0) / f64::from(1 << 20);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load: Vec<&str> = load.split(' ').take(3).collect();
    format!(
        "{model}, {cores} cores, {gib:.1} GiB, Linux {}, load {}",
        kernel.trim(),
        load.join(" ")
    )
}

/// The file system that `dir` is on, and the device below it, as far as they can be told.
pub fn file_system(dir: &Path) -> String {
    let Ok(device) = fs::metadata(dir).map(|metadata| metadata.dev()) else {
        return "?".to_owned();
    };
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_it = |line: &&str| line.split(' ').nth(2) == Some(device.as_str());
    // Behind the dash: the type, what is mounted, and how.
    let mount = mounts.lines().rfind(is_it).and_then(|line| line.split_once(" - "));
    let (kind, source) = mount.and_then(|(_, rest)| rest.split_once(' ')).unwrap_or(("?", "?"));
    let source = source.split(' ').next().unwrap_or("?");
    format!("{kind} on {source}, {}", device_model(&Path::new("/sys/dev/block").join(device)))
}

/// What a device says of itself, or at least who drives it.
fn device_model(device: &Path) -> String {
    // A partition has the device above it.
    let of_either = |name: &str| {
        let read = |path: &Path| fs::read_to_string(path.join(name)).ok();
        read(device).or_else(|| read(&device.join("..")))
    };
    let driver = fs::read_link(device.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let model = match (of_either("device/model"), driver) {
        (Some(model), _) => model.trim().to_owned(),
        (None, Some(driver)) => format!("no model, driver {driver}"),
        (None, None) => "device unknown".to_owned(),
    };
    match of_either("queue/write_cache") {
        Some(cache) => format!("{model}, cache: {}", cache.trim()),
        None => model,
    }
}

/// The compiler that made this program.
pub fn rustc() -> &'static str {
    env!("RUSTC_VERSION")
}

/// The commit that this program was made of, with a mark if anything was changed behind it.
pub fn commit() -> &'static str {
    env!("GIT_COMMIT")
}

/// Versions of the engines: the crates as locked, the C libraries as they say themselves.
pub fn versions() -> String {
    let lmdb = heed::lmdb_version();
    let mut parts = vec![
        format!("heed {} (LMDB {}.{}.{})", locked("heed"), lmdb.major, lmdb.minor, lmdb.patch),
        format!("rocksdb {} (library {})", locked("rocksdb"), rocksdb_library()),
        format!("redb {}", locked("redb")),
        format!("fjall {}", locked("fjall")),
        format!("rusqlite {} (SQLite {})", locked("rusqlite"), rusqlite::version()),
        format!("parity-db {}", locked("parity-db")),
        format!("candystore {}", locked("candystore")),
    ];
    if cfg!(feature = "kvb") {
        parts.insert(0, format!("kvb {}", locked("kvb")));
    }
    parts.join(", ")
}

fn locked(name: &str) -> &'static str {
    let line = format!("name = \"{name}\"");
    let mut lines = LOCK.lines().skip_while(|at| *at != line);
    let version = lines.nth(1).and_then(|at| at.strip_prefix("version = "));
    version.map_or("?", |quoted| quoted.trim_matches('"'))
}

/// The version in the file name of the library that the loader chose.
fn rocksdb_library() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let version = maps.lines().find_map(|line| line.split("librocksdb.so.").nth(1));
    version.unwrap_or("?").to_owned()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
