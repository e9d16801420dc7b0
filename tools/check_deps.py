#!/usr/bin/env python3
"""Holds the dependencies of all workspaces to deny.toml: licences, crates that are not wanted, sources.

It needs nothing but cargo and Python 3.11, so that a build need not compile cargo-deny first.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
TOKEN = re.compile(r"\(|\)|AND\b|OR\b|/|[A-Za-z0-9.+-]+(?: WITH [A-Za-z0-9.-]+)?")


def is_allowed(expression, allowed):
    """Evaluates an SPDX expression, in which older crates write / for OR."""
    tokens = TOKEN.findall(expression)
    at = 0

    def term():
        nonlocal at
        token = tokens[at]
        at += 1
        if token == "(":
            value = either()
            at += 1
            return value
        return token in allowed

    def both():
        nonlocal at
        value = term()
        while at < len(tokens) and tokens[at] == "AND":
            at += 1
            value = term() and value
        return value

    def either():
        nonlocal at
        value = both()
        while at < len(tokens) and tokens[at] in ("OR", "/"):
            at += 1
            value = both() or value
        return value

    return either()


def check(workspace, rules):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features"]
    packages = json.loads(subprocess.check_output(command, cwd=workspace))["packages"]
    denied = [rule["name"] for rule in rules["bans"]["deny"]]
    wrong = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if not package["license"] or not is_allowed(package["license"], rules["licenses"]["allow"]):
            wrong.append(f"{name}: the licence {package['license']} is not in deny.toml")
        if package["source"] not in (None, CRATES_IO):
            wrong.append(f"{name}: comes from {package['source']}")
        if package["name"] in denied:
            wrong.append(f"{name}: deny.toml does not want it")
        if package["source"] is None:
            for need in package["dependencies"]:
                if need["req"] == "*" and need["source"] is not None:
                    wrong.append(f"{name}: takes any version of {need['name']}")
    print(f"{workspace.name}: {len(packages)} packages, {len(wrong)} wrong")
    return wrong


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    assert is_allowed("(MIT OR GPL-2.0) AND Zlib", ["MIT", "Zlib"])
    assert not is_allowed("(MIT OR Zlib) AND GPL-2.0", ["MIT", "Zlib"])
    wrong = [line for name in ("", "bench", "fuzz") for line in check(ROOT / name, rules)]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


sys.exit(main())
