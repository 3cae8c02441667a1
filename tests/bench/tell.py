#!/usr/bin/python3
"""The table of docs/performance.md from the JSON of bench.py: of several files, each row from the last one that has it.

    tests/bench/tell.py [--into docs/performance.md] bench.json [later.json]...

With --into the table takes the place of the one between the lines BEGIN and END there.
"""
import argparse
import json
import pathlib
import statistics
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]
import rows  # noqa: E402

BEGIN, END = "<!-- tests/bench/tell.py: begin -->", "<!-- tests/bench/tell.py: end -->"

# A row beside bwrap has no other peer: it is told in the column of native.
COLUMNS = (("native", ("native", "bwrap")), ("overlayfs", ("overlayfs",)), ("fuse-overlayfs", ("fuse-overlayfs",)), ("ceiling", ("ceiling",)),
           ("rattan", ("rattan",)), ("core", ("core",)), ("core-writeback", ("core-writeback",)))


def figure(value, unit):
    """Three digits, as one reads them aloud."""
    if unit == "s":
        for scale, name in ((1e6, "µs"), (1e3, "ms")):
            if value * scale < 1000:
                return f"{value * scale:.3g} {name}"
        return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"
    if unit == "B":
        return f"{value / 1e6:.2f} MB"
    return f"{value:.3g}"


def ratio(v):
    return f"{v['got']:.2f}" if v["met"] else f"**{v['got']:.2f}**"


def told(verdict, unit):
    """What is promised, and what it is: beside another, or in the row's own unit."""
    if verdict["beside"]:
        return f"{verdict['most']:.3g} × {verdict['beside']}", ratio(verdict)
    is_ = figure(verdict["got"], unit)
    return f"at most {figure(verdict['most'], unit)}", is_ if verdict["met"] else f"**{is_}**"


def columns(out):
    """Those that any row has something for."""
    have = {k for r in out["rows"].values() for by in r["figures"].values() for k in by}
    return [c for c in COLUMNS if have.intersection(c[1])]


def line(name, metric, by, unit, verdicts, told_columns):
    cells = []
    for _, kinds in told_columns:
        got = next((by[k] for k in kinds if by.get(k)), None)
        cells.append(figure(statistics.median(got), unit) if got else "-")
    pairs = [told(v, unit) for v in verdicts]
    return (f"| {name} | {metric} | " + " | ".join(cells) + f" | {', '.join(p[0] for p in pairs) or '-'} | "
            f"{', '.join(p[1] for p in pairs) or '-'} |")


class Told:
    """A row as it lies in JSON, for rows.unit_of."""

    def __init__(self, unit):
        self.unit = unit


def head(out):
    rounds = sorted({r["rounds"] for r in out["rows"].values()})
    loads = [x for r in out["rows"].values() for x in r["load"]]
    span = f"{rounds[0]}" if rounds[0] == rounds[-1] else f"{rounds[0]} to {rounds[-1]}"
    text = (f"Linux {out['kernel']}, {out['cpus']} CPUs, load {min(loads):.1f} to {max(loads):.1f} when the rows began (their own work included), "
            f"{span} round{'s' * (rounds[-1] > 1)}{', a tenth of the work' if out['quick'] else ''}; "
            f"{sum(v['met'] for v in out['verdicts'])} of {len(out['verdicts'])} targets met.")
    return text + "".join(f"\nLeft out: {what}: {why}." for what, why in out["left_out"])


def table(out):
    """Markdown of one report."""
    shown = columns(out)
    lines = [head(out), "", "| row | | " + " | ".join(c for c, _ in shown) + " | target | is |", "| --- " * (len(shown) + 4) + "|"]
    for name, row in out["rows"].items():
        first = f"`{name}`"
        for metric, by in row["figures"].items():
            mine = [v for v in out["verdicts"] if v["row"] == name and v["metric"] == metric]
            lines.append(line(first, metric, by, rows.unit_of(Told(row["unit"]), metric), mine, shown))
            first = ""
    return "\n".join(lines) + "\n"


def joined(reports):
    out = reports[0]
    for r in reports[1:]:
        out["rows"].update(r["rows"])
        out["verdicts"] = [v for v in out["verdicts"] if v["row"] not in r["rows"]] + r["verdicts"]
        out["left_out"] = [x for x in out["left_out"] if x[0] not in r["rows"]] + r["left_out"]
    return out


def put_into(path, text):
    path = pathlib.Path(path)
    before, rest = path.read_text().split(BEGIN + "\n")
    path.write_text(before + BEGIN + "\n" + text + END + "\n" + rest.split(END + "\n")[1])


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--into", metavar="FILE")
    a.add_argument("json", nargs="+")
    o = a.parse_args()
    text = table(joined([json.loads(pathlib.Path(p).read_text()) for p in o.json]))
    if o.into:
        put_into(o.into, text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
