#!/usr/bin/python3
"""The cases of managed profiles, of profiles.json: through the evaluator (--explain) and through real runs, unprivileged;
copy-on-write, and with --write-through, where what changed on the host must be what may be written.

    profiles.py [NUMBER...]          only these
    profiles.py inside [NUMBER...]   only those that need hosts, in a network of the test's own (nethosts.py)
"""
# timeout: 900
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import nethosts  # noqa: E402

RATTAN = os.environ["RATTAN"]
HERE = pathlib.Path(os.environ.get("PWD", "."))
SPEC = json.load(open(os.environ["RATTAN_SRC"] + "/tests/e2e/profiles.json"))
CONFIG = pathlib.Path(os.environ["XDG_CONFIG_HOME"]) / "rattan/config.json"
ACCESS = {"r": "read", "w": "write", "d": "deny"}
KINDS = {"root": "root", "min": "minimal", "proj": "project_roots", "tmp": "slash_tmp", "stmp": "tmpdir", "moon": "moon"}
INSIDE = sys.argv[1:2] == ["inside"]
ENV = "hosts" if INSIDE else "cases"  # a daemon for each: they live in different namespaces
MODES = {"copy": ["-e", ENV], "through": ["-e", ENV + "-through", "--write-through"]}
TMP = {"copy": "/tmp/rattan-session", "through": f"/tmp/rattan-tmp-{os.getuid()}-{ENV}-through"}
bad = count = 0


def check(ok, what, note=""):
    global bad, count
    count += 1
    print(f"{'ok' if ok else 'not ok'} {count} - {what}", flush=True)
    if not ok:
        bad += 1
        print("#", str(note)[:400].replace("\n", "\n# "), flush=True)


def fill(x, top):
    if isinstance(x, str):
        return x.replace("@", str(top))
    if isinstance(x, list):
        return [fill(y, top) for y in x]
    if isinstance(x, dict):
        return {k: fill(v, top) for k, v in x.items()}
    return x


def flat(entries):
    for e in entries:
        yield from flat(SPEC["profiles"][e]) if e in SPEC["profiles"] else [e]


def entry(e):
    access, what = ACCESS[e[0]], e[2:]
    if what.startswith("g:"):
        path = {"type": "glob_pattern", "pattern": what[2:]}
    elif what in KINDS:
        path = {"type": "special", "value": {"kind": KINDS[what]}}
    elif what.startswith("proj/"):
        path = {"type": "special", "value": {"kind": "project_roots", "subpath": what[5:]}}
    else:
        path = {"type": "path", "path": what}
    return {"access": access, "path": path}


def document(c, top):
    if "profile" in c:
        return fill(c["profile"], top)
    fs = {"type": "restricted", "entries": [entry(e) for e in fill(list(flat(c["entries"])), top)]}
    if "depth" in c:
        fs["glob_scan_max_depth"] = c["depth"]
    d = {"permissionProfile": {"type": "managed", "network": "enabled" if "net" in c else "restricted", "file_system": fs}, "sandboxCwd": fill(c.get("cwd", "@/w"), top)}
    if "landlock" in c:
        d["useLegacyLandlock"] = c["landlock"]
    return d


def make(tree, top):
    (top / "w").mkdir(parents=True)
    for t in tree:
        if "=>" in t:
            a, b = t.split("=>")
            os.link(top / b, top / a)
        elif "->" in t:
            a, b = t.split("->")
            (top / a).parent.mkdir(parents=True, exist_ok=True)
            os.symlink(fill(b, top), top / a)
        elif t.endswith("/"):
            (top / t).mkdir(parents=True, exist_ok=True)
        else:
            a, _, text = t.partition("=")
            (top / a).parent.mkdir(parents=True, exist_ok=True)
            (top / a).write_text(text + "\n")


def listing(top):
    out = []
    for d, dirs, files in os.walk(top):
        for n in sorted(dirs + files):
            p = os.path.join(d, n)
            s = os.lstat(p)
            text = os.readlink(p) if os.path.islink(p) else open(p).read() if os.path.isfile(p) and os.access(p, os.R_OK) else ""
            out.append((p, s.st_mode, s.st_ino, s.st_mtime_ns if not os.path.isdir(p) else 0, text))
    return sorted(out)


def run(c, steps, profile, top, mode):
    """All steps in one sandbox; a step of the host's is done when the sandbox asks for it."""
    script = ["exec 2>&1"]
    for i, (cmd, _) in enumerate(steps):
        if cmd.startswith("host: "):
            script.append(f"echo; echo '@@ {i} host'; read -r _ <&9")
        else:
            script.append(f"echo; echo '@@ {i}'; ( {fill(cmd, top)} ); echo \"@@ rc $?\"")
    p = subprocess.Popen([RATTAN, "run", "--profile", str(profile), *MODES[mode], *c.get("args", []), "--", "bash", "-c", "exec 9<&0 0</dev/null\n" + "\n".join(script)],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    seen, host, at = b"", [], None
    got = {}
    for line in p.stdout:
        seen += line
        text = line.decode(errors="replace").rstrip("\n")
        if text.startswith("@@ rc "):
            got[at][0] = int(text[6:])
            at = None
        elif text.startswith("@@ ") and text.endswith(" host"):
            cmd = steps[int(text.split()[1])][0][6:]
            subprocess.run(fill(cmd, top), shell=True, check=True)
            time.sleep(2.3)  # how late a change of the host may be seen
            p.stdin.write(b"\n")
            p.stdin.flush()
        elif text.startswith("@@ "):
            at = int(text[3:])
            got[at] = [None, ""]
        elif at is not None:
            got[at][1] += text + "\n"
    p.wait()
    for i, (cmd, want) in enumerate(steps):
        if cmd.startswith("host: "):
            continue
        rc, out = got.get(i, (None, seen.decode(errors="replace")))
        ok = rc is not None and (want == "ok" and rc == 0 or want == "no" and rc != 0 or want[0] == "=" and rc == 0 and fill(want[1:], top).replace("/tmp/rattan-session", TMP[mode]) in out)
        if c.get("never") and c["never"] in out:
            ok = False
        check(ok, f"{c['n']} {mode}: {cmd} -> {want}", f"rc {rc}: {out}")


def rules_of(c):
    """The settings' rules on domains: of a network that is there (net), or of one that is not (rules)."""
    r = c.get("net", c.get("rules", {}))
    return SPEC["nets"][r] if isinstance(r, str) else r


def verdict(profile, path):
    r = subprocess.run([RATTAN, "run", "--profile", str(profile), "--explain", "--", path], capture_output=True, text=True, errors="replace")
    return (r.stdout.split() or ["?"])[0]


def check_changed(c, profile, before, after):
    """What is different on the host may be written, or leads to such a place and had to be made."""
    paths = {e[0] for e in set(before) ^ set(after)}
    old = {e[0] for e in before}
    wrote = {p for p in paths if verdict(profile, p) == "write"}
    rest = {p for p in paths - wrote if p in old or not any(w.startswith(p + "/") for w in wrote)}
    # What is closed goes along with its directory, where it is as closed: the same file with the same bytes.
    here, there = ({e[1:]: e[0] for e in x if e[0] in rest} for x in (before, after))
    rest -= {p for k in here.keys() & there.keys() for p in (here[k], there[k]) if os.path.basename(here[k]) == os.path.basename(there[k])}
    check(not rest, f"{c['n']} through: on the host nothing else changed", rest)


def case(i, c, mode):
    top = HERE / f"{mode}{i}"
    make(c.get("tree", []), top)
    for m in c.get("mode", []):
        bits, path = m.split()
        os.chmod(top / path, int(bits, 8))
    CONFIG.parent.mkdir(parents=True, exist_ok=True)
    CONFIG.write_text(json.dumps({**c.get("config", {}), **rules_of(c), **({"runtime": c["runtime"]} if "runtime" in c else {})}))
    profile = HERE / f"{mode}{i}.json"
    profile.write_text(json.dumps(document(c, top)))
    before = listing(top)
    if "refused" in c:
        r = subprocess.run([RATTAN, "run", "--profile", str(profile), *MODES[mode], "--", "touch", "/tmp/ran"], capture_output=True, text=True)
        check(r.returncode not in (0, 1, 127) and c["refused"] in r.stderr, f"{c['n']} {mode}: refused: {c['refused']}", f"{r.returncode} {r.stderr}")
        return
    for v in c.get("say", []) if mode == "copy" else []:
        want, path = fill(v, top).split(" ", 1)
        r = subprocess.run([RATTAN, "run", "--profile", str(profile), "--explain", "--", path], capture_output=True, text=True)
        check(r.returncode == 0 and r.stdout.split()[:1] == [want], f"{c['n']}: {v}", r.stdout + r.stderr)
    if "run" in c:
        run(c, c["run"], profile, top, mode)
    if "again" in c:
        run(c, c["again"], profile, top, mode)
    if any(s[0].startswith("host: ") for s in c.get("run", [])):
        return
    if mode == "through":
        check_changed(c, profile, before, listing(top))
    else:
        check(listing(top) == before, f"{c['n']}: the host is as it was", set(listing(top)) ^ set(before))


def run_cases(only, hosts):
    for i, c in enumerate(SPEC["cases"]):
        if bool(c.get("hosts")) == hosts and (not only or c["n"] in only):
            for mode in MODES:
                case(i, c, mode)


def main():
    only = [int(a) for a in sys.argv[1 + INSIDE:]]
    if INSIDE:
        nethosts.enter(*(["inside", *sys.argv[2:]]))
        with nethosts.Servers():
            run_cases(only, True)
        sys.exit(bad > 0)
    named = {c["n"] for c in SPEC["cases"]} | {int(n) for k in ("elsewhere", "missing") for n in SPEC[k]}
    check(named == set(range(1, 153)), "every case is here, elsewhere with its place, or missing with the reason", sorted(set(range(1, 153)) - named))
    run_cases(only, False)
    if any(c.get("hosts") and (not only or c["n"] in only) for c in SPEC["cases"]):
        r = subprocess.run([sys.executable, os.path.abspath(__file__), "inside", *map(str, only)], capture_output=True, text=True)
        print("# in a network of the test's own\n" + r.stdout, end="")
        check(r.returncode == 0 and "\nok " in "\n" + r.stdout, "the cases that need hosts", r.stdout[-300:] + r.stderr)
    for kind in ("partly", "missing"):
        for n, why in SPEC[kind].items():
            print(f"# {n} {kind}: {why}")
    print(f"1..{count}")
    sys.exit(bad > 0)


main()
