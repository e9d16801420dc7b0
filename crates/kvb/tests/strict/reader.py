"""A strict reader of bucket files, written from the specification and from nothing else.

It shares no code with the engine and needs only the Python standard library. It knows superblocks,
segment headers, records and footers; it ignores every flag in the low half, the index, the journal,
the free-space map and all extensions. Beside the specification it relies on six rules, all of them
in docs/format/kvb.md:

- a walk hops by `segment_size` rounded up to a page, and by the pages in `reserved` while that is 0;
- an extent with zeros where its first record would be holds no records;
- records of a segment that is not sealed have consecutive seqnos from `base_seqno` on;
- a batch ends with a record that carries bit 0 of `reserved16` (bit 1: moved, committed by itself),
  and every superblock's `commit_seqno` ends a batch;
- records with equal seqnos are the same record, of which all copies but one carry bit 1;
- records with a seqno up to `commit_seqno` of the newest valid superblock are visible, others not.

Usage: reader.py BUCKET [--now NANOSECONDS] [--info]

Prints one JSON line {"key": hex, "value": hex} for every live key, sorted by key. With --info a JSON
line about the superblock that counted goes to stderr. On damage: a message on stderr, exit status 1.
"""

import argparse
import json
import struct
import sys

MAGIC = 0x4B56424B
MUST_UNDERSTAND = 0xFFFFFFFF00000000

SUPERBLOCK = struct.Struct("<IHHIQQQQQQQQQQQQQQQI")
SEGMENT_HEADER = struct.Struct("<QQQQIIQI")
RECORD_HEADER = struct.Struct("<IQQQBBHIII")
FOOTER_HEAD = struct.Struct("<QQQI")

PUT, DELETE = 0, 1
MARK_COMMIT, MARK_MOVED = 1, 2
KEY_MAX = 65535
PAGE_SIZE_MIN, PAGE_SIZE_MAX = 4096, 65536

assert (SUPERBLOCK.size, SEGMENT_HEADER.size) == (136, 52)
assert (RECORD_HEADER.size, FOOTER_HEAD.size) == (44, 28)


class Damaged(Exception):
    """The file does not hold what it must."""


def make_tables():
    """Eight tables, so that eight bytes are taken at once."""
    first = []
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        first.append(crc)
    tables = [first]
    for _ in range(7):
        before = tables[-1]
        tables.append([first[crc & 0xFF] ^ (crc >> 8) for crc in before])
    return tables


TABLES = make_tables()


def crc32c(data):
    t0, t1, t2, t3, t4, t5, t6, t7 = TABLES
    crc = 0xFFFFFFFF
    whole = len(data) & ~7
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        word ^= crc
        crc = (
            t7[word & 0xFF]
            ^ t6[word >> 8 & 0xFF]
            ^ t5[word >> 16 & 0xFF]
            ^ t4[word >> 24 & 0xFF]
            ^ t3[word >> 32 & 0xFF]
            ^ t2[word >> 40 & 0xFF]
            ^ t1[word >> 48 & 0xFF]
            ^ t0[word >> 56]
        )
    for byte in data[whole:]:
        crc = t0[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


class Superblock:
    """The fields a reader needs, of a copy that passed its checks."""

    def __init__(self, fields):
        self.version_major = fields[1]
        self.page_size = fields[3]
        self.uuid = fields[4:6]
        self.flags = fields[7]
        self.segment_start_page = fields[14]
        self.segment_end_page = fields[15]
        self.commit_seqno = fields[16]
        self.commit_paddr = fields[17]
        self.epoch = fields[18]


def superblock_at(data, at):
    """The superblock at a byte offset, or None."""
    raw = data[at : at + SUPERBLOCK.size]
    if len(raw) < SUPERBLOCK.size:
        return None
    fields = SUPERBLOCK.unpack(raw)
    if fields[0] != MAGIC or fields[-1] != crc32c(raw[:-4]):
        return None
    block = Superblock(fields)
    if block.version_major != 1:
        raise Damaged(f"version {block.version_major} at byte {at} is not one this reader knows")
    if block.flags & MUST_UNDERSTAND:
        raise Damaged(f"flags {block.flags:#x} at byte {at} ask for more than this reader knows")
    size = block.page_size
    if size & (size - 1) or not PAGE_SIZE_MIN <= size <= PAGE_SIZE_MAX or at % size:
        return None
    return block


def choose_superblock(data):
    """A and B by epoch; without A, the first valid page going back from the end."""
    first = superblock_at(data, 0)
    if first:
        last_page = len(data) // first.page_size - 1
        second = superblock_at(data, last_page * first.page_size) if last_page > 0 else None
        if second and second.uuid == first.uuid and second.epoch > first.epoch:
            return second
        return first
    at = len(data) // PAGE_SIZE_MIN * PAGE_SIZE_MIN
    while at > 0:
        at -= PAGE_SIZE_MIN
        block = superblock_at(data, at)
        if block:
            return block
    raise Damaged("no valid superblock")


class Record:
    def __init__(self, at, seqno, stamp, kind, mark, ttl, key, value):
        self.at = at
        self.seqno = seqno
        self.stamp = stamp
        self.kind = kind
        self.mark = mark
        self.ttl = ttl
        self.key = key
        self.value = value

    def contents(self):
        """All that copies of a record have in common."""
        return self.stamp, self.kind, self.ttl, self.key, self.value

    def is_live(self, now):
        if self.kind == DELETE:
            return False
        deadline = min(self.stamp + self.ttl * 1_000_000_000, 2**64 - 1)
        return self.ttl == 0 or deadline > now


def record_at(data, at, end):
    """The record at a byte offset and the offset behind it, or None if there is no whole one."""
    raw = data[at : at + RECORD_HEADER.size]
    if len(raw) < RECORD_HEADER.size or at + RECORD_HEADER.size + 4 > end:
        return None
    fields = RECORD_HEADER.unpack(raw)
    header_crc, seqno, _hash64, stamp, kind, enc, mark, key_len, val_len, ttl = fields
    if crc32c(raw[4:]) != header_crc:
        return None
    key_at = at + RECORD_HEADER.size
    value_at = key_at + key_len
    crc_at = value_at + val_len
    if crc_at + 4 > end:
        return None
    if crc32c(data[at:crc_at]) != int.from_bytes(data[crc_at : crc_at + 4], "little"):
        return None
    if kind not in (PUT, DELETE) or (kind == DELETE and val_len) or key_len > KEY_MAX:
        raise Damaged(f"record at byte {at} has fields that make no sense")
    if enc != 0:
        raise Damaged(f"record at byte {at} is stored in a way ({enc}) this reader does not know")
    key, value = data[key_at:value_at], data[value_at:crc_at]
    record = Record(at, seqno, stamp, kind, mark, ttl, key, value)
    return record, crc_at + 4


def check_footer(data, at, end, seg_id, last_seqno):
    """A footer must stand at `at`, end at `end` and close this segment."""
    raw = data[at : at + FOOTER_HEAD.size]
    if len(raw) < FOOTER_HEAD.size:
        raise Damaged(f"no footer at byte {at}")
    found_id, found_seqno, _live, count = FOOTER_HEAD.unpack(raw)
    crc_at = at + FOOTER_HEAD.size + 16 * count
    if crc_at + 4 != end or end > len(data):
        raise Damaged(f"records or footer at byte {at} are damaged")
    if crc32c(data[at:crc_at]) != int.from_bytes(data[crc_at:end], "little"):
        raise Damaged(f"footer at byte {at} fails its CRC")
    if (found_id, found_seqno) != (seg_id, last_seqno):
        raise Damaged(f"footer at byte {at} belongs to another segment")


def sealed_records(data, start, seg_id, base_seqno, size):
    """Records of a sealed segment: all of it must hold."""
    at, end = start + SEGMENT_HEADER.size, start + size
    last_seqno = base_seqno - 1
    while True:
        found = record_at(data, at, end)
        if not found:
            break
        record, at = found
        if record.seqno < base_seqno:
            raise Damaged(f"record at byte {record.at} is older than its segment")
        last_seqno = max(last_seqno, record.seqno)
        yield record
    check_footer(data, at, end, seg_id, last_seqno)


def open_records(data, start, base_seqno, size, block):
    """Records of a segment that was not sealed: as far as they go, but to the commit at least.

    Moved records that were never sealed are none of these: their segment's base_seqno is 0.
    """
    at, end = start + SEGMENT_HEADER.size, start + size
    seqno = base_seqno
    while True:
        found = record_at(data, at, end)
        if not found or found[0].seqno != seqno:
            break
        record, at = found
        seqno += 1
        yield record
    if holds_commit(start, end, base_seqno, block) and at < block.commit_paddr:
        durable = block.commit_paddr
        raise Damaged(f"record at byte {at} is damaged, and the log was durable to {durable}")


def holds_commit(start, end, base_seqno, block):
    """Whether the log ended here: another segment may have taken the place of the one in which it did."""
    return start < block.commit_paddr <= end and 0 < base_seqno <= block.commit_seqno


def walk(data, block):
    """Every record in the segment region, extent by extent."""
    size = block.page_size
    page = block.segment_start_page
    while page < block.segment_end_page:
        start = page * size
        raw = data[start : start + SEGMENT_HEADER.size]
        fields = SEGMENT_HEADER.unpack(raw) if len(raw) == SEGMENT_HEADER.size else None
        if fields is None or crc32c(raw[:-4]) != fields[-1]:
            raise Damaged(f"no valid segment header at byte {start}")
        seg_id, base_seqno, _stamp, flags, _pid, allotted, segment_size, _crc = fields
        if flags & MUST_UNDERSTAND:
            raise Damaged(f"segment at byte {start} asks for more than this reader knows")
        pages = (segment_size + size - 1) // size if segment_size else allotted
        if pages == 0 or page + pages > block.segment_end_page:
            raise Damaged(f"segment header at byte {start} leads nowhere")
        first = start + SEGMENT_HEADER.size
        if any(data[first : first + RECORD_HEADER.size]):
            if segment_size:
                yield from sealed_records(data, start, seg_id, base_seqno, segment_size)
            else:
                yield from open_records(data, start, base_seqno, pages * size, block)
        elif not segment_size and holds_commit(start, start + pages * size, base_seqno, block):
            raise Damaged(f"the log was durable to {block.commit_paddr}; nothing is at {first}")
        page += pages


def live_rows(records, block, now):
    newest, known_by_seqno = {}, {}
    for record in records:
        if record.seqno > block.commit_seqno:
            continue
        other = known_by_seqno.setdefault(record.seqno, record)
        if other is not record:
            if not (other.mark | record.mark) & MARK_MOVED:
                raise Damaged(f"records at bytes {other.at} and {record.at} have one seqno")
            if other.contents() != record.contents():
                raise Damaged(f"copies at bytes {other.at} and {record.at} differ")
        if record.seqno == block.commit_seqno and not record.mark & (MARK_COMMIT | MARK_MOVED):
            raise Damaged(f"commit {block.commit_seqno} does not end a batch")
        known = newest.get(record.key)
        if known is None or record.seqno > known.seqno:
            newest[record.key] = record
    return sorted((key, record.value) for key, record in newest.items() if record.is_live(now))


def main():
    parser = argparse.ArgumentParser(description="Prints the live rows of a bucket.")
    parser.add_argument("bucket")
    parser.add_argument("--now", type=int, default=0, help="wall clock in ns since 1970")
    parser.add_argument("--info", action="store_true", help="tell about the superblock on stderr")
    options = parser.parse_args()
    try:
        with open(options.bucket, "rb") as file:
            data = file.read()
        block = choose_superblock(data)
        rows = live_rows(walk(data, block), block, options.now)
    except (Damaged, OSError) as error:
        print(f"reader: {options.bucket}: {error}", file=sys.stderr)
        return 1
    if options.info:
        print(json.dumps({"epoch": block.epoch, "commit_seqno": block.commit_seqno}), file=sys.stderr)
    write = sys.stdout.write
    for key, value in rows:
        write(json.dumps({"key": key.hex(), "value": value.hex()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
