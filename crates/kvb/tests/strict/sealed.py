"""A strict reader of buckets with compressed values, dictionaries and encryption.

Like reader.py it is written from docs/format/kvb.md and shares no code with the engine. It finds
rows by superblock, segments and records alone. Beside that it checks all that the page says must
hold: extension, roster and key block, MACs and tags, salts, hashes, frames, and the derived data
that a superblock names or that stands behind a segment. Frames are expanded by the `zstd` program.

Usage: sealed.py BUCKET... [--now NANOSECONDS] [--key ID:HEX ...] [--info]

Output and exit status are those of reader.py. A bucket that is not encrypted is not read with keys.
Of several buckets the rows follow a JSON line {"bucket": path, "error": message or null} each, and
the exit status is 0.
"""

import argparse
import json
import sys

import derived
from cipher import TAG, BucketKey, SegmentCipher
from frames import expand, frame_of
from reader import DELETE, FOOTER_HEAD, KEY_MAX, MAGIC, MARK_COMMIT, MARK_MOVED, PUT
from reader import PAGE_SIZE_MAX, PAGE_SIZE_MIN, Damaged, Record, check_footer, crc32c
from reader import holds_commit, live_rows
from structures import ends_with_crc, expect, size_of, unpack, unpack_all
from vectors import siphash, xxh3

MUST_UNDERSTAND = 0xFFFFFFFF00000000
FLAG_EXTENSION, FLAG_SIPHASH, FLAG_NO_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
FLAG_ENCRYPTED, FLAG_DICTIONARY = 1 << 32, 1 << 33
DATA, FREE, META, MOVED, GUARD, SALTED = 1, 2, 4, 8, 16, 1 << 32
EXTENSION_MAGIC, KEY_BLOCK_MAGIC, ROSTER_MAGIC = 0x5842564B, 0x4542564B, 0x5242564B
EXTENSION_AT, KEY_BLOCK_AT, ROSTER_AT = 136, 336, 512
NAMED_LOG, NAMED_OUTPUT = 0, 1
MAC_AT, KEY_BLOCK_END = KEY_BLOCK_AT + 80, KEY_BLOCK_AT + 100
HASH_XXH3, HASH_SIP, HASH_HIDDEN = 0, 1, 2
SALT_LEN = 16
ENC_RAW, ENC_ZSTD, ENC_DICTIONARY, ENC_AEAD = 0, 1, 2, 128
SEARCH_BACK = 256 << 20


class Root:
    """A copy of the superblock's page that holds, with the keys it asks for."""

    def __init__(self, block, extension, page, roster):
        self.block, self.extension = block, extension
        self.page_size = block.page_size
        self.named, self.entries = roster
        self.is_encrypted = bool(block.flags & FLAG_ENCRYPTED)
        self.has_directories = not block.flags & FLAG_NO_DIRECTORY
        self.has_book = bool(block.flags & FLAG_DICTIONARY)
        self.uuid = page[12:28]
        self.key_block = unpack("KeyBlock", page, KEY_BLOCK_AT) if self.is_encrypted else None
        self.keys = {}

    def take_keys(self, given):
        """Finds the keys by their ids and checks them; without the right ones nothing can be read."""
        asked = self.key_block
        wanted = [(asked.key_no, asked.key_id, asked.key_check)]
        if asked.old_key_no:
            wanted.append((asked.old_key_no, asked.old_key_id, asked.old_key_check))
        for number, ident, check in wanted:
            expect(number != 0, "a key has number 0")
            expect(ident in given, f"the bucket needs key {ident}")
            key = BucketKey(given[ident], self.uuid)
            expect(key.check == check, f"key {ident} is the wrong one")
            self.keys[number] = key

    def key_no(self, what):
        """The number of the key that image, table or book are under; 0 if they are under none."""
        return getattr(self.key_block, what + "_key_no") if self.is_encrypted else 0

    def key_of(self, what):
        if not self.is_encrypted:
            return None
        key = self.keys.get(self.key_no(what))
        expect(key is not None, f"the {what} is under key {self.key_no(what)}, which is unknown")
        return key

    def hasher(self):
        """What hashes keys. The hidden key must be the one that the first key gives, if that is known."""
        hash_key = self.extension.hash_key
        if self.extension.hash_kind == HASH_XXH3:
            return xxh3
        if self.extension.hash_kind == HASH_HIDDEN:
            pad = self.keys[self.key_block.key_no].hash_pad
            hash_key = bytes(a ^ b for a, b in zip(hash_key, pad))
            first = self.keys.get(1)
            expect(not first or first.hash_key == hash_key, "the hidden hash key is another")
        return lambda key: siphash(hash_key, key)


def superblock_at(data, at):
    """The superblock at a byte offset, or None."""
    raw = data[at : at + size_of("Superblock")]
    if len(raw) < size_of("Superblock") or not ends_with_crc(raw):
        return None
    block = unpack("Superblock", raw)
    if block.magic != MAGIC:
        return None
    expect(block.version_major == 1, f"version {block.version_major} is not known")
    unknown = block.flags & MUST_UNDERSTAND & ~(FLAG_ENCRYPTED | FLAG_DICTIONARY)
    expect(not unknown, f"flags {block.flags:#x} ask for more than this reader knows")
    expect(block.flags & FLAG_EXTENSION, "a superblock has no extension")
    size = block.page_size
    is_size = not size & (size - 1) and PAGE_SIZE_MIN <= size <= PAGE_SIZE_MAX
    return block if is_size and at % size == 0 else None


def roster_of(page, block, extension):
    """Named extents and segment entries, or None."""
    head = unpack("RosterHead", page, ROSTER_AT)
    named_at = ROSTER_AT + size_of("RosterHead")
    entries_at = named_at + head.named_count * size_of("NamedExtent")
    end = entries_at + head.sealed_count * size_of("SegmentEntry")
    whole = page[ROSTER_AT : end + 4]
    same = (ROSTER_MAGIC, block.epoch, block.file_uuid_hi, block.file_uuid_lo)
    if (head.magic, head.epoch, head.file_uuid_hi, head.file_uuid_lo) != same:
        return None
    if end + 4 > len(page) or not ends_with_crc(whole) or any(page[end + 4 :]):
        return None
    if int.from_bytes(whole[-4:], "little") != extension.roster_crc32c:
        return None
    named = unpack_all("NamedExtent", page[named_at:entries_at])
    return named, unpack_all("SegmentEntry", page[entries_at:end])


def hash_kind_of(flags):
    if flags & FLAG_ENCRYPTED:
        return HASH_HIDDEN
    return HASH_SIP if flags & FLAG_SIPHASH else HASH_XXH3


def root_at(data, at, given):
    """The copy of the superblock's page at a byte offset, None if it does not count."""
    block = superblock_at(data, at)
    page = data[at : at + block.page_size] if block else b""
    if not block or len(page) < block.page_size:
        return None
    extension = unpack("Extension", page, EXTENSION_AT)
    same = (EXTENSION_MAGIC, 200, block.epoch, block.file_uuid_hi, block.file_uuid_lo)
    found = (extension.magic, extension.length, extension.epoch)
    if (*found, extension.file_uuid_hi, extension.file_uuid_lo) != same:
        return None
    if not ends_with_crc(page[EXTENSION_AT:KEY_BLOCK_AT]):
        return None
    if extension.self_page != at // block.page_size or any(page[KEY_BLOCK_END:ROSTER_AT]):
        return None
    roster = roster_of(page, block, extension)
    if roster is None:
        return None
    expect(extension.hash_kind == hash_kind_of(block.flags), "flags and hash kind do not agree")
    root = Root(block, extension, page, roster)
    return root if key_block_holds(root, page, given) else None


def key_block_holds(root, page, given):
    """The key block's CRC and the MAC of the page; or zeros, if the bucket is not encrypted."""
    raw = page[KEY_BLOCK_AT:KEY_BLOCK_END]
    if not root.is_encrypted:
        expect(not given, "the bucket is not encrypted")
        return not any(raw)
    asked = root.key_block
    if (asked.magic, asked.length) != (KEY_BLOCK_MAGIC, 100) or not ends_with_crc(raw):
        return False
    root.take_keys(given)
    key = root.keys[asked.key_no]
    return asked.mac == key.page_mac(b"kvb-checkpoint-v1", page, MAC_AT, KEY_BLOCK_END)


def choose_root(data, given):
    """A and B by epoch; without A, the first copy that holds, going back from the end."""
    first = root_at(data, 0, given)
    if first:
        last = len(data) // first.page_size - 1
        second = root_at(data, last * first.page_size, given) if last > 0 else None
        if second and second.uuid == first.uuid and second.block.epoch > first.block.epoch:
            return second
        return first
    at = len(data) // PAGE_SIZE_MIN * PAGE_SIZE_MIN
    until = max(0, at - SEARCH_BACK)
    while at > until:
        at -= PAGE_SIZE_MIN
        root = root_at(data, at, given) if at else None
        if root:
            return root
    raise Damaged("no valid superblock")


class Extent:
    """An extent of the segment region."""

    def __init__(self, data, root, page):
        self.data, self.start = data, page * root.page_size
        self.header = unpack("SegmentHeader", data, self.start)
        where = f"segment at byte {self.start}"
        raw = data[self.start : self.start + size_of("SegmentHeader")]
        expect(ends_with_crc(raw), f"{where}: no valid header")
        flags = self.header.flags
        self.is_salted = bool(flags & SALTED)
        self.key_no = flags >> 16 & 0xFFFF
        expect(flags & (DATA | FREE | META) in (DATA, FREE, META), f"{where}: no or several kinds")
        expect(not flags & MUST_UNDERSTAND & ~SALTED, f"{where}: unknown flags {flags:#x}")
        expect(self.is_data() or not (self.is_salted or self.key_no), f"{where}: a key and no data")
        size = self.header.segment_size
        self.pages = -(-size // root.page_size) if size else self.header.reserved
        end_page = page + self.pages
        leads_on = self.pages > 0 and end_page <= root.block.segment_end_page
        self.end = end_page * root.page_size
        expect(leads_on and self.end <= len(data), f"{where}: leads nowhere")
        if not self.is_data():
            expect(not any(data[self.start + 52 : self.start + 128]), f"{where}: no zeros")

    def is_data(self):
        return bool(self.header.flags & DATA)

    def is_meta(self):
        return bool(self.header.flags & META)

    def is_moved(self):
        return bool(self.header.flags & MOVED)

    def bytes(self):
        return self.data[self.start : self.end]


def extents_of(data, root):
    """All extents by their first page; they must tile the region."""
    page, found = root.block.segment_start_page, {}
    while page < root.block.segment_end_page:
        found[page] = Extent(data, root, page)
        page += found[page].pages
    return found


class Sealed:
    """A record as it stands in the file; what is not under its own CRCs may still be wrong."""

    def __init__(self, at, raw, header, enc):
        self.at, self.raw, self.header = at, raw, header
        self.enc = enc
        body_end = 44 + header.key_len + header.val_len
        self.body, self.tag = raw[44:body_end], raw[body_end:-4]


def sealed_at(data, at, end, is_encrypted):
    """The record at a byte offset, or None if there is no whole one."""
    if at + 48 > end:
        return None
    header = unpack("RecordHeader", data, at)
    if crc32c(data[at + 4 : at + 44]) != header.header_crc32c:
        return None
    length = 48 + header.key_len + header.val_len + (TAG if header.enc & ENC_AEAD else 0)
    raw = data[at : at + length]
    if at + length > end or not ends_with_crc(raw):
        return None
    if bool(header.enc & ENC_AEAD) != is_encrypted:
        return None
    enc = header.enc & ~ENC_AEAD
    is_right = header.kind in (PUT, DELETE) and header.key_len <= KEY_MAX and enc <= ENC_DICTIONARY
    is_empty = enc == ENC_RAW and header.val_len == 0
    is_right = is_right and (header.kind == PUT or is_empty)
    expect(is_right, f"record at byte {at} has fields that make no sense")
    return Sealed(at, raw, header, enc)


class Opened(Record):
    """A record with its plain key; `value` is its stored value until that is expanded."""

    def __init__(self, sealed, plain):
        header = sealed.header
        key, value = plain[: header.key_len], plain[header.key_len :]
        super().__init__(
            sealed.at,
            header.seqno,
            header.timestamp_ns,
            header.kind,
            header.reserved16,
            header.ttl_secs,
            key,
            value,
        )
        self.hash64, self.enc = header.hash64, sealed.enc
        self.end = sealed.at + len(sealed.raw)


class Segment:
    """A DATA extent and its records."""

    def __init__(self, root, extent):
        self.root, self.header = root, extent.header
        self.data, self.start, self.end = extent.data, extent.start, extent.end
        self.is_moved, self.key_no = extent.is_moved(), extent.key_no
        self.is_sealed = bool(self.header.segment_size)
        self.base_seqno = self.header.base_seqno
        self.where = f"segment at byte {self.start}"
        expect(bool(self.key_no) == root.is_encrypted, f"{self.where}: flags and key do not agree")
        expect(root.is_encrypted or not extent.is_salted, f"{self.where}: a salt and no key")
        first = self.start + size_of("SegmentHeader")
        self.salt = self.data[first : first + SALT_LEN] if extent.is_salted else b""
        self.first = first + len(self.salt)
        if self.is_sealed:
            self.end = self.start + self.header.segment_size
            self.take_sealed()
        else:
            self.take_open()

    def lying(self):
        """Records as they stand, until one does not hold."""
        at = self.first
        while True:
            sealed = sealed_at(self.data, at, self.end, self.root.is_encrypted)
            if sealed is None:
                return
            yield sealed
            at += len(sealed.raw)

    def opened(self, lying):
        """The records with what they hold, None for one whose tag fails."""
        if not self.root.is_encrypted:
            return [Opened(sealed, sealed.body) for sealed in lying]
        key = self.root.keys.get(self.key_no)
        expect(key is not None, f"{self.where}: key number {self.key_no} is unknown")
        cipher = SegmentCipher(key, self.header.seg_id, self.salt or None)
        messages = [
            (sealed.header.seqno, sealed.at - self.start, sealed.raw[:44], sealed.body, sealed.tag)
            for sealed in lying
        ]
        plain = cipher.open(messages)
        return [
            None if body is None else Opened(sealed, body) for sealed, body in zip(lying, plain)
        ]

    def take_sealed(self):
        self.records = self.opened(list(self.lying()))
        expect(all(self.records), f"{self.where}: the tag of a record does not hold")
        expect(self.records, f"{self.where}: sealed and empty")
        seqnos = [record.seqno for record in self.records]
        check_footer(self.data, self.records[-1].end, self.end, self.header.seg_id, max(seqnos))
        self.check_pairs()
        expect(min(seqnos) == self.base_seqno, f"{self.where}: base_seqno is not the lowest")
        marks = [record.mark & (MARK_COMMIT | MARK_MOVED) for record in self.records]
        if self.is_moved:
            expect(set(marks) == {MARK_MOVED}, f"{self.where}: records that were not moved")
            keys = [record.key for record in self.records]
            expect(keys == sorted(set(keys)), f"{self.where}: records are not in key order")
        else:
            expect(not any(mark & MARK_MOVED for mark in marks), f"{self.where}: moved records")
            right = list(range(seqnos[0], seqnos[0] + len(seqnos)))
            expect(seqnos == right, f"{self.where}: a gap between seqnos")

    def check_pairs(self):
        """The footer points to the first record and every 64th after it."""
        at = self.records[-1].end + FOOTER_HEAD.size
        pairs = unpack_all("SparsePair", self.data[at : self.end - 4])
        right = [(record.hash64, record.at) for record in self.records[::64]]
        expect([tuple(pair) for pair in pairs] == right, f"{self.where}: pairs of the footer")

    def take_open(self):
        """As far as the records hold and follow each other, but to the commit at least."""
        lying = []
        for sealed in self.lying():
            if sealed.header.seqno != self.base_seqno + len(lying):
                break
            lying.append(sealed)
        self.records = self.opened(lying)
        if None in self.records:
            self.records = self.records[: self.records.index(None)]
        block = self.root.block
        reached = self.records[-1].end if self.records else self.first
        if holds_commit(self.start, self.end, self.base_seqno, block):
            durable = block.commit_paddr
            expect(reached >= durable, f"damage at byte {reached}; the log was durable to {durable}")

    def check_hashes(self, hasher):
        for record in self.records:
            right = hasher(record.key)
            expect(record.hash64 == right, f"record at byte {record.at} carries a wrong hash")


def segments_of(root, extents):
    """Every segment by its first page; with zeros where records begin there is none."""
    found = {}
    for page, extent in extents.items():
        first = extent.start + size_of("SegmentHeader")
        if any(extent.data[first : first + 44]):
            found[page] = Segment(root, extent)
            continue
        base, block = extent.header.base_seqno, root.block
        is_open = extent.header.segment_size == 0
        is_lost = is_open and holds_commit(extent.start, extent.end, base, block)
        expect(not is_lost, f"nothing at byte {first}; the log was durable to {block.commit_paddr}")
    return found


def check_registered(root, segments, entries):
    """What roster and table say of a segment is what it holds."""
    for entry in entries:
        segment = segments.get(entry.start_page)
        expect(segment is not None and segment.is_sealed, f"no segment at page {entry.start_page}")
        records = segment.records
        seqnos = [record.seqno for record in records]
        flags = (1 if segment.is_moved else 0) | (2 if segment.header.flags & GUARD else 0)
        held = (segment.header.seg_id, min(seqnos), max(seqnos), len(records), flags)
        held += (sum(record.end - record.at for record in records),)
        said = (entry.seg_id, entry.base_seqno, entry.last_seqno, entry.record_count, entry.flags)
        said += (entry.record_bytes,)
        expect(held == said, f"{segment.where} holds {held}, and is said to hold {said}")


def log_segments(root, segments):
    """Segments in the extents that the log may go to, if they are the ones that were meant."""
    for named in root.named:
        segment = segments.get(named.start_page)
        if named.kind == NAMED_LOG and segment and segment.header.seg_id == named.seg_id:
            yield segment


def check_tail(root, segments):
    """What was committed and is not registered is in the named extents, all of it.

    Nothing but this tells a header of the log from a FREE one that somebody put in its place.
    """
    found = {record.seqno for segment in log_segments(root, segments) for record in segment.records}
    for seqno in range(root.extension.tail_seqno, root.block.commit_seqno + 1):
        expect(seqno in found, f"record {seqno} was committed and is not there")


def check_salts(root, segments):
    """Segments of the log that are not sealed were begun in the session that the key block tells of."""
    for segment in log_segments(root, segments):
        if not segment.salt or segment.is_sealed:
            continue
        seg_id = segment.header.seg_id
        right = root.keys[segment.key_no].salt(root.key_block.session_salt, seg_id)
        expect(segment.salt == right, f"{segment.where}: the salt is of another session")


def check_sides(root, extents, segments, entries):
    """Side data stands right behind each sealed segment, unless that was given up or lost it."""
    pages = {entry.start_page: entry.meta_page_count for entry in entries}
    for page, segment in segments.items():
        if not segment.is_sealed:
            continue
        behind = extents.get(page + extents[page].pages)
        is_its = behind and behind.is_meta() and behind.header.seg_id == segment.header.seg_id
        if not is_its:
            expect(not pages.get(page), f"{segment.where}: no side data behind it")
            continue
        is_length = page not in pages or pages[page] == behind.pages
        expect(is_length, f"{segment.where}: side data of another length")
        derived.check_side(root, behind, segment)


def expand_values(root, records, book):
    """Gives every compressed record its value."""
    packed = [record for record in records if record.enc != ENC_RAW]
    frames = []
    for record in packed:
        needs = record.enc == ENC_DICTIONARY
        try:
            frames.append(frame_of(record.value, root.extension.max_value, needs, book))
        except Damaged as error:
            raise Damaged(f"record at byte {record.at}: {error}") from error
    for record, value in zip(packed, expand(frames, book)):
        record.value = value


def rows_of(data, root, now):
    extents = extents_of(data, root)
    segments = segments_of(root, extents)
    hasher = root.hasher()
    for segment in segments.values():
        segment.check_hashes(hasher)
    entries = derived.table_entries(root, extents) + root.entries
    check_registered(root, segments, entries)
    check_tail(root, segments)
    check_salts(root, segments)
    check_sides(root, extents, segments, entries)
    derived.check_image(root, extents)
    book = derived.book_of(root, extents)
    records = [record for segment in segments.values() for record in segment.records]
    visible = [record for record in records if record.seqno <= root.block.commit_seqno]
    expand_values(root, visible, book)
    rows = live_rows(visible, root.block, now)
    if root.is_encrypted:
        counted = [segments[entry.start_page] for entry in entries]
        counted += log_segments(root, segments)
        check_brought_back(root, counted, rows, now)
    return rows


def check_brought_back(root, counted, rows, now):
    """Segments that nobody names, left over from compaction, must make no difference.

    Headers of segments are under no MAC: somebody could put back a segment of long ago.
    """
    records = [record for segment in counted for record in segment.records]
    visible = [record for record in records if record.seqno <= root.block.commit_seqno]
    expect(live_rows(visible, root.block, now) == rows, "a segment that was given up is back")


def key_argument(text):
    """ID:HEX, as the command line gives a key."""
    ident, _, digits = text.partition(":")
    key = bytes.fromhex(digits)
    if len(key) != 32:
        raise ValueError("a key has 32 bytes")
    return int(ident), key


def read(path, options):
    """Reads one bucket: the copy of its superblock that counted, its rows, and what is wrong."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        root = choose_root(data, dict(options.key))
        return root, rows_of(data, root, options.now), None
    except (Damaged, OSError) as error:
        return None, [], str(error)


def write_rows(rows):
    for key, value in rows:
        sys.stdout.write(json.dumps({"key": key.hex(), "value": value.hex()}) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Prints the live rows of buckets.")
    parser.add_argument("bucket", nargs="+")
    parser.add_argument("--now", type=int, default=0, help="wall clock in ns since 1970")
    parser.add_argument("--key", type=key_argument, action="append", default=[], help="ID:HEX")
    parser.add_argument("--info", action="store_true", help="tell about the superblock on stderr")
    options = parser.parse_args()
    if len(options.bucket) > 1:
        for path in options.bucket:
            _, rows, error = read(path, options)
            print(json.dumps({"bucket": path, "error": error}))
            write_rows(rows)
        return 0
    root, rows, error = read(options.bucket[0], options)
    if error:
        print(f"sealed: {options.bucket[0]}: {error}", file=sys.stderr)
        return 1
    if options.info:
        info = {"epoch": root.block.epoch, "commit_seqno": root.block.commit_seqno}
        print(json.dumps(info), file=sys.stderr)
    write_rows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
