"""Compressed values: the varint, the rules for a frame, and expansion by the `zstd` program.

The rules are those of docs/format/kvb.md under "Compressed values". All of them but the last are
checked on the frame's own headers (RFC 8878), before anything is expanded.
"""

import subprocess
import tempfile

from reader import Damaged

FRAME_MAGIC = 0xFD2FB528
DICTIONARY_MAGIC = 0xEC30A437
VARINT_MAX = 10
WINDOW_MAX = 8 << 20
BLOCK_MAX, BLOCK_MIN = 128 << 10, 3
RAW, RLE, COMPRESSED = 0, 1, 2


def number(data, at, size):
    """A little-endian number that must be there whole."""
    raw = data[at : at + size]
    if len(raw) < size:
        raise Damaged("a frame is cut off")
    return int.from_bytes(raw, "little")


def varint(data):
    """The number a stored value begins with, and the bytes it takes."""
    value = 0
    for at, byte in enumerate(data[:VARINT_MAX]):
        value |= (byte & 0x7F) << 7 * at
        if byte & 0x80:
            continue
        if at and not byte:
            raise Damaged("a varint is longer than it need be")
        if value >= 1 << 64:
            raise Damaged("a varint is above 64 bits")
        return value, at + 1
    raise Damaged("a varint does not end")


class Frame:
    """A frame and what its header tells: content size and dictionary, None if they are not there."""

    def __init__(self, data):
        self.data = data
        if number(data, 0, 4) != FRAME_MAGIC:
            raise Damaged("a frame does not begin with zstd's magic")
        descriptor = number(data, 4, 1)
        if descriptor & 8:
            raise Damaged("a frame has its reserved bit set")
        is_single = bool(descriptor & 0x20)
        self.has_checksum = bool(descriptor & 4)
        at = 5
        self.window = None
        if not is_single:
            self.window = window(number(data, at, 1))
            at += 1
        id_size = (0, 1, 2, 4)[descriptor & 3]
        self.dictionary = number(data, at, id_size) or None
        at += id_size
        size = (1 if is_single else 0, 2, 4, 8)[descriptor >> 6]
        self.content = None
        if size:
            self.content = number(data, at, size) + (256 if size == 2 else 0)
        self.header_len = at + size

    def check_blocks(self):
        """The last block, and the checksum if there is one, must end where the frame's bytes do."""
        at, is_last = self.header_len, False
        while not is_last:
            header = number(self.data, at, 3)
            is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
            if kind > COMPRESSED or size > BLOCK_MAX:
                raise Damaged("a frame has a block that cannot be")
            at += 3 + (1 if kind == RLE else size)
        at += 4 if self.has_checksum else 0
        if at != len(self.data):
            raise Damaged(f"a frame of {at} bytes stands in {len(self.data)}")


def window(descriptor):
    base = 1 << 10 + (descriptor >> 3)
    return base + base // 8 * (descriptor & 7)


def frame_of(stored, max_value, needs_dictionary, known):
    """The frame in a stored value, and the length it must have when expanded."""
    length, at = varint(stored)
    frame = Frame(stored[at:])
    behind = len(frame.data) - frame.header_len
    if length > max_value or length > behind // BLOCK_MIN * BLOCK_MAX:
        raise Damaged(f"a frame of {len(frame.data)} bytes cannot hold {length}")
    if frame.content not in (None, length):
        raise Damaged(f"a frame of {frame.content} bytes is said to have {length}")
    if frame.window is not None and frame.window > WINDOW_MAX:
        raise Damaged(f"a frame has a window of {frame.window}")
    if needs_dictionary and frame.dictionary not in known:
        raise Damaged(f"a frame needs dictionary {frame.dictionary}, which is not there")
    if not needs_dictionary and frame.dictionary is not None:
        raise Damaged(f"a frame names dictionary {frame.dictionary}, and its record has none")
    frame.check_blocks()
    return frame, length


def dictionary_id(raw):
    """The id in a dictionary of zstd's own format."""
    if len(raw) < 8 or number(raw, 0, 4) != DICTIONARY_MAGIC or not number(raw, 4, 4):
        raise Damaged("a dictionary is not one of zstd's")
    return number(raw, 4, 4)


def zstd(source, length, dictionary):
    """What the zstd program makes of some frames. It is cut off when that is more than it should be."""
    with tempfile.TemporaryDirectory() as folder:
        # A single segment may be larger than the window that the program accepts unasked.
        command = ["zstd", "-dcq", "--long=31"]
        if dictionary is not None:
            with open(folder + "/dictionary", "wb") as file:
                file.write(dictionary)
            command += ["-D", folder + "/dictionary"]
        with open(folder + "/frames", "w+b") as file:
            file.write(source)
            file.seek(0)
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=file, stdout=pipe, stderr=pipe) as child:
                out = child.stdout.read(length + 1)
                if len(out) > length:
                    child.kill()
                errors = child.stderr.read().decode(errors="replace").strip()
    if len(out) != length or child.returncode:
        raise Damaged(f"frames of {length} bytes hold {len(out)} or more: {errors or 'no error'}")
    return out


def expand(frames, dictionaries):
    """The values of (frame, length) pairs, in their order.

    Frames that tell their size are given to the program in one go, for it holds each to its size.
    The others are expanded one by one.
    """
    values, together = [None] * len(frames), {}
    for index, (frame, length) in enumerate(frames):
        if frame.content is None:
            values[index] = zstd(frame.data, length, dictionaries.get(frame.dictionary))
        else:
            together.setdefault(frame.dictionary, []).append(index)
    for ident, indexes in together.items():
        source = b"".join(frames[index][0].data for index in indexes)
        length = sum(frames[index][1] for index in indexes)
        out, at = zstd(source, length, dictionaries.get(ident)), 0
        for index in indexes:
            values[index] = out[at : at + frames[index][1]]
            at += frames[index][1]
    return values
