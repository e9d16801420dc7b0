"""Runs the model of the store: a command a line in, what it came to a line out.

    {"new": {"path": "raw" | "address", "k": 3}}
    {"forward": [slot, hash, [["insert", key, value], ["delete", key], ...]]}
    {"rollback": [slot, hash] | null}
    {"dump": true}      rows of kv, csmt and rollbacks
    {"prove": path}     proofs that it is there, in all forms, or that it is not
    {"complete": path}  the leaves below a prefix, and the proof
"""
import json
import sys

import csmt_ref as m


class Store(m.Store):
    """The model, with the reading that an overwrite is taken back with the old value and the old leaf goes."""

    def forward(self, slot, bh, ops):
        inverse = []
        for op in ops:
            old = self.kv.get(op[1])
            if op[0] == "ins":
                inverse.append(("del", op[1]) if old is None else ("ins", op[1], old))
            else:
                inverse.append(("ins", op[1], old))
            self._apply(op)
        self._put_point((slot, bh), bh, inverse[::-1], self.tree.root())
        while len(self.points) > self.k + 1:
            del self.points[min(self.points)]

    def _apply(self, op):
        old = self.kv.get(op[1])
        if op[0] == "ins" and old is not None:
            self.tree.delete(m.tree_key(op[1], old, self.prefix))
        super()._apply(op)


def root(store):
    value = store.tree.root()
    return None if value is None else value.hex()


def prove(tree, path):
    proof = tree.prove(path)
    if proof is not None:
        return {"v4": m.proof_v4(proof).hex(), "v5": m.proof_v5(proof, tree.root()).hex(),
                "compact": m.proof_compact(proof).hex(), "plutus": m.proof_plutus(proof).hex()}
    absent = tree.prove_absent(path)
    return None if absent is None else {"absent": m.exclusion_cbor(absent).hex()}


def complete(tree, prefix):
    leaves = [[p, v.hex()] for p, v in tree.leaves() if p.startswith(prefix)]
    proof = tree.prove_complete(prefix)
    return {"leaves": leaves, "proof": None if proof is None else m.completeness_cbor(proof).hex()}


def main():
    store = None
    for line in sys.stdin:
        command = json.loads(line)
        if "new" in command:
            prefix = m.address_prefix if command["new"]["path"] == "address" else m.no_prefix
            store = Store(prefix, command["new"]["k"])
            answer = None
        elif "forward" in command:
            slot, block, ops = command["forward"]
            ops = [("ins" if op[0] == "insert" else "del", *(bytes.fromhex(part) for part in op[1:])) for op in ops]
            store.forward(slot, bytes.fromhex(block), ops)
            answer = root(store)
        elif "rollback" in command:
            to = command["rollback"]
            to = m.SENTINEL if to is None else (to[0], bytes.fromhex(to[1]))
            answer = {"blocks": store.rollback(to), "root": root(store)}
        elif "prove" in command:
            answer = prove(store.tree, command["prove"])
        elif "complete" in command:
            answer = complete(store.tree, command["complete"])
        else:
            answer = store.dump()
        print(json.dumps(answer), flush=True)


main()
