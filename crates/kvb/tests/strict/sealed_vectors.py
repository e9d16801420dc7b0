"""Makes vectors/kvb/sealed.json: what encrypted buckets are made of, under fixed keys.

Like vectors.py it shares no code with the engine. All of it follows from docs/format/kvb.md.

Usage: sealed_vectors.py > vectors/kvb/sealed.json

Integers are decimal strings, byte strings plain hex; in fields of structures they begin with "hex:".
"""

import json
import struct

from cipher import BucketKey, SegmentCipher, XChaCha
from frames import varint
from reader import crc32c
from sealed import KEY_BLOCK_AT, KEY_BLOCK_END, MAC_AT
from structures import COMPILED, unpack
from vectors import INDEX_HEADER, NOW, PAGE, UUID_HI, UUID_LO, pack, siphash, slot_hash, with_crc

UUID = struct.pack("<QQ", UUID_HI, UUID_LO)
KEY, KEY_ID = bytes(range(32)), 0x1122334455667788
OLD_KEY, OLD_KEY_ID = bytes(255 - n for n in range(32)), 3
SESSION_SALT = bytes(0xA0 + n for n in range(16))
SEG_ID = 9
SEQNOS = [1, 1000, 1 << 40, (1 << 62) - 1]
DICTIONARIES = [
    struct.pack("<II", 0xEC30A437, 41) + b"first dictionary",
    struct.pack("<II", 0xEC30A437, 42) + b"second dictionary, not one zstd would take",
]


def packed(structure, **values):
    """Bytes of a structure; all its fields must be given."""
    form, kind = COMPILED[structure]
    return form.pack(*kind(**values))


def told(structure, raw):
    """The fields of packed bytes, as the vectors tell them."""
    found = unpack(structure, raw)._asdict().items()
    return {name: "hex:" + v.hex() if isinstance(v, bytes) else str(v) for name, v in found}


def derived(name, raw):
    """All that follows from a key and the uuid."""
    key = BucketKey(raw, UUID)
    return dict(
        name=name,
        key=raw.hex(),
        uuid=UUID.hex(),
        check=key.check.hex(),
        hash_key=key.hash_key.hex(),
        hash_pad=key.hash_pad.hex(),
        hidden_hash_key=bytes(a ^ b for a, b in zip(key.hash_key, key.hash_pad)).hex(),
        mac_key=key.mac_key.hex(),
        book_key=key.book_key.hex(),
    )


def segments(key):
    """Salt, key and nonces of segments, one of them without a salt."""
    for seg_id, is_salted in [(1, True), (SEG_ID, True), ((1 << 64) - 2, True), (5, False)]:
        salt = key.salt(SESSION_SALT, seg_id) if is_salted else None
        cipher = SegmentCipher(key, seg_id, salt)
        yield dict(
            seg_id=str(seg_id),
            session_salt=SESSION_SALT.hex(),
            salt=salt.hex() if salt else None,
            segment_key=key.segment_key(seg_id, salt).hex(),
            segment_nonce=cipher.nonce.hex(),
            nonces=[dict(seqno=str(n), nonce=cipher.nonce_of(n).hex()) for n in SEQNOS],
        )


RECORDS = [
    ("a PUT", b"alice", b"100", dict()),
    ("a PUT that expires, within a batch", b"session", b"token", dict(reserved16=0, ttl_secs=60)),
    ("a DELETE", b"bob", b"", dict(kind=1, enc=128)),
    ("an empty key and an empty value", b"", b"", dict()),
    ("a moved record", b"carol", bytes(range(64)), dict(reserved16=2)),
    ("a compressed value", b"dave", b"\x05 stored bytes are any", dict(enc=129)),
    ("a value with a dictionary", b"erin", b"\x07 these too", dict(enc=130)),
    ("more than a block of keystream", b"k" * 63, bytes(n % 251 for n in range(1000)), dict()),
    ("a high seqno", b"frank", b"1", dict(seqno=(1 << 62) - 1)),
]


def records(key):
    """Whole records, one behind the other in a salted segment; then one of a segment without a salt."""
    salt, at = key.salt(SESSION_SALT, SEG_ID), 68
    for number, (what, plain_key, stored, changes) in enumerate(RECORDS):
        values = dict(seqno=1000 + number) | changes
        yield record(key, what, SEG_ID, salt, at, plain_key, stored, values)
        at += 64 + len(plain_key) + len(stored)
    values = dict(seqno=1)
    yield record(key, "not salted: under the bucket's key", 5, None, 52, b"alice", b"100", values)


def record(key, what, seg_id, salt, offset, plain_key, stored, changes):
    values = dict(timestamp_ns=NOW, kind=0, enc=128, reserved16=1, ttl_secs=0) | changes
    lengths = dict(key_len=len(plain_key), val_len=len(stored))
    header = pack("RecordHeader", hash64=siphash(key.hash_key, plain_key), **values, **lengths)
    cipher = SegmentCipher(key, seg_id, salt)
    sealed, tag = cipher.seal(values["seqno"], offset, header, plain_key + stored)
    return dict(
        what=what,
        seg_id=str(seg_id),
        salt=salt.hex() if salt else None,
        offset=str(offset),
        nonce=cipher.nonce_of(values["seqno"]).hex(),
        aad=cipher.aad(offset, header).hex(),
        header=told("RecordHeader", header),
        key=plain_key.hex(),
        stored=stored.hex(),
        sealed=sealed.hex(),
        tag=tag.hex(),
        bytes=with_crc(header + sealed + tag).hex(),
    )


def refused(made):
    """Sound CRCs around what a tag or the flags do not allow."""
    first = bytes.fromhex(made[0]["bytes"])
    place = {name: made[0][name] for name in ("seg_id", "salt", "offset")}

    def repaired(at, bits):
        raw = bytearray(first[:-4])
        raw[at] ^= bits
        raw[:4] = struct.pack("<I", crc32c(bytes(raw[4:44])))
        return with_crc(bytes(raw)).hex()

    for why, at, bits in [
        ("another seqno", 4, 1),
        ("another hash", 12, 1),
        ("another time", 20, 1),
        ("another form", 29, 1),
        ("another mark", 30, 1),
        ("another lifetime", 40, 1),
        ("another key", 44, 1),
        ("another value", 49, 1),
        ("another tag", 52, 1),
    ]:
        yield dict(why=why, **place, bytes=repaired(at, bits))
    yield dict(why="another place", **dict(place, offset="69"), bytes=first.hex())
    yield dict(why="another segment", **dict(place, seg_id="10"), bytes=first.hex())


def key_block(key, old, mac):
    raw = packed(
        "KeyBlock",
        magic=0x4542564B,
        length=100,
        key_no=2,
        key_id=KEY_ID,
        key_check=key.check,
        old_key_no=1,
        image_key_no=1,
        table_key_no=2,
        book_key_no=2,
        old_key_id=OLD_KEY_ID,
        old_key_check=old.check,
        session_salt=SESSION_SALT,
        mac=mac,
        crc32c=0,
    )
    return with_crc(raw[:-4])


def superblock_page(key, old):
    """A page with a key block in the middle of a rotation; the bytes around it are any."""
    page = bytearray((n * 7 + 3) % 256 for n in range(PAGE))
    page[KEY_BLOCK_AT:KEY_BLOCK_END] = key_block(key, old, bytes(16))
    mac = key.page_mac(b"kvb-checkpoint-v1", bytes(page), MAC_AT, KEY_BLOCK_END)
    block = key_block(key, old, mac)
    page[KEY_BLOCK_AT:KEY_BLOCK_END] = block
    return dict(
        what="superblock's page",
        mac=mac.hex(),
        key_block=told("KeyBlock", block),
        bytes=bytes(page).hex(),
    )


def index_page(key):
    """The only page of an image with three keys, each at its home."""
    page = bytearray(pack("IndexPageHeader", **dict(INDEX_HEADER, used=3)).ljust(PAGE, b"\0"))
    for name in [b"alice", b"bob", b"carol"]:
        hash64 = slot_hash(siphash(key.hash_key, name))
        at = hash64 % 128
        assert not any(page[28 + 16 * at : 44 + 16 * at]), name
        slot = pack("IndexSlot", hash64=hash64, record_paddr=57344 + 64 * at)
        page[28 + 16 * at : 44 + 16 * at] = slot
    end = 28 + 16 * 128
    mac = key.page_mac(b"kvb-image-v1", bytes(page), end, end + 16)
    page[end : end + 16] = mac
    return dict(what="index page", mac=mac.hex(), bytes=bytes(page).hex())


def sections(key):
    """MACs of a head and of sections of derived data."""
    head = pack(
        "MetaHead",
        magic=0x4D42564B,
        kind=2,
        section_count=5,
        file_uuid_hi=UUID_HI,
        file_uuid_lo=UUID_LO,
        id=SEG_ID,
        count=3,
        used=0,
        seqno=1000,
        page_count=1,
    )
    parts = [(0, head), (1, bytes(range(48))), (2, bytes(8)), (4, bytes(range(20))), (6, bytes(16))]
    for kind, part in parts:
        mac = key.meta_mac(2, SEG_ID, kind, part).hex()
        yield dict(head_kind="2", id=str(SEG_ID), kind=str(kind), bytes=part.hex(), mac=mac)


def book_copy(key):
    """One copy of a book with two dictionaries."""
    body = b"".join(struct.pack("<I", len(raw)) + raw for raw in DICTIONARIES)
    head = packed(
        "BookHead",
        magic=0x4442564B,
        count=2,
        file_uuid_hi=UUID_HI,
        file_uuid_lo=UUID_LO,
        length=len(body),
        nonce=bytes(0x40 + n for n in range(24)),
    )
    nonce = head[32:]
    sealed, tag = XChaCha(key.book_key, nonce[:16]).seal(nonce[16:], head, body)
    return dict(
        head=told("BookHead", head),
        dictionaries=[raw.hex() for raw in DICTIONARIES],
        tag=tag.hex(),
        bytes=with_crc(head + sealed + tag).hex(),
    )


def varints():
    for number, raw in [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (1 << 30, "8080808004"),
        ((1 << 64) - 1, "ffffffffffffffffff01"),
    ]:
        assert varint(bytes.fromhex(raw)) == (number, len(raw) // 2)
        yield dict(number=str(number), bytes=raw)
    for raw in ["8000", "ff00", "80808080808080808000", "80" * 10 + "01", "ff" * 9 + "02", "80", ""]:
        yield dict(number=None, bytes=raw)


def main():
    key, old = BucketKey(KEY, UUID), BucketKey(OLD_KEY, UUID)
    made = list(records(key))
    result = dict(
        about="Encrypted buckets; see docs/format/kvb.md. Made by strict/sealed_vectors.py.",
        keys=[derived("current", KEY), derived("old", OLD_KEY)],
        rotated_hash_key=dict(
            what="hash key of the old key, hidden under the pad of the current one",
            hash_key=old.hash_key.hex(),
            hidden=bytes(a ^ b for a, b in zip(old.hash_key, key.hash_pad)).hex(),
        ),
        segments=list(segments(key)),
        records=made,
        refused=list(refused(made)),
        pages=[superblock_page(key, old), index_page(key)],
        sections=list(sections(key)),
        books=[book_copy(key)],
        varints=list(varints()),
    )
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
