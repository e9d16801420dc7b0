#!/usr/bin/env python3
"""Runs everything that tries to break the stores, counts what was tried, and writes the counts into docs/reliability.md and the planted bugs
into docs/testing.md.

    tools/reliability.py                a minute for each part that has no end of its own
    tools/reliability.py --minutes 60   an hour for each
    tools/reliability.py --only fuzz    one part; the others keep their numbers

It stops at the first thing that is found, and fails if something was not tried at all. Power cuts and full file systems need root.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- numbers -->", "<!-- /numbers -->"
TESTING = ROOT / "docs" / "testing.md"
MENDED = "## What was found by it, and mended"
# What others than root cannot do.
ROOT_ONLY = {
    "power cuts under a bucket, on ext4 and XFS",
    "power cuts under ledger programs",
    "times that a file system ran full",
}


def test(*names):
    """A command that runs the test files of these names of all crates, with all they print. Built as `test.sh` builds them."""
    command = ["cargo", "test", "--locked", "--workspace", "--all-features"]
    for name in names:
        command += ["--test", name]
    return command + ["--", "--nocapture"]


def total(pattern):
    """Adds up the numbers that a pattern finds."""
    return lambda text: sum(int(found) for found in re.findall(pattern, text, re.M))


def sim_count(what):
    """Adds up one word of the simulator's tallies."""
    return total(rf"(\d+) {what}(?=,|$)")


def fuzz_rows(text):
    return [line.split() for line in text.splitlines() if re.match(r"^[a-z_]+ +\d+ +\d+ +\d+", line)]


def planted_rows(text):
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| bug |")]


def parts(minutes):
    """Name of a part: its runs, each a command with its environment, and its counts."""
    seconds = str(int(minutes * 60))
    cuts = {"KVB_POWER_CUTS": str(max(8, int(minutes * 25)))}
    faults = {"KVB_FAULTS": str(max(24, int(minutes * 60)))}
    kills = {"KVB_KILLS": str(max(12, int(minutes * 100)))}
    rounds = {"KVB_ROUNDS": str(max(1, int(minutes)))}
    watched = {"KVB_READER_SECONDS": str(max(120, int(minutes * 60)))}
    return {
        "images": (
            "crash images on the simulated disk",
            [(test("crash", "death", "known_bugs"), rounds)],
            [
                ("images after power loss of a bucket", total(r"crash images checked: (\d+)")),
                ("images of recoveries from a dead writer", total(r"(\d+) images of recoveries")),
                ("images of ledgers", total(r"^(?:test \S+ \.\.\. )?(\d+) images(?:,|:|$)")),
            ],
        ),
        "faults": (
            "every Nth call fails",
            [(test("faults", "engines", "sweeps"), {})],
            [
                ("calls of a bucket's disk that failed, once or from then on", total(r"(\d+) calls of a bucket failed")),
                ("calls of the disk under a ledger that failed", total(r"(\d+) calls failed")),
                ("recoveries of ledgers that were cut off", total(r"(\d+) recoveries cut off$")),
            ],
        ),
        "simulator": (
            "seeds of the simulator",
            [(["cargo", "run", "--locked", "--release", "-q", "-p", "kvb-sim", "--", "run", "--seconds", seconds], {})],
            [
                ("seeds", total(r"(\d+) seeds")),
                ("commits, blocks and checkpoints", total(r"(\d+) (?:commits|deeds)[,:]")),
                ("power losses", sim_count("power losses")),
                ("kills", sim_count("kills")),
                ("calls of a disk that failed", sim_count("calls that failed")),
                ("reads that failed", sim_count("reads that failed")),
                ("syncs that failed, and whose data was lost", sim_count("syncs that failed")),
                ("calls that found no room, once or from then on", sim_count("calls that found no room")),
                ("refusals by a full disk", sim_count("full disks")),
                ("calls for a manifest that failed", sim_count("calls of files that failed")),
                ("recoveries", sim_count("recoveries")),
                ("recoveries cut off", sim_count("recoveries cut off")),
                ("flipped bits", sim_count("flipped bits")),
                ("jumps of the clock", sim_count("jumps of the clock")),
                ("second openers", sim_count("second openers")),
                ("snapshots held, and backups of them", lambda text: sim_count("snapshots")(text) + sim_count("backups")(text)),
            ],
        ),
        "planted": (
            "planted bugs",
            [(["cargo", "run", "--locked", "--release", "-q", "-p", "kvb-sim", "--features", "planted", "--", "planted", "--table"], {})],
            [("planted", lambda text: len(planted_rows(text))), ("found", lambda text: sum("| 0x" in row for row in planted_rows(text)))],
        ),
        "processes": (
            "real processes",
            [
                (test("kill", "trouble"), {**cuts, **faults, **kills}),
                (test("csmt_processes", "misaka_processes", "misaka_indexer", "readers"), {**cuts, **kills, **watched}),
            ],
            [
                ("processes killed in the middle of their work", total(r"killed (\d+) times")),
                ("looks of readers in other processes", total(r"readers: \d+ processes, (\d+) looks")),
                ("scans of readers in other processes", total(r"readers: \d+ processes, \d+ looks, (\d+) scans")),
                ("power cuts under a bucket, on ext4 and XFS", total(r": (\d+) power cuts")),
                ("power cuts under ledger programs", total(r"lost power (\d+) times")),
                ("times that a file system ran full", total(r"ran out of room (\d+) times")),
                ("runs with a failing system call", total(r"\d+ of (\d+) runs failed")),
                ("of which ended with an error", total(r"(\d+) of \d+ runs failed")),
            ],
        ),
        "hostile": (
            "hostile files",
            [(test("hostile", "rot", "damage"), {})],
            [("files with numbers at the edges under right checksums", total(r"(\d+) files"))],
        ),
        "fuzz": (
            "fuzzing",
            [(["fuzz/run.sh", seconds], {})],
            [
                ("targets", lambda text: len(fuzz_rows(text))),
                ("executions", lambda text: sum(int(row[1]) for row in fuzz_rows(text))),
                ("inputs in the corpus", lambda text: sum(int(row[5]) for row in fuzz_rows(text))),
            ],
        ),
    }


def run(command, extra):
    print("$", *(f"{name}={value}" for name, value in extra.items()), *command, flush=True)
    begin = time.monotonic()
    ran = subprocess.run(command, cwd=ROOT, env={**os.environ, **extra}, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, errors="replace")
    took = time.monotonic() - begin
    if ran.returncode != 0:
        print(ran.stdout[-6000:])
        sys.exit(f"something was found: {' '.join(command)}")
    print(f"  {took:.0f} s", flush=True)
    return ran.stdout, took


def table(rows):
    widths = "| part | what | count | seconds |\n|---|---|---:|---:|\n"
    return widths + "".join(f"| {part} | {what} | {count:,} | {took} |\n" for part, what, count, took in rows)


def between(text, begin, end, new):
    """The text with something else between two marks."""
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{new}\n\n{end}{after}"


def write_planted(output):
    """Puts the table of planted bugs into the page about tests."""
    rows = "\n".join(["| bug | system | seed | what is noticed |", "|---|---|---|---|", *planted_rows(output)])
    TESTING.write_text(between(TESTING.read_text(), "<!-- planted -->", "<!-- /planted -->", rows))


def total_line(sections, page):
    """What all parts took, and what came of it."""
    took = [re.search(r"^\| .* \| (\d+) \|$", section, re.M) for section in sections.values()]
    minutes = round(sum(int(found[1]) for found in took if found) / 60)
    mended = page.split(MENDED)[1].split("\n## ")[0]
    rows = len(re.findall(r"^\| (?!what was wrong )", mended, re.M))
    time = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    return f"All parts together: {time}. What was found and mended since the beginning: {rows}, listed below."


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=1)
    arguments.add_argument("--only")
    chosen = arguments.parse_args()
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    found = re.findall(r"<!-- (\w+) -->\n(.*?)\n(?=<!--|$)", old + "\n", re.S)
    sections = {name: section.rstrip() for name, section in found}
    all_parts = parts(chosen.minutes)
    if chosen.only and chosen.only not in all_parts:
        sys.exit(f"there is no such part; these there are: {', '.join(all_parts)}")
    missing = []
    for name, (title, runs, counts) in all_parts.items():
        if chosen.only and name != chosen.only:
            continue
        outputs = [run(command, extra) for command, extra in runs]
        output = "\n".join(said for said, _ in outputs)
        took = round(sum(seconds for _, seconds in outputs))
        rows = [(title, what, count(output), took) for what, count in counts]
        is_needed = lambda what: os.geteuid() == 0 or what not in ROOT_ONLY
        missing += [f"{name}: {what}" for _, what, number, _ in rows if number == 0 and is_needed(what)]
        section = table(rows)
        if name == "planted":
            write_planted(output)
        if name == "fuzz":
            section += "\n| target | executions | edges reached | of | a second |\n|---|---:|---:|---:|---:|\n"
            section += "".join(
                f"| {row[0]} | {int(row[1]):,} | {int(row[2]):,} | {int(row[3]):,} | {int(row[4]):,} |\n"
                for row in fuzz_rows(output)
            )
        sections[name] = section.rstrip()
        body = "".join(f"<!-- {name} -->\n{sections[name]}\n\n" for name in all_parts if name in sections)
        PAGE.write_text(f"{before}{BEGIN}\n\n{total_line(sections, after)}\n\n{body}{END}{after}")
    if missing:
        sys.exit("not tried at all: " + "; ".join(missing))


main()
