"""Checks of derived data and of the book: heads, sections, MACs, and what the sections say.

A strict reader does without derived data. It is checked here as far as a superblock names it, or as
it stands behind a segment, so that a key in the wrong place or a MAC over other bytes is noticed.
"""

import struct

from cipher import TAG
from frames import dictionary_id
from reader import DELETE, crc32c
from structures import ends_with_crc, expect, size_of, unpack, unpack_all
from vectors import U64, filter_bytes, slot_hash, xxh3

META_MAGIC, META_AT = 0x4D42564B, 128
IMAGE, SIDE, TABLE = 1, 2, 3
RUN, FILTER, ENTRIES, DIRECTORY, MACS, SALT = 1, 2, 3, 4, 5, 6
BOOK_MAGIC, BOOK_MAX, DICTIONARY_MAX = 0x4442564B, 16, 1 << 20
MAC_LEN, SECTOR = 16, 512
DELETE_BIT = 1 << 31
FAR = 0xFFFFFFFF


class Meta:
    """Head and sections of a META extent; all of them hold."""

    def __init__(self, root, extent, kind, ident, key, wanted):
        """`key` is the one whose MACs it carries, None in a bucket that is not encrypted."""
        self.where = f"derived data at byte {extent.start}"
        self.data = extent.bytes()
        self.head = unpack("MetaHead", self.data, META_AT)
        head = self.head
        expect(extent.is_meta(), f"{self.where} is not in a META extent")
        expect(head.magic == META_MAGIC, f"{self.where} has no head")
        end = META_AT + size_of("MetaHead") + size_of("Section") * head.section_count
        expect(ends_with_crc(self.data[META_AT : end + 4]), f"the head of {self.where} fails its CRC")
        found = (head.kind, head.file_uuid_hi, head.file_uuid_lo, head.id, head.page_count)
        uuid = (root.block.file_uuid_hi, root.block.file_uuid_lo)
        meant = (kind, *uuid, ident, len(self.data) // root.page_size)
        expect(found == meant, f"{self.where} is another's: {found}, not {meant}")
        listed = self.data[META_AT + size_of("MetaHead") : end]
        self.sections = self.checked_sections(unpack_all("Section", listed), end + 4)
        wanted = wanted + [MACS] if key else wanted
        expect(list(self.sections) == wanted, f"{self.where} has sections {list(self.sections)}")
        if key:
            self.check_macs(key)

    def checked_sections(self, listed, head_end):
        at, sections = -(-head_end // 64) * 64, {}
        for section in listed:
            expect(section.offset == at, f"{self.where} has a gap at {at}")
            expect(at + section.length <= len(self.data), f"{self.where} is cut off")
            raw = self.data[at : at + section.length]
            expect(crc32c(raw) == section.crc32c, f"section {section.kind} of {self.where} is damaged")
            sections[section.kind] = raw
            at += section.length
        return sections

    def check_macs(self, key):
        raw = self.data[META_AT : META_AT + size_of("MetaHead")]
        parts = [(0, raw)] + [part for part in self.sections.items() if part[0] != MACS]
        kind, ident = self.head.kind, self.head.id
        macs = b"".join(key.meta_mac(kind, ident, section, part) for section, part in parts)
        expect(self.sections[MACS] == macs, f"MACs of {self.where} do not hold")


def check_side(root, extent, segment):
    """Side data of a sealed segment: its run, filter and directory are what its records make of them."""
    key = root.keys.get(segment.key_no)
    wanted = [RUN, FILTER]
    wanted += [DIRECTORY] if root.has_directories else []
    wanted += [SALT] if key and segment.salt else []
    meta = Meta(root, extent, SIDE, segment.header.seg_id, key, wanted)
    records = segment.records
    found = (meta.head.count, meta.head.used, meta.head.seqno)
    expect(found == (len(records), 0, segment.base_seqno), f"{meta.where} counts {found}")
    expect(meta.sections.get(SALT) == (segment.salt or None), f"{meta.where} has another salt")
    expect(meta.sections[RUN] == run_of(segment), f"{meta.where} has a wrong run")
    hashes = [slot_hash(record.hash64) for record in records]
    expect(meta.sections[FILTER] == filter_bytes(hashes), f"{meta.where} has a wrong filter")
    if root.has_directories:
        right = directory_of(segment, bool(key))
        expect(meta.sections[DIRECTORY] == right, f"{meta.where} has a wrong directory")


def place(segment, record):
    return record.at - segment.start | (DELETE_BIT if record.kind == DELETE else 0)


def run_of(segment):
    out = b""
    order = lambda record: (slot_hash(record.hash64), record.key, -record.seqno)
    for record in sorted(segment.records, key=order):
        delta = min(record.seqno - segment.base_seqno, FAR)
        out += struct.pack("<QII", slot_hash(record.hash64), place(segment, record), delta)
    return out


def directory_of(segment, is_encrypted):
    records = sorted(segment.records, key=lambda record: (record.key, -record.seqno))
    places = struct.pack(f"<{len(records)}I", *(place(segment, record) for record in records))
    if is_encrypted:
        return struct.pack("<II", len(records), 0) + places
    first, last = records[0].key, records[-1].key
    skip = 0
    while skip < min(len(first), len(last)) and first[skip] == last[skip]:
        skip += 1
    chunks = [record.key[skip : skip + 8].ljust(8, b"\0") for record in records[::8]]
    numbers = b"".join(chunk[::-1] for chunk in chunks)
    return struct.pack("<II", len(records), skip) + places + numbers


def table_entries(root, extents):
    """The entries of the segment table, by start_page."""
    extension = root.extension
    if not extension.table_start_page:
        expect(not root.key_no("table"), "the table has a key and is not there")
        return []
    extent = extents.get(extension.table_start_page)
    expect(extent is not None, "no extent begins where the segment table should")
    key = root.key_of("table")
    meta = Meta(root, extent, TABLE, extension.table_id, key, [ENTRIES])
    expect(meta.head.page_count == extension.table_page_count, f"{meta.where} has another length")
    entries = unpack_all("SegmentEntry", meta.sections[ENTRIES])
    expect(len(entries) == meta.head.count, f"{meta.where} counts {meta.head.count} entries")
    starts = [entry.start_page for entry in entries]
    expect(starts == sorted(set(starts)), f"{meta.where} is not in order")
    return entries


def check_image(root, extents):
    """The head of the current image and all its pages."""
    block, extension = root.block, root.extension
    extent = extents.get(block.index_region_start_page - 1)
    expect(extent is not None, "no extent begins where the index image should")
    key = root.key_of("image")
    meta = Meta(root, extent, IMAGE, extension.image_id, key, [])
    found = (meta.head.count, meta.head.seqno)
    meant = (block.index_region_page_count, extension.image_seqno)
    expect(found == meant, f"{meta.where} says {found}, not {meant}")
    used = 0
    for number in range(block.index_region_page_count):
        page_no = block.index_region_start_page + number
        used += check_index_page(root, page_no, meta.data[(number + 1) * root.page_size :], key)
    expect(used == meta.head.used, f"{meta.where} has {used} keys and says {meta.head.used}")


def check_index_page(root, page_no, rest, key):
    """One index page; tells how many of its slots are in use."""
    page = rest[: root.page_size]
    where = f"index page {page_no}"
    expect(len(page) == root.page_size, f"{where} is not there")
    header = unpack("IndexPageHeader", page)
    slots = 128 * root.page_size // 4096
    expect(header.crc32c == crc32c(page[:24]), f"{where} fails its CRC")
    meant = (root.extension.image_id, slots, page_no)
    expect((header.page_uuid, header.slots, header.pageid) == meant, f"{where} is another's")
    end = 28 + 16 * slots
    if key:
        mac = key.page_mac(b"kvb-image-v1", page, end, end + MAC_LEN)
        expect(page[end : end + MAC_LEN] == mac, f"the MAC of {where} does not hold")
    else:
        digest = xxh3(page[end + 8 :], xxh3(page[:end], root.extension.image_id)) & U64
        expect(page[end : end + 8] == struct.pack("<Q", digest), f"{where} fails its digest")
    in_use = sum(any(page[at : at + 8]) for at in range(28, end, 16))
    expect(in_use == header.used, f"{where} says {header.used} of its slots are in use")
    return in_use


def book_of(root, extents):
    """The dictionaries by their ids. Both copies must hold."""
    start = root.extension.book_start_page
    expect(bool(start) == root.has_book, "book and flag do not agree")
    if not start:
        expect(not root.key_no("book"), "the book has a key and is not there")
        return {}
    extent = extents.get(start)
    expect(extent is not None and extent.is_meta(), "no META extent begins where the book should")
    data, size = extent.bytes(), root.page_size
    # Behind the first sector the page has whatever stood there before.
    expect(not any(data[52:SECTOR]), "the first sector of the book has more than a header")
    pages = len(data) // size
    expect(pages % 2 == 1 and pages >= 3, f"the book has {pages} pages")
    half = pages // 2 * size
    copies = [book_copy(root, data[at : at + half]) for at in (size, size + half)]
    expect(copies[0] == copies[1], "the copies of the book differ")
    return copies[0]


def book_copy(root, data):
    head = unpack("BookHead", data)
    raw_head = data[: size_of("BookHead")]
    uuid = (root.block.file_uuid_hi, root.block.file_uuid_lo)
    expect(head.magic == BOOK_MAGIC, "a copy of the book has no head")
    expect((head.file_uuid_hi, head.file_uuid_lo) == uuid, "the book is another bucket's")
    key = root.key_of("book")
    end = len(raw_head) + head.length
    crc_at = end + (TAG if key else 0)
    expect(crc_at + 4 <= len(data), "a copy of the book is cut off")
    expect(ends_with_crc(data[: crc_at + 4]), "a copy of the book fails its CRC")
    body = data[len(raw_head) : end]
    if key:
        message = (head.nonce[16:], raw_head, body, data[end:crc_at])
        (body,) = key.book(head.nonce).open([message])
        expect(body is not None, "the tag of the book does not hold")
    else:
        expect(not any(head.nonce), "a book that is not encrypted has a nonce")
    return dictionaries(body, head.count)


def dictionaries(body, count):
    found, at = {}, 0
    while at < len(body):
        length = int.from_bytes(body[at : at + 4], "little")
        raw = body[at + 4 : at + 4 + length]
        expect(len(raw) == length <= DICTIONARY_MAX, "a dictionary is cut off or too long")
        ident = dictionary_id(raw)
        expect(ident not in found, f"dictionary {ident} is there twice")
        found[ident] = raw
        at += 4 + length
    expect(len(found) == count <= BOOK_MAX, f"the book has {len(found)} dictionaries, not {count}")
    return found
