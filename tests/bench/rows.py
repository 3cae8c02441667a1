"""Rows of the table: what is done on each peer, and what ratio is to be reached."""
import dataclasses
import fnmatch
import statistics


@dataclasses.dataclass
class Target:
    """@metric (a pattern) is at most @most times @beside's; without @beside at most @most of its own unit."""
    metric: str
    most: float
    beside: str | None = None
    idle: bool = False  # promised for a machine with nothing else to do


@dataclasses.dataclass
class Row:
    """@run(bench, peer) -> {metric: figure}; less is better. Without @peers, @run(bench) gives {metric: {peer: figure}}."""
    name: str
    what: str
    run: object
    peers: tuple = ("native", "overlayfs", "fuse-overlayfs", "rattan")
    targets: tuple = ()
    unit: object = "s"   # of all, or {pattern: unit}
    once: bool = False   # too long to be repeated
    lower: object = None  # lower(bench): a directory that the peers show
    root: bool = False   # needs root: what is cold, other file systems


def spread(values):
    """Half of what lies between the first and the last quarter, beside the median."""
    if len(values) < 2:
        return 0.0
    q = statistics.quantiles(values, n=4)
    return (q[2] - q[0]) / 2 / (statistics.median(values) or 1)


def verdicts(row, figures):
    """figures: {metric: {peer: [value of each round]}} -> what each target came to."""
    out = []
    for t in row.targets:
        for metric, by in figures.items():
            if not fnmatch.fnmatchcase(metric, t.metric) or not by.get("rattan"):
                continue
            ours = statistics.median(by["rattan"])
            if t.beside:
                if not by.get(t.beside):
                    continue
                theirs = statistics.median(by[t.beside])
                got = ours / theirs if theirs else (1.0 if not ours else float("inf"))
            else:
                got = ours
            out.append({"row": row.name, "metric": metric, "beside": t.beside, "most": t.most, "got": got, "idle": t.idle,
                        "met": got <= t.most})
    return out


def unit_of(row, metric):
    if isinstance(row.unit, str):
        return row.unit
    return next((u for p, u in row.unit.items() if fnmatch.fnmatchcase(metric, p)), "s")


def figure(value, unit):
    if unit == "s":
        return f"{value * 1e6:.1f} us" if value < 1e-3 else f"{value * 1e3:.2f} ms" if value < 1 else f"{value:.2f} s"
    if unit == "B":
        return f"{value / 1e6:.2f} MB"
    return f"{value:.2f}"


def print_row(row, figures, kinds):
    if not figures:
        return
    print(f"\n{row.name}: {row.what}")
    have = [k for k in kinds if any(k in by for by in figures.values())]
    print(f"  {'':30}" + "".join(f"{k:>20}" for k in have) + "   rattan / each")
    for metric, by in figures.items():
        m = {k: statistics.median(by[k]) for k in have if by.get(k)}
        cells = "".join(f"{figure(m[k], unit_of(row, metric)):>13} ±{spread(by[k]) * 100:4.0f}%" if k in m else f"{'-':>20}" for k in have)
        rel = " ".join(f"{m['rattan'] / m[k]:.2f}" if m.get(k) else "-" for k in have if k != "rattan") if "rattan" in m else ""
        print(f"  {metric:30}{cells}   {rel}")


def print_verdicts(all_of):
    print("\ntarget" + " " * 38 + f"{'beside':>16} {'at most':>9} {'is':>9}")
    for v in all_of:
        note = "met" if v["met"] else "missed" + (" (promised for an idle machine)" if v["idle"] else "")
        print(f"{v['row'] + ' ' + v['metric']:44}{v['beside'] or '-':>16} {v['most']:9.3g} {v['got']:9.3g} {note}")
    met = sum(v["met"] for v in all_of)
    print(f"{met} of {len(all_of)} targets met")
