#!/usr/bin/env python3
"""Breaks each rule of the engine on purpose, one at a time, and shows which test notices.

Works on a copy of the project in a temporary directory. Every break is a piece of source text and what takes its
place; a piece that is not there any more is an error, so the list stays true. A break that no test notices is an
error too.

    tools/break_rules.py              all of them, over an hour
    tools/break_rules.py seqno seal   those whose rule contains one of the words
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 400

# Rule, file, text, what takes its place, tests to run until one fails.
BREAKS = [
    ("a batch counts only with its mark", "tail.rs",
     "if record.header.is_commit() || is_planted(Bug::HalfABatch) {",
     "if record.header.is_commit() || !is_planted(Bug::HalfABatch) {", ["crash"]),
    ("only the last record of a batch is marked", "writer.rs",
     "reserved16: if is_last { MARK_COMMIT } else { 0 },", "reserved16: MARK_COMMIT,", ["crash"]),
    ("the walk of the tail follows seqnos", "tail.rs",
     "Some(seqno) => record.header.seqno.get() == seqno,", "Some(seqno) => seqno > 0,", ["crash"]),
    ("mount leaves a gap of seqnos", "mount.rs",
     "self.tail.next_seqno.max(self.durable_seqno + 1) + room / RECORD_MIN + 1",
     "self.position().seqno + 1 + room / RECORD_MIN * 0", ["crash"]),
    ("mount gives new segment ids", "recover.rs",
     "named.seg_id.set(next_seg_id);", "let _ = &named;", ["rules"]),
    ("torn is not rotten", "mount.rs",
     "if tail.next_seqno <= durable_seqno {", "if tail.next_seqno <= durable_seqno && tail.scanned > 1 << 40 {",
     ["damage"]),
    ("the journal tells what was durable", "mount.rs",
     ".max(ring.durable_seqno)", ".max(0)", ["damage"]),
    ("a tail that may not be durable is written again", "recover.rs",
     "            rewrite(core, segment)?;\n", "", ["faults"]),
    ("seal: parts durable before the header", "segment.rs",
     """        disk.sync().map_err(Error::io("sync a sealed segment"))?;
""", "", ["crash"]),
    ("cutting a free extent: headers synced in order", "room.rs",
     """            core.disk.sync_range(at, 512).map_err(Error::io("sync a free extent"))?;
""", "            let _ = at;\n", ["crash", "strict_reader"]),
    ("an allotted extent has a header at once", "room.rs",
     """            write_passive(&*core.disk, core.geometry(), Kind::Free, extent)?;
            return Ok(extent);""", "            return Ok(extent);", ["crash"]),
    ("space is freed only after both superblocks", "checkpoint.rs",
     "        self.epoch += 1;\n", "        self.release(core)?;\n        self.epoch += 1;\n", ["crash"]),
    ("log extents are named before use", "keeper.rs",
     "if !segments.is_empty() || !fresh.is_empty() {", "if !segments.is_empty() {", ["crash"]),
    ("an image that a reader holds stays", "room.rs",
     "Arc::strong_count(image) > 1)", "Arc::strong_count(image) > 1 << 30)", ["rules"]),
    ("index pages are checked by digest", "image.rs",
     "return index_page::check_page(bytes, self.place.id, pageid, None);",
     "return crate::format::read(bytes);", ["damage"]),
    ("key bytes are compared, image", "group.rs",
     "if record.key() == key || is_planted(Bug::KeyNotCompared) {",
     "if record.key() == key || !is_planted(Bug::KeyNotCompared) {", ["model"]),
    ("key bytes are compared, overlay", "overlay.rs",
     "                    && known.key() == key\n", "                    && (known.key() == key || !key.is_empty())\n",
     ["model"]),
    ("hashes 0 and 1 move", "format/index_page.rs",
     "hash64 + 2", "hash64", ["golden"]),
    ("colliding keys find room in a new image", "image_builder.rs",
     "self.used > self.slot_count() / 16 * 15", "self.used > u64::MAX - self.slot_count()", ["behaviour"]),
    ("a flood of one hash stays cheap", "overlay.rs",
     "const FLOOD: usize = 8;", "const FLOOD: usize = 1 << 30;", ["flood"]),
    ("what a checkpoint names is synced before it", "checkpoint.rs",
     """        if !is_planted(Bug::CheckpointEarly) {
            core.disk.sync().map_err(Error::io("sync the log"))?;
        }
        self.write_superblocks(core, position)
    }

    /// A checkpoint with""",
     """        if is_planted(Bug::CheckpointEarly) {
            core.disk.sync().map_err(Error::io("sync the log"))?;
        }
        self.write_superblocks(core, position)
    }

    /// A checkpoint with""", ["crash"]),
    ("each superblock is synced", "checkpoint.rs",
     """            core.disk
                .sync_range(geometry.paddr(page), geometry.page_size)
                .map_err(Error::io("sync a superblock"))?;
""", "", ["crash"]),
    ("an extension counts only with its epoch", "format/extension.rs",
     "extension.epoch.get() == epoch", "(extension.epoch.get() == epoch || epoch > 0)", ["damage"]),
    ("a roster counts only with its extension", "format/roster.rs",
     "|| crc32c.to_le_bytes() != stored", "", ["crash", "damage"]),
    ("superblock A is restored before B is written over", "root.rs",
     "    if at == 0 {\n", "    if at < u64::MAX {\n", ["crash"]),
    ("the superblock that counts is made durable first", "root.rs",
     "    disk.sync_range(at, page_size).map_err(Error::io(\"sync a superblock\"))?;\n", "", ["death"]),
    ("and written again, for a sync may have failed", "root.rs",
     "    disk.write_at(at, &page).map_err(Error::io(\"write a superblock\"))?;\n", "", ["death"]),
    ("a map of a checkpoint that was cut off has no stamp", "recover.rs",
     "    blank_map(core, &keeper)?;\n", "    let _ = blank_map;\n", ["crash"]),
    ("the greater epoch counts", "root.rs",
     "root.superblock.epoch.get() > best.superblock.epoch.get()",
     "root.superblock.epoch.get() < best.superblock.epoch.get()", ["crash"]),
    ("a copy of the superblock that cannot be read fails the open", "root.rs",
     "            Err(Loss::Io(error)) => return Err(error),\n            Err(Loss::Key",
     "            Err(Loss::Io(_)) => continue,\n            Err(Loss::Key", ["faults"]),
    ("growth: the length is durable before B", "room.rs",
     """        core.disk.sync().map_err(Error::io("sync the grown bucket"))?;
""", "", ["crash"]),
    ("growth: new pages only after A", "room.rs",
     "        self.space.set_raw_end(self.b_page);\n        self.write_superblocks(core, position)",
     "        self.space.set_raw_end(self.b_page);\n        let _ = position;\n        Ok(())", ["crash"]),
    ("the cut is physical", "recover.rs",
     "        write_passive(&*core.disk, geometry, Kind::Free, extent)?;\n        freed.push(extent);",
     "        freed.push(extent);", ["crash"]),
    ("pieces of a lost batch are freed", "mount.rs",
     "segments.split_off(kept)", "segments.split_off(segments.len().max(kept))", ["crash"]),
    ("no table lists the pieces of a lost batch", "recover.rs",
     "        keeper.write_table(core)?;\n", "", ["crash"]),
    ("a reader that gives up the image still knows the tail", "assemble.rs",
     "let known_seqno = if read_only && report.damage.is_none() { 0 } else { image_seqno };",
     "let known_seqno = image_seqno;", ["damage"]),
    ("mount ends with a checkpoint", "recover.rs",
     "    keeper.checkpoint(core)?;\n    for extent in freed", "    for extent in freed", ["crash"]),
    ("the clock is not behind the newest stamp", "clock.rs",
     "wall.max(newest)", "wall.max(newest * 0)", ["rules"]),
    ("stamps a day ahead are not adopted", "clock.rs",
     "if stamp_ns > self.limit_ns {", "if stamp_ns > self.limit_ns && stamp_ns == 0 {", ["behaviour"]),
    ("deadlines saturate", "format/record.rs",
     "saturating_add", "wrapping_add", ["rules"]),
    ("a durable commit covers relaxed ones before it", "writer.rs",
     "[(at, len)] if !writer.unsynced => {", "[(at, len)] => {", ["crash"]),
    ("a durable commit is synced", "writer.rs",
     """                self.disk.sync_range(at, len).map_err(Error::io("sync the log"))?;
""", "                let _ = (at, len);\n", ["crash"]),
    ("the journal follows the records", "writer.rs",
     "        match *writer.written.as_slice() {",
     """        if durability == Durability::Sync {
            let entries = self.journal_entries(writer)?;
            writer.ring.append(&*self.disk, &entries)?;
        }
        match *writer.written.as_slice() {""", ["rules"]),
    ("readers see a commit only after its sync", "writer.rs",
     "        self.make_durable(writer, durability)?;\n        self.publish(writer)?;",
     "        self.publish(writer)?;\n        self.make_durable(writer, durability)?;", ["rules"]),
    ("readers see a batch whole", "overlay.rs",
     "return if record.header.seqno.get() <= horizon {",
     "return if record.header.seqno.get() <= horizon.max(u64::MAX) {", ["threads"]),
    ("a failed write stops the writer", "core.rs",
     "            self.stopped.store(true, Ordering::Release);\n            tracing",
     "            tracing", ["faults"]),
    ("no space does not stop the writer", "core.rs",
     "Error::NoSpace | Error::Invalid(_) | Error::TooLarge { .. }",
     "Error::Invalid(_) | Error::TooLarge { .. }", ["faults"]),
    ("the last extent is for deletes", "core.rs",
     "usize::from(!(deletes_only && self.starved))", "usize::from(!(deletes_only && self.starved)) | 1", ["faults"]),
    ("room for a large batch is made sure of before it is begun", "room.rs",
     "if self.space.raw_pages() >= needed {", "if self.space.raw_pages() < u64::MAX {", ["faults"]),
    ("at most two segments are unsealed", "background.rs",
     "if self.lock_supply().unsealed_pages() >= self.fixed.segment_page_max {",
     "if self.lock_supply().unsealed_pages() > u64::MAX - 1 {", ["rules"]),
    ("limits are checked before anything is written", "queue.rs",
     "        batch.check(self.fixed.max_value)?;\n", "", ["limits"]),
    ("one writer", "bucket.rs",
     "        if !is_planted(Bug::TwoWriters) {", "        if is_planted(Bug::TwoWriters) {", ["limits"]),
    ("a superblock of long ago is not found", "room.rs",
     "core.disk.write_at(old, &[0; 512])", "core.disk.write_at(old, &[0; 0])", ["damage"]),

    # Compaction.
    ("outputs are named before use", "output.rs",
     "            keeper.checkpoint(self)?;\n            named\n", "            named\n", ["rules", "crash"]),
    ("moved records are marked", "output.rs",
     "            reserved16: MARK_MOVED,\n", "            reserved16: MARK_MOVED & 1,\n", ["rules", "crash"]),
    ("an output that cannot be registered is taken back", "output.rs",
     "            keeper.take_back(self, &entry);\n", "", ["faults"]),
    ("outputs that are not registered are freed", "tail.rs",
     "            tail.abandoned.push(*extent);\n            continue;", "            continue;", ["crash"]),
    ("segments are given up only when outputs are registered", "round.rs",
     "        drop(merge);\n        self.close_window()?;", "        drop(merge);\n        self.give_up()?;\n        self.close_window()?;",
     ["crash"]),
    ("a table that lists what is given up is replaced", "keeper.rs",
     "if self.fresh.len() + removed.len() != fresh.len()", "if self.fresh.len() + removed.len() > fresh.len() + (1 << 30)",
     ["crash"]),
    ("the superblock tells that the image names what is gone", "checkpoint.rs",
     "image_gone: U64::new(self.image_gone),", "image_gone: U64::new(self.image_gone & 0),", ["crash"]),
    ("slots that lead to what is gone say nothing", "image.rs",
     "if is_gone { Member::Gone }", "if is_gone && index > 1 << 40 { Member::Gone }", ["crash", "compact"]),
    ("a new image leaves out what is gone", "image_walk.rs",
     "if is_in_pass && !is_gone &&", "if is_in_pass && (!is_gone || hash > 0) &&", ["crash", "compact"]),
    ("an image covers moved segments by their ids", "image.rs",
     "entry.seg_id.get() <= self.place.seg_id", "entry.seg_id.get() <= self.place.seg_id.max(u64::MAX)", ["crash"]),
    ("an image covers segments of the log by their seqnos", "image.rs",
     "entry.last_seqno.get() <= self.place.seqno", "entry.base_seqno.get() <= self.place.seqno", ["crash"]),
    ("an image covers guards whatever their ids", "image.rs",
     "            !self.is_void\n", "            entry.seg_id.get() <= self.place.seg_id\n", ["crash"]),
    ("an image knows which outputs are in it", "relocate.rs",
     "                self.moved_seg_id.fetch_max(seg_id, Ordering::AcqRel);\n",
     "                let _ = seg_id;\n", ["crash"]),
    ("no slot leads to a guard", "assemble.rs",
     "(image.covers(sealed) && !sealed.is_guard())", "(image.covers(sealed))", ["crash"]),
    ("a guard is one also when the table is lost", "segment.rs",
     "is_guard: header.is_guard()", "is_guard: header.is_guard() && header.seg_id.get() == 0", ["crash"]),
    ("nothing is frozen while records are moved", "background.rs",
     "        if self.is_moving.load(Ordering::Acquire) {", "        if self.is_moving.load(Ordering::Acquire) && self.is_closing() {",
     ["crash"]),
    ("records are judged behind the last freeze", "round.rs",
     "                    return self.settle(head);", "                    let _ = head;", ["crash"]),
    ("a put between copy and switch wins", "relocate.rs",
     "let is_current = matches!(known, Lookup::Absent);", "let is_current = matches!(known, Lookup::Absent | Lookup::Found(_));",
     ["crash", "compact"]),
    ("a moved record never beats a newer one", "overlay.rs",
     "Lookup::Found(known) if known.header.seqno.get() >= seqno => {",
     "Lookup::Found(known) if known.header.seqno.get() >= seqno && seqno == 0 => {", ["crash"]),
    ("a tombstone stays while another segment has an older record", "round.rs",
     "None if self.others.get(number).is_some_and(hides) => return Verdict::Move(record),",
     "None if number > 0 && self.others.get(number).is_some_and(hides) => return Verdict::Move(record),",
     ["crash", "compact"]),
    ("a tombstone stays while a segment given up before is on disk", "round.rs",
     "stay.chain(leaving).filter(is_other)", "stay.chain(leaving.take(0)).filter(is_other)", ["crash"]),
    ("a tombstone is guarded while its round is under way", "round.rs",
     "if is_hiding { Verdict::Guard(record) } else { Verdict::Drop }", "Verdict::Drop", ["crash"]),
    ("an expired record hides older ones like a tombstone", "round.rs",
     """                Verdict::Move(record.clone())
            } else {
                self.judge_last(head, hash)
            });""", """                Verdict::Move(record.clone())
            } else {
                Verdict::Drop
            });""", ["crash"]),
    ("an expired record in a guard is as good as a tombstone", "round.rs",
     "newest.is_none() && self.is_of_guard(head)", "newest.is_none() && self.is_of_guard(head) && head.seqno() == 0", ["crash"]),
    ("what has expired stays for an hour", "round.rs",
     "self.env.unix_ns().saturating_sub(GRACE_NS)", "self.env.unix_ns().saturating_sub(GRACE_NS & 1)", ["rules"]),
    ("a guard stays until what it hides is free", "round.rs",
     "if leaving.clone().any(is_victim) {", "if leaving.clone().any(is_victim) && core.is_closing() {", ["crash"]),
    ("freed headers are synced before anyone relies on them", "room.rs",
     """            core.disk.sync().map_err(Error::io("sync freed segments"))?;
""", "", ["crash", "rules"]),
    ("a segment that a reader holds stays", "room.rs",
     "Arc::strong_count(sealed) > 1 || Arc::strong_count(&sealed.hold) > 1", "Arc::strong_count(sealed) > 1 << 30", ["crash"]),
    ("mount frees segments that were given up", "recover.rs",
     "    free_stale(core, &keeper)?;\n", "    let _ = free_stale;\n", ["crash"]),
    ("mount writes free headers once more", "recover.rs",
     "header.kind() != Some(Kind::Meta) &&", "header.kind() == Some(Kind::Data) &&", ["faults"]),
    ("nothing is written behind a compaction that failed", "round.rs",
     "let result = self.latch_unless_damage(round.run());", "let result = round.run();", ["faults"]),
    ("an extent lent to compaction gets an id of its own", "output.rs",
     "        named.seg_id = U64::new(self.next_seg_id);\n", "", ["faults"]),
    ("room for the next image is kept", "keeper.rs",
     "        self.keep_image_spare(core)?;\n        let mut fresh", "        let mut fresh", ["faults"]),
    ("half a compaction is not begun on a full disk", "compact.rs",
     "Err(Error::NoSpace) => Ok(false),\n            result => result.map(|()| true),",
     "Err(Error::NoSpace) => Ok(true),\n            result => result.map(|()| true),", ["faults", "compact"]),
    ("compaction gets at what died since the image", "compact.rs",
     "if choice.wants_image() && !is_renewed {", "if choice.wants_image() && is_renewed {", ["churn"]),
    ("commits wait for compaction", "throttle.rs",
     "        if percent >= STOP {\n            return most;\n        }\n        let cost", "        if percent >= STOP {\n            return 0;\n        }\n        let cost",
     ["churn"]),
    ("side data is checked by its CRCs", "runs.rs",
     "(crate::format::crc(bytes) == section.crc32c.get())", "(crate::format::crc(bytes) > 0 || section.crc32c.get() > 0)",
     ["damage"]),
    ("who lost the directory sorts", "sealed.rs",
     "            Some(directory) => Order::Directory(directory),\n            None => {",
     "            Some(directory) => Order::Directory(directory),\n            None if self.is_moved() => Order::Sorted(Order::sort(log, &fixed.hash(), 0, &[])),\n            None => {",
     ["damage"]),
    ("tag: nothing is given out that it does not hold for", "log.rs",
     "let body = cipher.open(framed, paddr - start)?;",
     "let body = cipher.peek_key(framed.header, framed.body);", ["encryption"]),
    ("tag: it is also of the record's place", "cipher.rs",
     "at.copy_from_slice(&offset.to_le_bytes());", "at.copy_from_slice(&(offset * 0).to_le_bytes());", ["encryption"]),
    ("salt: another one for every opening", "cipher.rs",
     "&self.uuid, session_salt, &seg_id];", "&self.uuid, &[session_salt[0] * 0; 16], &seg_id];", ["encryption"]),
    ("MAC of a checkpoint", "root.rs",
     "if !keys.vouch_for_page(&page, &block) {", "if !keys.vouch_for_page(&page, &block) && page.is_empty() {",
     ["encryption"]),
    ("MAC of side data", "runs.rs",
     "self.bytes_of(kind).filter(|(_, bytes)| self.is_vouched_for(kind, bytes))", "self.bytes_of(kind)",
     ["encryption"]),
    ("MAC: without its table an encrypted bucket is not opened", "mount.rs",
     "None if fixed.is_encrypted() => {", "None if fixed.is_encrypted() && fixed.flags == 0 => {", ["foreign"]),
    ("MAC: the head of a record alone vouches for nothing", "log.rs",
     "if self.vault.is_some() { None } else { self.likely_head(paddr, hash) }",
     "self.likely_head(paddr, hash)", ["encryption"]),
    ("rotation overwrites what was under the old key", "room.rs",
     "                    self.overwrite(core, entry.extent)?;\n", "                    let _ = entry;\n", ["rotate"]),
    ("rotation names the new key before anything is under it", "rotate.rs",
     "vault.keys.store(Arc::new(Keys { current: key, old: Some(Arc::clone(&keys.current)) }));",
     "vault.keys.store(Arc::new(Keys { current: key, old: None }));", ["rotate"]),
    ("dictionaries have ids of their own", "book.rs",
     "Dictionary::renamed(bytes, self.fresh_id(), level)",
     "Dictionary::renamed(bytes, 40_000 + self.fresh_id() * 0, level)", ["foreign"]),
    ("a stored length is checked before it is believed", "format/stored.rs",
     "let fits = len <= max\n", "let fits = max > 0\n", ["foreign"]),
    ("an increment knows what compaction dropped", "round.rs",
     "keeper.dropped_seqno = keeper.dropped_seqno.max(dropped_seqno);", "let _ = dropped_seqno;", ["backup"]),
    ("repair: what was there before a named extent was taken stays away", "salvage.rs",
     "record.seqno < site.least_seqno);", "record.seqno < site.least_seqno.min(0));", ["repair"]),
    ("repair: a record inside a value is none", "salvage.rs",
     "        match &self.hash {\n", "        match &self.hash {\n            _ if lost > 0 => return true,\n", ["repair"]),
    ("repair: records lost in a row are counted by their bytes", "salvage.rs",
     "lost_at_most += (to - at) / RECORD_MIN + 1;", "lost_at_most += 1;", ["repair"]),
    ("a reader does not answer past a lost tail", "core.rs",
     "if is_known { Ok(()) } else { self.check_scan() }", "if is_known { Ok(()) } else { Ok(()) }", ["damage"]),
    ("verify: the log against the index", "verify/index.rs",
     '(true, None) => Some("the index does not know this key"),', "(true, None) => None,", ["verify"]),
    ("verify: the index against the log", "verify/index.rs",
     "if wanted != there {", "if wanted.count > there.count {", ["verify"]),
]


def try_break(copy: Path, rule: str, file: str, text: str, other: str, tests: list) -> str:
    path = copy / "crates/kvb/src" / file
    source = path.read_text()
    if text not in source:
        return "STALE: the text is not there any more"
    path.write_text(source.replace(text, other, 1))
    try:
        for test in tests:
            command = ["cargo", "test", "-q", "-p", "kvb", "--test", test]
            try:
                done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return f"{test} (hangs)"
            output = done.stdout + done.stderr
            if "could not compile" in output:
                return "STALE: does not compile\n" + output[-2000:]
            if done.returncode != 0:
                failed = re.findall(r"^    (\w[\w:]*)$", output, re.M)
                first = failed[0] if failed else "ends the test process"
                more = f" and {len(set(failed)) - 1} more" if len(set(failed)) > 1 else ""
                return f"`{test}`: {first}{more}"
        return "NOT NOTICED"
    finally:
        path.write_text(source)


def main() -> int:
    words = sys.argv[1:]
    bad = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "kvb"
        skip = shutil.ignore_patterns("target", ".git", "bench")
        shutil.copytree(ROOT, copy, skip)
        for rule, *rest in [b for b in BREAKS if not words or any(w in b[0] for w in words)]:
            result = try_break(copy, rule, *rest)
            bad += result.startswith(("STALE", "NOT"))
            print(f"| {rule} | {result} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
