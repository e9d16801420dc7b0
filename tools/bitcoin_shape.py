#!/usr/bin/env python3
"""Writes the shape of real Bitcoin blocks: who spends what, and what is made. `crates/rubin/tests/shapes.rs` makes RUBIN blocks
of the same shape. No bytes of the blocks are kept.

The blocks are in packages of crates.io, which `cargo fetch` unpacks below ~/.cargo/registry/src:

    tools/bitcoin_shape.py .../bitcoinkernel-0.3.2/tests/block_data.txt > vectors/rubin/regtest-shape.json
    tools/bitcoin_shape.py .../bitcoin-test-data-0.2.0/test_data/mainnet_block_702861.raw > vectors/rubin/block-702861-shape.json

A file that ends in .txt has a block in hex on every line, any other is one block.

A transaction is a text: inputs, a bar, outputs. Inputs are `12:0`, output 0 of transaction 12 of the file, or a number: so
many that spend what is not in the file. A coinbase has none. Outputs are a value and a letter: k for a key or its hash, s for
a script's hash, w for that of a witness script, o for others; `a38` is an output that nobody can spend, of 38 bytes.
"""

import hashlib
import json
import sys

ABOUT = "Who spends what in real Bitcoin blocks, made by tools/bitcoin_shape.py, which says how to read it."


def double_sha256(data):
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data), "the block is cut off"
        return self.data[self.at - count:self.at]

    def number(self, size):
        return int.from_bytes(self.take(size), "little")

    def compact(self):
        first = self.number(1)
        return first if first < 253 else self.number({253: 2, 254: 4, 255: 8}[first])

    def transaction(self):
        """Txid, outpoints it spends, values and scripts it makes."""
        version = self.take(4)
        has_witness = self.data[self.at] == 0
        if has_witness:
            self.take(2)
        start = self.at
        inputs = []
        for _ in range(self.compact()):
            inputs.append((self.take(32), self.number(4)))
            self.take(self.compact() + 4)
        outputs = [(self.number(8), self.take(self.compact())) for _ in range(self.compact())]
        body = self.data[start:self.at]
        for _ in inputs if has_witness else []:
            for _ in range(self.compact()):
                self.take(self.compact())
        return double_sha256(version + body + self.take(4)), inputs, outputs

    def block(self):
        header = self.take(80)
        transactions = [self.transaction() for _ in range(self.compact())]
        assert self.at == len(self.data), "something is left over"
        return header, transactions


def output(value, script):
    if script[:1] == b"\x6a":
        assert value == 0, "an output that cannot be spent has a value"
        return f"a{len(script)}"
    if len(script) == 34 and script[:2] == b"\x00\x20":
        kind = "w"
    elif len(script) == 23 and script[:2] == b"\xa9\x14":
        kind = "s"
    elif (len(script), script[:1]) in [(22, b"\x00"), (25, b"\x76"), (34, b"\x51"), (35, b"\x21"), (67, b"\x41")]:
        kind = "k"
    else:
        kind = "o"
    return f"{value}{kind}"


def inputs(spent, known):
    texts = []
    for outpoint in spent:
        if outpoint in known:
            texts.append("%d:%d" % known[outpoint])
        elif texts and ":" not in texts[-1]:
            texts[-1] = str(int(texts[-1]) + 1)
        else:
            texts.append("1")
    return texts


def shape(blocks):
    known, shapes, count, before = {}, [], 0, None
    for data in blocks:
        header, transactions = Reader(data).block()
        assert before in (None, header[4:36]), "the blocks are not linked"
        before = double_sha256(header)
        texts = []
        for place, (txid, spent, made) in enumerate(transactions):
            sources = inputs(spent, known) if place else []
            texts.append(" ".join(sources) + "|" + " ".join(output(*one) for one in made))
            known.update({(txid, vout): (count, vout) for vout in range(len(made))})
            count += 1
        shapes.append((int.from_bytes(header[68:72], "little"), texts))
    return shapes


def main():
    path = sys.argv[1]
    with open(path, "rb") as file:
        data = file.read()
    blocks = [bytes.fromhex(line) for line in data.decode().split()] if path.endswith(".txt") else [data]
    rows = []
    for time, texts in shape(blocks):
        # A block with one transaction on one line, others with a line for each.
        lines = json.dumps(texts) if len(texts) == 1 else "[\n" + ",\n".join(map(json.dumps, texts)) + "]"
        rows.append(f'{{"time": {time}, "transactions": {lines}}}')
    print(f'{{"_about": {json.dumps(ABOUT)},\n"blocks": [\n' + ",\n".join(rows) + "\n]}")


if __name__ == "__main__":
    main()
