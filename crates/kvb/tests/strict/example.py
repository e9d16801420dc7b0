"""Writes the worked example of docs/format/kvb.md from the golden buckets.

Usage: example.py GOLDEN GUARDED             prints the section
       example.py GOLDEN GUARDED --into PAGE replaces it in the page

Run it when the golden buckets were written anew (KVB_BLESS=1). It shares no code with the engine.
"""

import argparse
import sys

from reader import SEGMENT_HEADER, record_at
from vectors import LAYOUTS, fields, layout

TITLE = "## Worked example"
DATA, FREE, META, MOVED, GUARD = 1, 2, 4, 8, 16


def size_of(structure):
    return sum(size for _, size, _ in layout(structure))


class Bucket:
    """The parts of a file that the example speaks of."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.block = self.read("Superblock", 0)
        self.page = self.block["page_size"]
        self.extension = self.read("Extension", 136)
        self.extents = list(self.walk())

    def read(self, structure, at):
        assert structure in LAYOUTS
        raw = self.data[at : at + size_of(structure)]
        values = fields(structure, raw)
        return {
            name: value if value.startswith("hex:") else int(value)
            for name, value in values.items()
        }

    def walk(self):
        page = self.block["segment_start_page"]
        while page < self.block["segment_end_page"]:
            header = self.read("SegmentHeader", page * self.page)
            size = header["segment_size"]
            pages = -(-size // self.page) if size else header["reserved"]
            yield page, pages, header
            page += pages

    def segment(self, is_wanted):
        return next(extent for extent in self.extents if is_wanted(extent[2]))

    def records(self, page, pages, header):
        """Offsets of the records of a segment, and the end of the last."""
        start = page * self.page
        end = start + (header["segment_size"] or pages * self.page)
        at = start + SEGMENT_HEADER.size
        while True:
            found = record_at(self.data, at, end)
            if not found:
                return
            yield at, found[1], found[0]
            at = found[1]

    def hex(self, at, end):
        """Lines of sixteen bytes with their offset."""
        lines = []
        for line in range(at, end, 16):
            raw = self.data[line : min(line + 16, end)]
            left, right = raw[:8].hex(" "), raw[8:].hex(" ")
            lines.append(f"{line:08x}  {left}" + (f"  {right}" if right else ""))
        return "\n".join(lines)


def quote(*parts):
    return "```hex\n" + "\n".join(parts) + "\n```\n"


def count(number, what):
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def kind_of(header):
    flags = header["flags"]
    if flags & FREE:
        return "FREE"
    if flags & META:
        return "META"
    return "DATA" + (" MOVED" if flags & MOVED else "") + (" GUARD" if flags & GUARD else "")


def wrapped(text):
    """Paragraphs of at most 118 columns."""
    words, lines, line = text.split(), [], ""
    for word in words:
        if line and len(line) + 1 + len(word) > 118:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join(lines + [line]) + "\n"


def superblock_part(bucket):
    block, extension, head = bucket.block, bucket.extension, bucket.read("RosterHead", 512)
    yield wrapped(
        f"""**Superblock A.** The first four bytes are the magic; then version 1.0, `page_size` 0x1000, the uuid,
        `created_unix_ns`; `flags` {block["flags"]} at byte 0x24: extension, XXH3-64, key directories. The image's one
        index page is page {block["index_region_start_page"]}; the map is page {block["fsm_start_page"]}; the ring
        {block["journal_page_count"]} pages from page {block["journal_start_page"]}; the segment region ends before page
        {block["segment_end_page"]}. `commit_seqno` is {block["commit_seqno"]}, `commit_paddr`
        {block["commit_paddr"]:#x}, `epoch` {block["epoch"]}. The CRC is {block["crc32c"]:#010x}."""
    )
    yield quote(bucket.hex(0, 136))
    yield wrapped(
        f"""**Extension.** `KVBX`, {extension["length"]} bytes, hash kind 0, the epoch and the uuid again; this copy is in
        page 0, B in page {extension["b_page"]}, the last of the file; `durable_seqno` {extension["durable_seqno"]},
        `tail_seqno` {extension["tail_seqno"]}; the next seg_id is {extension["next_seg_id"]}. The image knows the log up
        to seqno {extension["image_seqno"]} and moved records up to segment {extension["image_seg_id"]}; there is no
        table; the bulletin is page {extension["bulletin_page"]}; nothing the image names is gone."""
    )
    yield quote(bucket.hex(136, 336))
    named, sealed = head["named_count"], head["sealed_count"]
    named_at, sealed_at = 512 + 32, 512 + 32 + 24 * named
    end = sealed_at + 96 * sealed
    entries = [bucket.read("SegmentEntry", sealed_at + 96 * at) for at in range(sealed)]
    told = "; ".join(
        f"""segment {entry["seg_id"]} in {count(entry["data_page_count"], "page")} from page {entry["start_page"]} and
        {entry["meta_page_count"]} of side data, {entry["record_count"]} records with seqnos from {entry["base_seqno"]}
        to {entry["last_seqno"]}, {entry["dead_bytes"]} of {entry["record_bytes"]} bytes known dead, flags
        {entry["flags"]}"""
        for entry in entries
    )
    yield wrapped(
        f"""**Roster.** {named} named extents, from byte {named_at:#x}, all for the log, and {sealed} registered segments,
        from byte {sealed_at:#x}: {told}. Then the CRC."""
    )
    yield quote(bucket.hex(512, end + 4))


def walk_part(bucket):
    named = [
        bucket.read("NamedExtent", 544 + 24 * at)["start_page"]
        for at in range(bucket.read("RosterHead", 512)["named_count"])
    ]
    steps = []
    for page, pages, header in bucket.extents:
        text = f"{page} {kind_of(header)}, {pages}"
        if page in named:
            text += " (named)"
        elif header["flags"] & DATA:
            text += f" ({header['segment_size']} bytes)"
        steps.append(text)
    yield wrapped(
        f"""**Walking** from page {bucket.block["segment_start_page"]} to page {bucket.block["segment_end_page"]}, by
        pages: {"; ".join(steps)}. Extents that are named and FREE are kept for the log; nothing was written there yet.
        The one that is named and DATA is not sealed: it has {next(h for p, _, h in bucket.extents
        if p in named and h["flags"] & DATA)["reserved"]} pages by `reserved`."""
    )


def moved_part(bucket):
    page, pages, header = bucket.segment(lambda one: one["flags"] & MOVED)
    start = page * bucket.page
    records = list(bucket.records(page, pages, header))
    yield wrapped(
        f"""**A segment of moved records**, page {page}: seg_id {header["seg_id"]}, lowest seqno {header["base_seqno"]},
        DATA and MOVED, process 1, {header["reserved"]} pages were allotted, {header["segment_size"]} bytes."""
    )
    yield quote(bucket.hex(start, start + 52))
    first = records[0]
    yield wrapped(
        f"""**Its first record** is that of the empty key, the lowest of all: mark 2, seqno {first[2].seqno} as it had in
        the log, value of {len(first[2].value)} bytes."""
    )
    yield quote(bucket.hex(first[0], first[1]))
    zero = next(one for one in records if bucket.read("RecordHeader", one[0])["hash64"] == 0)
    yield wrapped(
        f"""**A key whose hash is 0** comes next in this segment, with seqno {zero[2].seqno}. The record says 0; the index
        has it under 2."""
    )
    yield quote(bucket.hex(zero[0], zero[1]))
    end = records[-1][1]
    foot = bucket.read("FooterHead", end)
    second = bucket.read("SparsePair", end + 28 + 16)
    yield wrapped(
        f"""**The footer**, behind {len(records)} records: seg_id {foot["seg_id"]}, highest seqno {foot["last_seqno"]},
        {foot["live_bytes"]} bytes of PUTs, {foot["sparse_index_n"]} pairs: the first record, and the 65th at
        {second["paddr"]:#x}."""
    )
    yield quote(bucket.hex(end, start + header["segment_size"]))
    yield from side_part(bucket, page + pages, records, start)


def side_part(bucket, page, records, start):
    at = page * bucket.page
    head = bucket.read("MetaHead", at + 128)
    sections = [bucket.read("Section", at + 192 + 24 * n) for n in range(head["section_count"])]
    run, words, order = sections
    yield wrapped(
        f"""**Its side data**, page {page}: header; at byte 128 the head: `KVBM`, kind 2, {head["section_count"]} sections,
        uuid, seg_id {head["id"]}, {head["count"]} records, lowest seqno {head["seqno"]},
        {count(head["page_count"], "page")}; the
        run at byte {run["offset"]} with {head["count"]} * 16 bytes, the filter at {words["offset"]} with
        {words["length"] // 8} words, the directory at {order["offset"]}."""
    )
    end = at + 192 + 24 * len(sections) + 4
    yield quote(bucket.hex(at, at + 52), bucket.hex(at + 128, end))
    entry = bucket.read("RunEntry", at + run["offset"])
    yield wrapped(
        f"""The run begins with the keys of hash 0 and 1, the first of them at offset {entry["offset"]:#x} of the segment,
        with a seqno of {entry["seqno_delta"]} more than the lowest."""
    )
    yield quote(bucket.hex(at + run["offset"], at + run["offset"] + 32))
    where = at + order["offset"]
    directory = bucket.read("DirectoryHead", where)
    numbers = where + 8 + 4 * directory["count"]
    eighth = records[8][2].key
    yield wrapped(
        f"""The directory: {directory["count"]} records, no byte that all keys begin with; the first four places. In a
        segment of moved records they follow the records. Behind them the numbers, of which the second belongs to
        `{eighth.decode()}`, read as big-endian."""
    )
    yield quote(bucket.hex(where, where + 24), bucket.hex(numbers, numbers + 16))


def log_part(bucket):
    page, pages, header = bucket.segment(
        lambda one: one["flags"] & DATA and not one["flags"] & MOVED and one["segment_size"]
    )
    start = page * bucket.page
    records = list(bucket.records(page, pages, header))
    yield wrapped(
        f"""**A sealed segment of the log**, page {page}: seg_id {header["seg_id"]}, first seqno {header["base_seqno"]},
        {header["segment_size"]} bytes; and the beginning of its first record, a PUT of `{records[0][2].key.decode()}` with
        a value of {len(records[0][2].value)} bytes, a batch of its own (mark 1)."""
    )
    yield quote(bucket.hex(start, start + 52), bucket.hex(records[0][0], records[0][0] + 60))
    deleted = next(one for one in records if one[2].kind == 1)
    yield wrapped(
        f"""**A DELETE** of `{deleted[2].key.decode()}`, which hides the moved record of that key: kind 1, mark 1, no
        value."""
    )
    yield quote(bucket.hex(deleted[0], deleted[1]))


def rest_part(bucket):
    page = bucket.block["index_region_start_page"]
    at = page * bucket.page
    head = bucket.read("IndexPageHeader", at)
    slots = [bucket.read("IndexSlot", at + 28 + 16 * n) for n in range(head["slots"])]
    two = next(n for n, slot in enumerate(slots) if slot["hash64"] == 2)
    digest = at + 28 + 16 * head["slots"]
    yield wrapped(
        f"""**The index page**, page {page}: the image's id, {head["slots"]} slots, {head["used"]} in use, its own number.
        Slots {two} and {two + 1} hold the keys of hash 0 and 1. The digest stands at 28 + 128 * 16 = 0x81c."""
    )
    slot = at + 28 + 16 * two
    yield quote(bucket.hex(at, at + 28), bucket.hex(slot, slot + 32), bucket.hex(digest, digest + 8))
    ring = bucket.block["journal_start_page"] * bucket.page
    insert, commit = bucket.read("JournalEntry", ring), bucket.read("JournalEntry", ring + 52)
    yield wrapped(
        f"""**The journal**, page {ring // bucket.page}: IndexInsert of seqno {insert["seqno"]}, which was the first, because
        opening the new bucket left a gap behind `tail_seqno` 1, with home slot {insert["slot_idx"]} of page
        {insert["index_pageid"]}, where the image was then, and the record at {insert["record_paddr"]:#x}, where it was
        then; then the Commit of {commit["seqno"]}, with the uuid tag, {commit["index_pageid"]} synced, seg_id
        {commit["slot_idx"]}, end of the log at {commit["record_paddr"]:#x}."""
    )
    yield quote(bucket.hex(ring, ring + 104))
    at = bucket.block["fsm_start_page"] * bucket.page
    head = bucket.read("FreeMapHead", at)
    yield wrapped(
        f"""**The free-space map**, page {head["pageid"]}: {head["extent_count"]} free runs, epoch {head["epoch"]}, its own
        number, speaking of pages 0 to {head["page_count"] - 1}."""
    )
    yield quote(bucket.hex(at, at + 48))


def guard_part(bucket):
    page, pages, header = bucket.segment(lambda one: one["flags"] & GUARD)
    start = page * bucket.page
    told = ", ".join(
        f"a {'DELETE' if record.kind else 'PUT that has expired'} of `{record.key.decode()}` (seqno {record.seqno})"
        for _, _, record in bucket.records(page, pages, header)
    )
    yield wrapped(
        f"""**A guard** is in the other file, `vectors/kvb/guarded.kvb`, a bucket without key directories (superblock flags
        {bucket.block["flags"]:#x}). It was closed when a snapshot had just let go of segments that compaction had emptied. The
        guard in page {page} has header flags {header["flags"]:#x} and holds {told}: there were older values of both keys
        in another segment of the round. That one is FREE now, and the next round drops the guard."""
    )
    # Not as a quote of the golden bucket.
    yield "```text\n" + bucket.hex(start, start + 52) + "\n```\n"


def section(golden, guarded):
    parts = [
        TITLE + "\n",
        wrapped(
            """The bytes are those of `vectors/kvb/golden.kvb`; `crates/kvb/tests/strict/example.py` writes this section
            from the file. Offsets are hexadecimal."""
        ),
    ]
    for part in (superblock_part, walk_part, moved_part, log_part, rest_part):
        parts += part(golden)
    parts += guard_part(guarded)
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description="Writes the worked example of the format page.")
    parser.add_argument("golden")
    parser.add_argument("guarded")
    parser.add_argument("--into", help="the page to write it into")
    options = parser.parse_args()
    text = section(Bucket(options.golden), Bucket(options.guarded))
    if not options.into:
        sys.stdout.write(text)
        return
    with open(options.into, encoding="utf-8") as file:
        page = file.read()
    before, rest = page.split(TITLE + "\n", 1)
    behind = rest[rest.index("\n## ") :]
    with open(options.into, "w", encoding="utf-8") as file:
        file.write(before + text + behind)


if __name__ == "__main__":
    main()
