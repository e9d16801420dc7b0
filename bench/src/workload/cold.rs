//! Reads of what is not in the page cache, against what the machine can at best do.
//!
//! No key is looked up twice: all that is looked up comes from one shuffled list.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::fs::Advice;

use super::Run;
use crate::engine::{Engine, Phase, Reader};
use crate::machine;
use crate::record::{KEY_LEN, Key, Probe, Record, value_len};

/// One get off the clock for so many keys: the upper pages of a tree are in memory then, and few records are. Whoever
/// reads an index in behind an open gets the time for it.
const WARM_KEYS: usize = 512;
/// Gets on the clock, or this part of the keys if that is less; the same for keys in batches.
const GETS: usize = 5000;
const GETS_PART: usize = 20;
const MANY: usize = 10_000;
const MANY_PART: usize = 10;
const BATCH: usize = 32;
/// Bytes that a get reads of the device at least if it is a cold one.
const COLD_BYTES: f64 = 1024.0;
/// Threads that read the raw file at once.
const RAW_THREADS: usize = 32;
/// Bytes that a raw read has besides a key and a value: the frame of a record.
const FRAME: usize = 48;

/// The records that are looked up, each once.
struct Draw {
    first: u32,
    warm: Vec<u32>,
    gets: Vec<u32>,
    many: Vec<u32>,
}

impl Run<'_> {
    pub(super) fn cold<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine: E = self.create()?;
        let engine = self.load(engine).context("load")?;
        engine.close().context("close")?;
        let draw = self.draw()?;

        plan.say("raw reads");
        // Not in the directory of the store, where some would not like it.
        let path = plan.dir.with_extension("raw");
        let raw = self.raw_reads(&path, &draw).context("raw reads");
        std::fs::remove_file(&path)?;
        raw?;

        plan.say("cold");
        machine::drop_caches(&[&plan.dir])?;
        let probe = Probe::new(u64::from(draw.first));
        let start = Instant::now();
        let engine = E::open(&plan.dir, Phase::Durable).context("open")?;
        engine.reader()?.get(&probe.key, |found| probe.check(found))??;
        self.set("reopen_cold_ms", start.elapsed().as_secs_f64() * 1e3);
        self.cold_gets(&engine, &draw).context("get")?;
        engine.close().context("close")
    }

    fn draw(&mut self) -> Result<Draw> {
        let keys = self.plan.keys;
        ensure!(keys >= WARM_KEYS, "too few keys");
        let mut indices = self.live.indices().to_vec();
        self.rng.shuffle(&mut indices);
        let mut take = |count: usize| indices.split_off(indices.len() - count);
        let first = take(1).first().copied().context("no keys")?;
        let warm = take(keys / WARM_KEYS);
        let gets = take(GETS.min(keys / GETS_PART));
        let many = take(MANY.min(keys / MANY_PART));
        Ok(Draw { first, warm, gets, many })
    }

    fn cold_gets<E: Engine>(&mut self, engine: &E, draw: &Draw) -> Result<()> {
        let mut reader = engine.reader()?;
        // What is read ahead may bring in far more than was asked for, so that gets are cold in
        // name only: how much was read says so.
        let before = machine::read_bytes()?;
        for probe in probes(&draw.warm) {
            reader.get(&probe.key, |found| probe.check(found))??;
        }
        machine::rest()?;
        let warm = machine::read_bytes()?;
        self.set("cold_warm_read_mb", (warm - before) as f64 / 1e6);
        let list = probes(&draw.gets);
        let start = Instant::now();
        for probe in &list {
            reader.get(&probe.key, |found| probe.check(found))??;
        }
        let per_s = list.len() as f64 / start.elapsed().as_secs_f64();
        let read = (machine::read_bytes()? - warm) as f64 / list.len() as f64;
        self.set("cold_get_read_bytes", read);
        if read < COLD_BYTES {
            // Something read the whole store ahead.
            return Ok(());
        }
        self.set("cold_get_per_s", per_s);

        let list = probes(&draw.many);
        let start = Instant::now();
        for batch in list.chunks(BATCH) {
            let keys: Vec<&Key> = batch.iter().map(|probe| &probe.key).collect();
            reader.get_many(&keys, |place, found| batch[place].check(found))?;
        }
        self.set("cold_many_per_s", list.len() as f64 / start.elapsed().as_secs_f64());
        Ok(())
    }

    /// Reads of a plain file with all keys and values, as many and as warm as those of the store.
    fn raw_reads(&mut self, path: &Path, draw: &Draw) -> Result<()> {
        write_raw(path, self.plan.keys)?;
        machine::drop_caches(&[path])?;
        let file = File::open(path)?;
        // Nobody can read ahead of what is random.
        rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
        read_raw(&file, &draw.warm)?;
        let start = Instant::now();
        read_raw(&file, &draw.gets)?;
        self.set("cold_raw_per_s", draw.gets.len() as f64 / start.elapsed().as_secs_f64());

        let parts = draw.many.chunks(draw.many.len().div_ceil(RAW_THREADS));
        let start = Instant::now();
        let done: Result<Vec<()>> = std::thread::scope(|scope| {
            let all: Vec<_> = parts.map(|part| scope.spawn(|| read_raw(&file, part))).collect();
            all.into_iter().map(|reader| reader.join().expect("no panics")).collect()
        });
        done?;
        self.set("cold_raw32_per_s", draw.many.len() as f64 / start.elapsed().as_secs_f64());
        Ok(())
    }
}

fn probes(indices: &[u32]) -> Vec<Probe> {
    indices.iter().map(|index| Probe::new(u64::from(*index))).collect()
}

fn write_raw(path: &Path, keys: usize) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for index in 0..keys as u64 {
        let record = Record::new(index);
        file.write_all(&record.key)?;
        file.write_all(&record.value)?;
    }
    // Room for the frame of the last.
    file.write_all(&[0; FRAME])?;
    Ok(file.into_inner().map_err(|error| error.into_error())?.sync_all()?)
}

fn read_raw(file: &File, indices: &[u32]) -> Result<()> {
    let len = KEY_LEN + value_len();
    let mut buffer = vec![0; len + FRAME];
    for index in indices {
        file.read_exact_at(&mut buffer, u64::from(*index) * len as u64)?;
        let value = &buffer[KEY_LEN..len];
        Probe::new(u64::from(*index)).check(Some(value))?;
    }
    Ok(())
}
