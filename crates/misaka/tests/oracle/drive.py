"""Runs the model of the stores: a command a line in, what it came to a line out.

    {"new": {"window": 6, "retention": 4}}
    {"apply": {"seq": 1, "version": 1, "writes": [hex], "params": [[name, hex]], "events": [[tx, number, hex]],
               "digests": [hex], "header": {...}}}
                     gives the header's bytes, with both roots
    {"dump": true}   gives all pairs of each store, in the order of their keys
    {"snapshot": 2}  gives the header of a snapshot with a root of that version, and the fingerprint of its entries
"""
import json
import sys

import misaka_ref as m

PREFIXES = [b"obj/", b"ver/", b"ckpt/", b"evt/", b"sys/params/"]


class Store(m.Store):
    """The model, with the chain of headers."""

    def __init__(self, window, retention):
        super().__init__(window, retention)
        self.digest, self.header, self.tree = b"\x00" * 32, None, m.Jmt()

    def apply(self, c):
        seq = c["seq"]
        for text in c["writes"]:
            o = m.dec_object(bytes.fromhex(text))
            old = self.kv.get(m.k_obj(o["id"]))
            if old is not None:
                self.tree.rm(m.k_ver(o["id"], m.dec_object(old)["version"]))
            self.write(o, seq)
            for key in (m.k_obj(o["id"]), m.k_ver(o["id"], o["version"])):
                self.tree.put(key, self.kv[key])
        for name, value in c["params"]:
            self.kv[m.k_sys(name)] = bytes.fromhex(value)
            self.tree.put(m.k_sys(name), bytes.fromhex(value))
        for tx, number, value in c["events"]:
            self.kv[m.k_evt(seq, tx, number)] = bytes.fromhex(value)
        one, two = m.root_v1(self.state()), m.root_v2(self.state())
        assert two == self.tree.hash(), "the two models of v2 do not agree"
        digests = [bytes.fromhex(d) for d in c["digests"]]
        h = dict(c["header"], fmt=1, ord=1, exe=1, seq=seq, prev=self.digest, tx_count=len(digests),
                 tx_root=m.merkle(list(map(m.H, digests))), state_root=two if c["version"] == 2 else one,
                 vset=bytes.fromhex(c["header"]["vset"]))
        header = m.enc_header(h)
        self.kv[m.k_ckpt(seq)] = m.ckpt_value(header, digests)
        self.digest, self.header, self.tip = m.H(header), h, seq
        self.prune()
        return {"header": header.hex(), "v1": one.hex(), "v2": two.hex()}

    def dump(self):
        return [[[k.hex(), v.hex()] for k, v in sorted(self.by(p))] for p in PREFIXES]

    def snapshot(self, version):
        h = self.header
        pairs = self.by(b"obj/") + self.by(b"ver/") + self.by(b"sys/params/")
        head = m.snapshot_header(h["chain_id"], h["seq"], self.digest, h["state_root"], version, h["vset"])
        return {"header": head.hex(), "flat": m.flat(pairs).hex()}


def main():
    store = None
    for line in sys.stdin:
        command = json.loads(line)
        if "new" in command:
            store, answer = Store(command["new"]["window"], command["new"]["retention"]), None
        elif "apply" in command:
            answer = store.apply(command["apply"])
        elif "snapshot" in command:
            answer = store.snapshot(command["snapshot"])
        else:
            answer = store.dump()
        print(json.dumps(answer), flush=True)


main()
