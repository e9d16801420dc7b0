"""The cryptography of encrypted buckets, written from docs/format/kvb.md and the papers it names.

ChaCha20 and Poly1305 are those of RFC 8439, HChaCha20 and the extended nonce those of the XChaCha
draft of the IETF; BLAKE2b comes from the standard library. Nothing here is fit for secrets: it
takes no care about timing or about what stays in memory.
"""

import struct
from hashlib import blake2b

WORD = 0xFFFFFFFF
SIGMA = struct.unpack("<4I", b"expand 32-byte k")
TAG = 16
# Blocks that are computed side by side: more would not fit the processor's cache.
SIDE_BY_SIDE = 2048


def lanes(values):
    """Many 32-bit words as one number, 64 bits for each, so that one operation works on all."""
    return int.from_bytes(struct.pack(f"<{len(values)}Q", *values), "little")


def rounds(x, mask):
    """The twenty rounds of ChaCha on sixteen words, each a number of many lanes.

    What an addition or a rotation carries out of a word lands in the upper half of its lane, or of
    the lane below, and is masked away.
    """

    def quarter(a, b, c, d):
        x[a] = x[a] + x[b] & mask
        x[d] ^= x[a]
        x[d] = (x[d] << 16 | x[d] >> 16) & mask
        x[c] = x[c] + x[d] & mask
        x[b] ^= x[c]
        x[b] = (x[b] << 12 | x[b] >> 20) & mask
        x[a] = x[a] + x[b] & mask
        x[d] ^= x[a]
        x[d] = (x[d] << 8 | x[d] >> 24) & mask
        x[c] = x[c] + x[d] & mask
        x[b] ^= x[c]
        x[b] = (x[b] << 7 | x[b] >> 25) & mask

    for _ in range(10):
        for column in range(4):
            quarter(column, 4 + column, 8 + column, 12 + column)
        for column in range(4):
            quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)


def keystream(key, wanted):
    """Blocks of ChaCha20 one behind the other, for (block counter, 12 bytes of nonce) each."""
    out = b""
    for first in range(0, len(wanted), SIDE_BY_SIDE):
        out += some_blocks(key, wanted[first : first + SIDE_BY_SIDE])
    return out


def some_blocks(key, wanted):
    count = len(wanted)
    ones = lanes([1] * count)
    state = [word * ones for word in SIGMA + struct.unpack("<8I", key)]
    state.append(lanes([counter for counter, _ in wanted]))
    nonces = [struct.unpack("<3I", nonce) for _, nonce in wanted]
    state += [lanes([nonce[part] for nonce in nonces]) for part in range(3)]
    mask = WORD * ones
    x = list(state)
    rounds(x, mask)
    out = bytearray(64 * count)
    for number in range(16):
        raw = (x[number] + state[number] & mask).to_bytes(8 * count, "little")
        for byte in range(4):
            out[4 * number + byte :: 64] = raw[byte::8]
    return bytes(out)


def hchacha20(key, nonce16):
    x = list(SIGMA + struct.unpack("<8I4I", key + nonce16))
    rounds(x, WORD)
    return struct.pack("<8I", *x[:4], *x[12:])


def poly1305(key, message):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s = int.from_bytes(key[16:], "little")
    prime = (1 << 130) - 5
    total = 0
    for at in range(0, len(message), 16):
        total = (total + int.from_bytes(message[at : at + 16] + b"\1", "little")) * r % prime
    return (total + s & (1 << 128) - 1).to_bytes(16, "little")


def padded(data):
    return data + bytes(-len(data) % 16)


def tag_of(one_time_key, aad, sealed):
    lengths = struct.pack("<QQ", len(aad), len(sealed))
    return poly1305(one_time_key, padded(aad) + padded(sealed) + lengths)


def xor(data, stream):
    mixed = int.from_bytes(data, "little") ^ int.from_bytes(stream[: len(data)], "little")
    return mixed.to_bytes(len(data), "little")


class XChaCha:
    """XChaCha20-Poly1305 for messages whose nonces share their first 16 bytes."""

    def __init__(self, key, nonce16):
        self.subkey = hchacha20(key, nonce16)

    def streams(self, messages):
        """For each (8 bytes of nonce, length) the key of its tag and its keystream."""
        wanted = []
        for nonce8, length in messages:
            blocks = 1 + (length + 63) // 64
            wanted += [(counter, bytes(4) + nonce8) for counter in range(blocks)]
        stream, at = keystream(self.subkey, wanted), 0
        for _, length in messages:
            end = at + 64 * (1 + (length + 63) // 64)
            yield stream[at : at + 32], stream[at + 64 : end]
            at = end

    def open(self, messages):
        """For each (8 bytes of nonce, aad, sealed bytes, tag) the plain bytes, None if the tag fails."""
        streams = self.streams([(nonce, len(sealed)) for nonce, _, sealed, _ in messages])
        for (_, aad, sealed, tag), (tag_key, stream) in zip(messages, streams):
            yield xor(sealed, stream) if tag_of(tag_key, aad, sealed) == tag else None

    def seal(self, nonce8, aad, plain):
        """Sealed bytes and tag."""
        ((tag_key, stream),) = self.streams([(nonce8, len(plain))])
        sealed = xor(plain, stream)
        return sealed, tag_of(tag_key, aad, sealed)


class BucketKey:
    """A key of a bucket and all that is derived from it."""

    def __init__(self, key, uuid):
        assert (len(key), len(uuid)) == (32, 16)
        self.key, self.uuid = key, uuid
        self.check = self.derive(16, b"kvb-key-check-v1")
        self.hash_key = self.derive(16, b"kvb-hash-key-v1")
        self.hash_pad = self.derive(16, b"kvb-hash-wrap-v1")
        self.mac_key = self.derive(32, b"kvb-mac-key-v1")
        self.book_key = self.derive(32, b"kvb-book-key-v1")

    def derive(self, length, name, *parts):
        message = b"".join([name, self.uuid, *parts])
        return blake2b(message, digest_size=length, key=self.key).digest()

    def salt(self, session_salt, seg_id):
        return self.derive(16, b"kvb-seg-salt-v1", session_salt, struct.pack("<Q", seg_id))

    def segment_key(self, seg_id, salt):
        """The key of a segment's records; of one that is not salted the bucket's own."""
        if salt is None:
            return self.key
        return self.derive(32, b"kvb-seg-key-v1", struct.pack("<Q", seg_id), salt)

    def segment_nonce(self, seg_id):
        message = b"kvb-seg-nonce-v1" + self.uuid + struct.pack("<Q", seg_id)
        return blake2b(message, digest_size=24).digest()

    def mac(self, name, *parts):
        return blake2b(b"".join([name, *parts]), digest_size=16, key=self.mac_key).digest()

    def page_mac(self, name, page, at, behind):
        """MAC of a page, without its bytes from `at` to `behind`, where the MAC stands."""
        return self.mac(name, page[:at], page[behind:])

    def meta_mac(self, kind, ident, section_kind, data):
        """MAC of a section of derived data; of the head if the kind of the section is 0."""
        return self.mac(b"kvb-meta-v1", struct.pack("<HQI", kind, ident, section_kind), data)

    def book(self, nonce):
        return XChaCha(self.book_key, nonce[:16])


class SegmentCipher:
    """What opens and seals the records of one segment."""

    def __init__(self, key, seg_id, salt):
        self.seg_id = seg_id
        self.nonce = key.segment_nonce(seg_id)
        self.xchacha = XChaCha(key.segment_key(seg_id, salt), self.nonce[:16])

    def nonce_of(self, seqno):
        last = int.from_bytes(self.nonce[16:], "little") ^ seqno
        return self.nonce[:16] + struct.pack("<Q", last)

    def aad(self, offset, header):
        return struct.pack("<QQ", self.seg_id, offset) + header[4:]

    def open(self, records):
        """For each (seqno, offset, header, sealed bytes, tag) key and stored value, or None."""
        return self.xchacha.open(
            [
                (self.nonce_of(seqno)[16:], self.aad(offset, header), sealed, tag)
                for seqno, offset, header, sealed, tag in records
            ]
        )

    def seal(self, seqno, offset, header, plain):
        return self.xchacha.seal(self.nonce_of(seqno)[16:], self.aad(offset, header), plain)


def self_check():
    """The examples of RFC 8439 and of the XChaCha draft."""
    key = bytes(range(32))
    block = keystream(key, [(1, bytes.fromhex("000000090000004a00000000"))])
    assert block[:8].hex() == "10f1e7e4d13b5915" and block[-4:].hex() == "a2503c4e"
    sub = hchacha20(key, bytes.fromhex("000000090000004a0000000031415927"))
    assert sub.hex() == "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    tag = poly1305(
        bytes.fromhex("85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b"),
        b"Cryptographic Forum Research Group",
    )
    assert tag.hex() == "a8061dc1305136c6c22b8baf0c0127a9"
    plain = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
        b"future, sunscreen would be it."
    )
    nonce = bytes(range(0x40, 0x58))
    cipher = XChaCha(bytes(range(0x80, 0xA0)), nonce[:16])
    sealed, tag = cipher.seal(nonce[16:], bytes.fromhex("50515253c0c1c2c3c4c5c6c7"), plain)
    assert sealed[:8].hex() == "bd6d179d3e83d43b"
    assert tag.hex() == "c0875924c1c7987947deafd8780acf49"


self_check()
