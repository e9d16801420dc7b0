"""Makes vectors/kvb/structures.json from the specification and docs/format/kvb.md.

Like reader.py it shares no code with the engine: layouts, CRC-32C, XXH3-64, SipHash-2-4, the page
digest and the filter are written out here once more. The engine's tests decode and encode every
vector, so the two can only agree if both are right.

Usage: vectors.py > vectors/kvb/structures.json

Integers are decimal strings, byte strings are "hex:" and digits, `bytes` is plain hex.
"""

import json
import struct

from reader import crc32c

U64 = 0xFFFFFFFFFFFFFFFF

# Fields in order with their sizes; a size in brackets is a byte string.
LAYOUTS = {
    "Superblock": """magic 4, version_major 2, version_minor 2, page_size 4, file_uuid_hi 8,
        file_uuid_lo 8, created_unix_ns 8, flags 8, index_region_start_page 8,
        index_region_page_count 8, fsm_start_page 8, fsm_page_count 8, journal_start_page 8,
        journal_page_count 8, segment_start_page 8, segment_end_page 8, commit_seqno 8,
        commit_paddr 8, epoch 8, crc32c 4""",
    "Extension": """magic 4, length 2, hash_kind 2, epoch 8, file_uuid_hi 8, file_uuid_lo 8,
        self_page 8, b_page 8, durable_seqno 8, tail_seqno 8, next_seg_id 8, clock_unix_ns 8,
        image_id 8, image_seqno 8, image_seg_id 8, table_start_page 8, table_page_count 8,
        table_id 8, index_page_min 8, max_value 4, segment_page_max 4, hash_key [16],
        roster_crc32c 4, bulletin_page 8, image_gone 8, book_start_page 8, dropped_seqno 8, crc32c 4""",
    "RosterHead": "magic 4, named_count 2, sealed_count 2, epoch 8, file_uuid_hi 8, file_uuid_lo 8",
    "NamedExtent": "start_page 8, seg_id 8, page_count 4, kind 4",
    "SegmentEntry": """start_page 8, data_page_count 4, meta_page_count 4, seg_id 8, base_seqno 8,
        last_seqno 8, dead_bytes 8, record_count 4, flags 4, record_bytes 8, delete_bytes 8,
        expiring_bytes 8, expires_first_ns 8, expires_last_ns 8""",
    "SegmentHeader": """seg_id 8, base_seqno 8, start_unix_ns 8, flags 8, writer_pid 4, reserved 4,
        segment_size 8, header_crc32c 4""",
    "RecordHeader": """header_crc32c 4, seqno 8, hash64 8, timestamp_ns 8, kind 1, enc 1,
        reserved16 2, key_len 4, val_len 4, ttl_secs 4""",
    "FooterHead": "seg_id 8, last_seqno 8, live_bytes 8, sparse_index_n 4",
    "SparsePair": "hash64 8, paddr 8",
    "MetaHead": """magic 4, kind 2, section_count 2, file_uuid_hi 8, file_uuid_lo 8, id 8, count 8,
        used 8, seqno 8, page_count 8""",
    "Section": "kind 4, crc32c 4, offset 8, length 8",
    "RunEntry": "slot_hash 8, offset 4, seqno_delta 4",
    "DirectoryHead": "count 4, skip 4",
    "FreeMapHead": """magic 4, extent_count 4, epoch 8, file_uuid_lo 8, pageid 8, first_page 8,
        page_count 8""",
    "FreeExtent": "start_page 8, page_count 8",
    "IndexPageHeader": "page_uuid 8, slots 4, used 4, pageid 8, crc32c 4",
    "IndexSlot": "hash64 8, record_paddr 8",
    "JournalEntry": """kind 1, reserved [7], seqno 8, hash64 8, index_pageid 8, slot_idx 8,
        record_paddr 8, crc32c 4""",
}

# Structures whose last field is the CRC of all fields before it.
SEALED = {"Superblock", "Extension", "SegmentHeader", "IndexPageHeader", "JournalEntry"}

UUID_HI, UUID_LO = 0x0F1E2D3C4B5A6978, 0x8796A5B4C3D2E1F0
NOW = 1_700_000_000_000_000_000
PAGE = 4096


def layout(structure):
    return layout_of(LAYOUTS[structure])


def layout_of(text):
    """Name and size of every field, and whether it is a byte string."""
    for field in text.split(","):
        name, size = field.split()
        yield name, int(size.strip("[]")), size.startswith("[")


def pack(structure, **values):
    """Bytes of a structure; its own CRC is set if it has one and none is given."""
    out = b""
    for name, size, is_bytes in layout(structure):
        if name == "crc32c" and structure in SEALED or name == "header_crc32c":
            value = values.pop(name, None)
            if structure == "RecordHeader":
                out += bytes(4)
            else:
                out += struct.pack("<I", crc32c(out) if value is None else value)
        elif is_bytes:
            value = values.pop(name, bytes(size))
            assert len(value) == size, name
            out += value
        else:
            out += values.pop(name).to_bytes(size, "little")
    assert not values, (structure, values)
    if structure == "RecordHeader":
        out = struct.pack("<I", crc32c(out[4:])) + out[4:]
    return out


def fields(structure, raw):
    """The fields of packed bytes, as the vectors tell them."""
    result, at = {}, 0
    for name, size, is_bytes in layout(structure):
        part = raw[at : at + size]
        result[name] = "hex:" + part.hex() if is_bytes else str(int.from_bytes(part, "little"))
        at += size
    assert at == len(raw), structure
    return result


def with_crc(raw):
    return raw + struct.pack("<I", crc32c(raw))


# --- XXH3-64 -----------------------------------------------------------------------------------

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def r32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def r64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def fold(a, b):
    product = a * b
    return (product ^ (product >> 64)) & U64


def avalanche(h):
    h = ((h ^ (h >> 37)) * 0x165667919E3779F9) & U64
    return h ^ (h >> 32)


def avalanche64(h):
    h = ((h ^ (h >> 33)) * P64_2) & U64
    h = ((h ^ (h >> 29)) * P64_3) & U64
    return h ^ (h >> 32)


def rotl(value, bits):
    return ((value << bits) | (value >> (64 - bits))) & U64


def xxh3_short(data, seed):
    n, s = len(data), SECRET
    if n == 0:
        return avalanche64(seed ^ r64(s, 56) ^ r64(s, 64))
    if n <= 3:
        mixed = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche64(mixed ^ ((r32(s, 0) ^ r32(s, 4)) + seed & U64))
    if n <= 8:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        flip = (r64(s, 8) ^ r64(s, 16)) - seed & U64
        h = (r32(data, n - 4) + (r32(data, 0) << 32)) ^ flip
        h ^= rotl(h, 49) ^ rotl(h, 24)
        h = h * 0x9FB21C651E98DF25 & U64
        h = (h ^ (h >> 35) + n) * 0x9FB21C651E98DF25 & U64
        return h ^ (h >> 28)
    low = r64(data, 0) ^ ((r64(s, 24) ^ r64(s, 32)) + seed & U64)
    high = r64(data, n - 8) ^ ((r64(s, 40) ^ r64(s, 48)) - seed & U64)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return avalanche(n + swapped + high + fold(low, high) & U64)


def xxh3_middle(data, seed):
    n, s = len(data), SECRET

    def mix(at, secret_at):
        low = r64(data, at) ^ (r64(s, secret_at) + seed & U64)
        high = r64(data, at + 8) ^ (r64(s, secret_at + 8) - seed & U64)
        return fold(low, high)

    acc = n * P64_1
    if n <= 128:
        for step in range((n - 1) // 32 + 1):
            acc += mix(16 * step, 32 * step) + mix(n - 16 * (step + 1), 32 * step + 16)
        return avalanche(acc & U64)
    acc += sum(mix(16 * step, 16 * step) for step in range(8))
    acc = avalanche(acc & U64)
    acc += mix(n - 16, 119)
    acc += sum(mix(16 * step, 16 * (step - 8) + 3) for step in range(8, n // 16))
    return avalanche(acc & U64)


def xxh3_long(data, seed):
    n, secret = len(data), b""
    for at in range(0, 192, 16):
        secret += (r64(SECRET, at) + seed & U64).to_bytes(8, "little")
        secret += (r64(SECRET, at + 8) - seed & U64).to_bytes(8, "little")
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def accumulate(at, secret_at):
        for lane in range(8):
            value = r64(data, at + 8 * lane)
            key = value ^ r64(secret, secret_at + 8 * lane)
            acc[lane ^ 1] = acc[lane ^ 1] + value & U64
            acc[lane] = acc[lane] + (key & 0xFFFFFFFF) * (key >> 32) & U64

    blocks = (n - 1) // 1024
    for block in range(blocks):
        for stripe in range(16):
            accumulate(1024 * block + 64 * stripe, 8 * stripe)
        for lane in range(8):
            value = acc[lane] ^ (acc[lane] >> 47) ^ r64(secret, 128 + 8 * lane)
            acc[lane] = value * P32_1 & U64
    for stripe in range((n - 1 - 1024 * blocks) // 64):
        accumulate(1024 * blocks + 64 * stripe, 8 * stripe)
    accumulate(n - 64, 192 - 64 - 7)
    result = n * P64_1
    for pair in range(4):
        at = 11 + 16 * pair
        result += fold(acc[2 * pair] ^ r64(secret, at), acc[2 * pair + 1] ^ r64(secret, at + 8))
    return avalanche(result & U64)


def xxh3(data, seed=0):
    if len(data) <= 16:
        return xxh3_short(data, seed)
    return xxh3_middle(data, seed) if len(data) <= 240 else xxh3_long(data, seed)


# --- SipHash-2-4 -------------------------------------------------------------------------------


def siphash(key, data):
    k0, k1 = r64(key, 0), r64(key, 8)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D]
    v += [k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(count):
        for _ in range(count):
            v[0] = v[0] + v[1] & U64
            v[2] = v[2] + v[3] & U64
            v[1] = rotl(v[1], 13) ^ v[0]
            v[3] = rotl(v[3], 16) ^ v[2]
            v[0] = rotl(v[0], 32)
            v[2] = v[2] + v[1] & U64
            v[0] = v[0] + v[3] & U64
            v[1] = rotl(v[1], 17) ^ v[2]
            v[3] = rotl(v[3], 21) ^ v[0]
            v[2] = rotl(v[2], 32)

    whole = len(data) & ~7
    last = data[whole:].ljust(7, b"\0") + bytes([len(data) & 0xFF])
    for at in range(0, whole, 8):
        v[3] ^= r64(data, at)
        rounds(2)
        v[0] ^= r64(data, at)
    v[3] ^= r64(last, 0)
    rounds(2)
    v[0] ^= r64(last, 0)
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# --- The vectors -------------------------------------------------------------------------------


def slot_hash(hash64):
    return hash64 + 2 if hash64 < 2 else hash64


def superblock(**changes):
    values = dict(
        magic=0x4B56424B,
        version_major=1,
        version_minor=0,
        page_size=PAGE,
        file_uuid_hi=UUID_HI,
        file_uuid_lo=UUID_LO,
        created_unix_ns=NOW,
        flags=2,
        index_region_start_page=27,
        index_region_page_count=16,
        fsm_start_page=1,
        fsm_page_count=1,
        journal_start_page=3,
        journal_page_count=8,
        segment_start_page=11,
        segment_end_page=300,
        commit_seqno=123456,
        commit_paddr=654321,
        epoch=42,
    )
    return pack("Superblock", **{**values, **changes})


EXTENSION = dict(
    magic=0x5842564B,
    length=200,
    hash_kind=0,
    epoch=42,
    file_uuid_hi=UUID_HI,
    file_uuid_lo=UUID_LO,
    self_page=0,
    b_page=511,
    durable_seqno=123456,
    tail_seqno=123400,
    next_seg_id=77,
    clock_unix_ns=NOW + 5,
    image_id=0xA1B2C3D4E5F60718,
    image_seqno=120000,
    image_seg_id=31,
    table_start_page=44,
    table_page_count=2,
    table_id=0x1122334455667788,
    index_page_min=1,
    max_value=1 << 30,
    segment_page_max=2048,
    bulletin_page=2,
    image_gone=3,
    book_start_page=0,
    dropped_seqno=99_000,
)


def extension(**changes):
    """The extension that goes with the roster below."""
    head, named, sealed = roster_parts()
    roster_crc = crc32c(head + b"".join(named + sealed))
    return pack("Extension", **{**EXTENSION, "roster_crc32c": roster_crc, **changes})


COMMIT_TAG = ((UUID_HI << 1 | UUID_HI >> 63) & U64) ^ UUID_LO


def single_structures():
    """At least one vector of every structure."""
    keyed = dict(hash_kind=1, hash_key=bytes(range(16)))
    segment = dict(
        seg_id=9,
        base_seqno=1000,
        start_unix_ns=NOW,
        flags=1,
        writer_pid=4321,
        reserved=4,
        segment_size=0,
    )
    passive = dict(seg_id=0, base_seqno=0, start_unix_ns=0, writer_pid=0, reserved=3)
    record = dict(
        seqno=1000,
        hash64=xxh3(b"alice"),
        timestamp_ns=NOW,
        kind=0,
        enc=0,
        reserved16=1,
        key_len=5,
        val_len=3,
        ttl_secs=0,
    )
    entry = dict(
        seqno=1000, hash64=xxh3(b"alice"), index_pageid=27, slot_idx=48, record_paddr=57396
    )
    yield "Superblock", superblock()
    yield "Superblock", superblock(flags=2 | 4 | 8)
    yield "Superblock", superblock(page_size=65536, flags=0xFFFFFFFF, epoch=U64, version_minor=7)
    yield "Extension", extension()
    yield "Extension", extension(**keyed)
    yield "RosterHead", roster_parts()[0]
    for named in roster_parts()[1]:
        yield "NamedExtent", named
    for sealed in roster_parts()[2]:
        yield "SegmentEntry", sealed
    yield "SegmentHeader", pack("SegmentHeader", **segment)
    yield "SegmentHeader", pack("SegmentHeader", **dict(segment, segment_size=11889))
    moved = dict(segment, flags=1 | 8, base_seqno=17, segment_size=20000)
    yield "SegmentHeader", pack("SegmentHeader", **moved)
    yield "SegmentHeader", pack("SegmentHeader", **dict(moved, flags=1 | 8 | 16))
    yield "SegmentHeader", pack("SegmentHeader", **dict(moved, base_seqno=0, segment_size=0))
    yield "SegmentHeader", pack("SegmentHeader", **passive, flags=2, segment_size=3 * PAGE)
    yield "SegmentHeader", pack("SegmentHeader", **passive, flags=4, segment_size=3 * PAGE)
    yield "RecordHeader", pack("RecordHeader", **record)
    largest = dict(record, seqno=U64, key_len=65535, val_len=0xFFFFFFFF, ttl_secs=0xFFFFFFFF)
    yield "RecordHeader", pack("RecordHeader", **largest)
    yield "FooterHead", footer_parts()[0]
    yield "SparsePair", footer_parts()[1][0]
    yield "MetaHead", meta_parts()[0]
    yield "Section", meta_parts()[1][0]
    yield "RunEntry", pack("RunEntry", slot_hash=2, offset=52, seqno_delta=0)
    yield "RunEntry", pack("RunEntry", slot_hash=U64, offset=1 << 31 | 4711, seqno_delta=9)
    yield "RunEntry", pack("RunEntry", slot_hash=3, offset=52, seqno_delta=0xFFFFFFFF)
    yield "DirectoryHead", directory_parts()[0]
    yield "FreeMapHead", free_map_parts()[0]
    yield "FreeExtent", free_map_parts()[1][0]
    yield "IndexPageHeader", pack("IndexPageHeader", **INDEX_HEADER)
    yield "IndexSlot", pack("IndexSlot", hash64=slot_hash(1), record_paddr=57850)
    yield "JournalEntry", pack("JournalEntry", kind=1, **entry)
    yield "JournalEntry", pack("JournalEntry", kind=2, **entry)
    yield "JournalEntry", pack("JournalEntry", kind=3, **dict(entry, record_paddr=0))
    commit = dict(
        seqno=1003, hash64=COMMIT_TAG, index_pageid=1003, slot_idx=9, record_paddr=57780
    )
    yield "JournalEntry", pack("JournalEntry", kind=4, **commit)


def record_wholes():
    for key, value, changes in [
        (b"alice", b"100", dict(reserved16=1)),
        (b"session", b"token", dict(reserved16=0, ttl_secs=60)),
        (b"bob", b"", dict(kind=1, reserved16=1)),
        (b"", b"", dict(reserved16=2)),
        (b"dave", b"", dict(kind=1, reserved16=2)),
        (bytes.fromhex("46c6bd15848c7d973a5296093bbc56af"), bytes(70), dict(reserved16=1)),
    ]:
        values = dict(seqno=1000, hash64=xxh3(key), timestamp_ns=NOW, kind=0, enc=0, ttl_secs=0)
        values.update(changes, key_len=len(key), val_len=len(value))
        header = pack("RecordHeader", **values)
        raw = with_crc(header + key + value)
        yield dict(
            whole="Record",
            header=fields("RecordHeader", header),
            key=key.hex(),
            value=value.hex(),
            bytes=raw.hex(),
        )


def footer_parts():
    pairs = [
        pack("SparsePair", hash64=xxh3(b"alice"), paddr=57396),
        pack("SparsePair", hash64=0, paddr=60951),
    ]
    head = pack("FooterHead", seg_id=9, last_seqno=1067, live_bytes=11617, sparse_index_n=2)
    return head, pairs


def footer_whole():
    head, pairs = footer_parts()
    return dict(
        whole="Footer",
        head=fields("FooterHead", head),
        pairs=[fields("SparsePair", pair) for pair in pairs],
        bytes=with_crc(head + b"".join(pairs)).hex(),
    )


def roster_parts():
    named = [
        pack("NamedExtent", start_page=12, seg_id=2, page_count=2, kind=0),
        pack("NamedExtent", start_page=18, seg_id=4, page_count=4, kind=0),
        pack("NamedExtent", start_page=60, seg_id=34, page_count=40, kind=1),
    ]
    log = dict(
        start_page=14,
        data_page_count=3,
        meta_page_count=1,
        seg_id=3,
        base_seqno=172,
        last_seqno=239,
        dead_bytes=105,
        record_count=68,
        flags=0,
        record_bytes=11777,
        delete_bytes=109,
        expiring_bytes=60,
        expires_first_ns=NOW + 61_000_000_000,
        expires_last_ns=NOW + 61_000_000_000,
    )
    moved = dict(
        log,
        start_page=100,
        seg_id=31,
        base_seqno=17,
        last_seqno=160,
        flags=1,
        expiring_bytes=0,
        expires_first_ns=0,
        expires_last_ns=0,
    )
    guard = dict(
        moved,
        start_page=104,
        seg_id=33,
        base_seqno=44,
        last_seqno=90,
        flags=3,
        record_count=5,
        record_bytes=260,
        delete_bytes=260,
        dead_bytes=312,
    )
    sealed = [pack("SegmentEntry", **entry) for entry in (log, moved, guard)]
    head = pack(
        "RosterHead",
        magic=0x5242564B,
        named_count=len(named),
        sealed_count=len(sealed),
        epoch=42,
        file_uuid_hi=UUID_HI,
        file_uuid_lo=UUID_LO,
    )
    return head, named, sealed


def roster_whole():
    head, named, sealed = roster_parts()
    return dict(
        whole="Roster",
        head=fields("RosterHead", head),
        named=[fields("NamedExtent", extent) for extent in named],
        sealed=[fields("SegmentEntry", entry) for entry in sealed],
        bytes=with_crc(head + b"".join(named + sealed)).hex(),
    )


def filter_bytes(hashes):
    """Four bits in one word per hash."""
    words = [0] * max(1, -(-len(hashes) * 12 // 64))
    for value in hashes:
        mixed = value * 0x9E3779B97F4A7C15 & U64
        word = mixed * len(words) >> 64
        for shift in (0, 6, 12, 18):
            words[word] |= 1 << (mixed >> shift & 63)
    return struct.pack(f"<{len(words)}Q", *words)


RUN_KEYS = [b"alice", b"bob", b"carol", b"dave", b""]
RUN_HASHES = sorted(slot_hash(xxh3(key)) for key in RUN_KEYS)
# Of which key bytes stand in a directory.
DIRECTORY_KEYS = sorted(b"coin/%04d" % (number * number) for number in range(20))


def directory_parts():
    """Records of equal length, one of them a DELETE, in the order of their keys."""
    places = [52 + 60 * at | (1 << 31 if at == 7 else 0) for at in range(len(DIRECTORY_KEYS))]
    first, last = DIRECTORY_KEYS[0], DIRECTORY_KEYS[-1]
    skip = next(at for at in range(len(first)) if first[at] != last[at])
    chunks = [key[skip : skip + 8].ljust(8, b"\0") for key in DIRECTORY_KEYS[::8]]
    prefixes = [int.from_bytes(chunk, "big") for chunk in chunks]
    return pack("DirectoryHead", count=len(places), skip=skip), places, prefixes


def directory_whole():
    head, places, prefixes = directory_parts()
    raw = head + struct.pack(f"<{len(places)}I", *places)
    raw += struct.pack(f"<{len(prefixes)}Q", *prefixes)
    return dict(
        head=fields("DirectoryHead", head),
        keys=[key.hex() for key in DIRECTORY_KEYS],
        places=[str(place) for place in places],
        prefixes=[str(prefix) for prefix in prefixes],
        bytes=raw.hex(),
    )


def meta_parts():
    run = b"".join(
        pack("RunEntry", slot_hash=value, offset=52 + 60 * at, seqno_delta=at)
        for at, value in enumerate(RUN_HASHES)
    )
    words = filter_bytes(RUN_HASHES)
    order = pack("DirectoryHead", count=len(RUN_KEYS), skip=0)
    order += struct.pack("<5IQ", *(52 + 60 * at for at in range(5)), 0)
    # 128 + 64 + 3 * 24 + 4 bytes, rounded up to 64.
    at, sections = 320, []
    for kind, raw in [(1, run), (2, words), (4, order)]:
        sections.append(pack("Section", kind=kind, crc32c=crc32c(raw), offset=at, length=len(raw)))
        at += len(raw)
    head = pack(
        "MetaHead",
        magic=0x4D42564B,
        kind=2,
        section_count=len(sections),
        file_uuid_hi=UUID_HI,
        file_uuid_lo=UUID_LO,
        id=9,
        count=len(RUN_HASHES),
        used=0,
        seqno=1000,
        page_count=1,
    )
    return head, sections


def meta_whole():
    head, sections = meta_parts()
    return dict(
        whole="Meta",
        head=fields("MetaHead", head),
        sections=[fields("Section", section) for section in sections],
        bytes=with_crc(head + b"".join(sections)).hex(),
    )


INDEX_ID = 0xA1B2C3D4E5F60718
INDEX_KEYS = [b"alice", b"bob", b"carol", b"", bytes.fromhex("46c6bd15848c7d973a5296093bbc56af")]
INDEX_HEADER = dict(page_uuid=INDEX_ID, slots=128, used=len(INDEX_KEYS), pageid=27)


def index_whole():
    """The only page of an image: Robin Hood in the order (home, hash); none of these wraps."""
    slots, at = [], 0
    for value in sorted((slot_hash(xxh3(key)) for key in INDEX_KEYS), key=lambda h: (h % 128, h)):
        at = max(at, value % 128)
        slots.append((at, pack("IndexSlot", hash64=value, record_paddr=57344 + 64 * at)))
        at += 1
    header = pack("IndexPageHeader", **INDEX_HEADER)
    page = bytearray(header.ljust(PAGE, b"\0"))
    for at, slot in slots:
        page[28 + 16 * at : 44 + 16 * at] = slot
    end = 28 + 16 * 128
    digest = xxh3(bytes(page[end + 8 :]), xxh3(bytes(page[:end]), INDEX_ID))
    page[end : end + 8] = struct.pack("<Q", digest)
    return dict(
        whole="IndexPage",
        header=fields("IndexPageHeader", header),
        slots=[dict(index=str(at), **fields("IndexSlot", slot)) for at, slot in slots],
        digest=str(digest),
        bytes=bytes(page).hex(),
    )


def free_map_parts():
    extents = [
        pack("FreeExtent", start_page=12, page_count=2),
        pack("FreeExtent", start_page=100, page_count=300),
    ]
    head = pack(
        "FreeMapHead",
        magic=0x4642564B,
        extent_count=len(extents),
        epoch=42,
        file_uuid_lo=UUID_LO,
        pageid=1,
        first_page=0,
        page_count=PAGE // 4 * 3 * 8,
    )
    return head, extents


def free_map_whole():
    head, extents = free_map_parts()
    page = bytearray(head.ljust(PAGE - 4, b"\0"))
    for extent in extents:
        first, count = struct.unpack("<QQ", extent)
        for bit in range(first, first + count):
            page[48 + bit // 8] |= 1 << bit % 8
    at = 48 + PAGE // 4 * 3
    page[at : at + 16 * len(extents)] = b"".join(extents)
    return dict(
        whole="FreeMapPage",
        head=fields("FreeMapHead", head),
        extents=[fields("FreeExtent", extent) for extent in extents],
        bytes=with_crc(bytes(page)).hex(),
    )


def refused(structures, wholes):
    """One flipped bit each, and sound structures that ask for what nobody knows."""
    for number, (structure, raw) in enumerate(structures):
        if structure in SEALED - {"IndexPageHeader"} or structure == "RecordHeader":
            bit = (number * 37 + 11) % (len(raw) * 8)
            damaged = bytearray(raw)
            damaged[bit // 8] ^= 1 << bit % 8
            yield dict(structure=structure, why=f"bit {bit} flipped", bytes=bytes(damaged).hex())
    for number, whole in enumerate(wholes):
        damaged = bytearray.fromhex(whole["bytes"])
        bit = (number * 7919 + 333) % (len(damaged) * 8)
        damaged[bit // 8] ^= 1 << bit % 8
        name = whole["whole"]
        yield dict(structure=name, why=f"bit {bit} flipped", bytes=bytes(damaged).hex())
    for why, changes in [
        ("another major version", dict(version_major=2)),
        ("a flag that must be understood", dict(flags=1 << 48)),
        ("a page size that is no power of two", dict(page_size=5000)),
        ("a page size under 4096", dict(page_size=512)),
        ("the magic read as big-endian", dict(magic=0x4B42564B)),
    ]:
        yield dict(structure="Superblock", why=why, bytes=superblock(**changes).hex())
    head, named, sealed = roster_parts()
    unknown = pack("NamedExtent", start_page=12, seg_id=2, page_count=2, kind=2)
    raw = with_crc(head + unknown + b"".join(named[1:] + sealed))
    yield dict(structure="Roster", why="a named extent of unknown kind", bytes=raw.hex())
    unknown = sealed[0][:52] + struct.pack("<I", 4) + sealed[0][56:]
    raw = with_crc(head + b"".join(named) + unknown + b"".join(sealed[1:]))
    yield dict(structure="Roster", why="a segment with an unknown flag", bytes=raw.hex())
    header = dict(seg_id=1, base_seqno=1, start_unix_ns=NOW, writer_pid=1, reserved=2)
    for why, flags in [
        ("two kinds at once", 3),
        ("no kind", 0),
        ("a flag that must be understood", 1 << 63 | 1),
    ]:
        raw = pack("SegmentHeader", **header, flags=flags, segment_size=0)
        yield dict(structure="SegmentHeader", why=why, bytes=raw.hex())
    zeros = [("SegmentHeader", 52), ("RecordHeader", 44), ("JournalEntry", 52), ("Superblock", 136)]
    for structure, size in zeros:
        yield dict(structure=structure, why="all zeros", bytes=bytes(size).hex())


def hashes():
    keys = [
        b"",
        b"a",
        b"abc",
        b"alice",
        b"123456789",
        bytes.fromhex("46c6bd15848c7d973a5296093bbc56af"),
        bytes.fromhex("b1e3cc0e6658ae493a5296093bbc56af"),
        bytes.fromhex("073a8067cee5f2313a5296093bbc56af"),
        bytes.fromhex("b8fe6c3923a44bbe") + bytes(8) + bytes([7] * 16),
        bytes.fromhex("b8fe6c3923a44bbe") + bytes([255] * 8) + bytes([7] * 16),
        bytes(range(100)),
        bytes(range(200)),
        bytes(i * i % 251 for i in range(1500)),
    ]
    for key in keys:
        hash64 = xxh3(key)
        yield dict(input=key.hex(), hash64=str(hash64), slot_hash=str(slot_hash(hash64)))


def main():
    assert len(SECRET) == 192, len(SECRET)
    structures = list(single_structures())
    wholes = list(record_wholes())
    wholes += [footer_whole(), roster_whole(), meta_whole(), index_whole(), free_map_whole()]
    checks = [b"123456789", b"", bytes(32), bytes([255] * 32), bytes(range(32))]
    sip_key = bytes(range(16))
    inputs = [b"", bytes(range(15)), bytes(range(16)), b"alice"]
    result = dict(
        about="Structures of a kvb bucket; see docs/format/kvb.md. Made by strict/vectors.py.",
        crc32c=[dict(input=raw.hex(), crc32c=str(crc32c(raw))) for raw in checks],
        xxh3_64=list(hashes()),
        siphash_2_4=[
            dict(key=sip_key.hex(), input=raw.hex(), hash64=str(siphash(sip_key, raw)))
            for raw in inputs
        ],
        directory=[directory_whole()],
        filter=[
            dict(hashes=[str(value) for value in RUN_HASHES], bytes=filter_bytes(RUN_HASHES).hex())
        ],
        structures=[
            dict(structure=name, fields=fields(name, raw), bytes=raw.hex())
            for name, raw in structures
        ],
        wholes=wholes,
        refused=list(refused(structures, wholes)),
    )
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
