"""Structures of the format by their field names, for readers.

The layouts are those of vectors.py, and the two that only sealed buckets have.
"""

import struct
from collections import namedtuple

from reader import Damaged, crc32c
from vectors import LAYOUTS, layout_of

ALL = dict(
    LAYOUTS,
    KeyBlock="""magic 4, length 2, key_no 2, key_id 8, key_check [16], old_key_no 2, image_key_no 2,
        table_key_no 2, book_key_no 2, old_key_id 8, old_key_check [16], session_salt [16],
        mac [16], crc32c 4""",
    BookHead="magic 4, count 4, file_uuid_hi 8, file_uuid_lo 8, length 8, nonce [24]",
)
LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}


def compiled(structure):
    parts = list(layout_of(ALL[structure]))
    letters = "".join(f"{size}s" if is_bytes else LETTERS[size] for _, size, is_bytes in parts)
    return struct.Struct("<" + letters), namedtuple(structure, [name for name, _, _ in parts])


COMPILED = {structure: compiled(structure) for structure in ALL}


def size_of(structure):
    return COMPILED[structure][0].size


def unpack(structure, data, at=0):
    """The fields of a structure that must be there whole."""
    form, kind = COMPILED[structure]
    if at + form.size > len(data):
        raise Damaged(f"{structure} at byte {at} is cut off")
    return kind(*form.unpack_from(data, at))


def unpack_all(structure, data):
    form, kind = COMPILED[structure]
    if len(data) % form.size:
        raise Damaged(f"{len(data)} bytes are no whole number of {structure}")
    return [kind(*fields) for fields in form.iter_unpack(data)]


def ends_with_crc(data):
    """Whether the last four bytes are the CRC-32C of all before."""
    return len(data) >= 4 and crc32c(data[:-4]) == int.from_bytes(data[-4:], "little")


def expect(is_right, message):
    """Says what does not hold."""
    if not is_right:
        raise Damaged(message)
