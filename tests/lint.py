#!/usr/bin/python3
"""Checks that the tree keeps its own rules: who may include whom (docs/architecture.md), headers that compile alone,
no mutable globals, no banned calls, no path in the docs that does not exist. Prints TAP.

    tests/lint.py SOURCE_DIR [BUILD_DIR]
"""
import os
import pathlib
import re
import subprocess
import sys

SRC = pathlib.Path(sys.argv[1])
BUILD = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None

# folder or file prefix -> what it may include, longest prefix of the including file wins
LAYERS = {
    "base/": ["base/"],
    "store/": ["base/", "store/"],
    "policy/": ["base/", "policy/"],
    "net/": ["base/", "net/"],
    "fs/core/": ["base/", "store/", "policy/", "fs/core/"],
    "fs/through/": ["base/", "policy/", "fs/core/ovl.h", "fs/core/table.h", "fs/fuse/tree.h", "fs/through/"],
    "fs/fuse/": ["stage3/root_abi.h", "base/", "store/record.h", "store/store.h", "fs/core/ovl.h", "fs/fuse/"],
    "fs/image/": ["base/", "store/", "fs/core/ovl.h", "fs/core/diff.h", "fs/image/"],
    # The client's side: no store, no core, nothing of the server.
    "fs/ctl/ctl_": ["base/", "fs/ctl/ctl_msg.h", "fs/ctl/ctl_client.h", "fs/ctl/ctl_internal.h", "fs/ctl/ctl_place.h",
                    "fs/ctl/ctl_io.h"],
    "fs/ctl/ctl_ops": ["base/", "store/", "policy/", "fs/"],
    "fs/ctl/ctl_server": ["base/", "store/", "fs/"],
    "fs/": ["base/", "store/", "policy/", "fs/"],
    "stage3/": ["stage3/"],
    "runner/": ["base/", "net/rules.h", "net/msg.h", "runner/", "stage3/stage3_abi.h"],
    "profile/": ["base/", "policy/", "net/rules.h", "profile/"],
    "client/": ["base/", "policy/rules.h", "client/", "runner/", "fs/ctl/ctl_client.h"],
    "apply/": ["base/", "policy/", "apply/"],
    "mcp/": ["base/", "net/rules.h", "client/", "runner/runner.h", "fs/ctl/ctl_client.h", "profile/", "policy/", "mcp/"],
    "cli/": ["base/", "net/rules.h", "client/", "runner/", "fs/ctl/ctl_client.h", "mcp/serve.h", "policy/", "profile/", "apply/", "cli/"],
}
# library headers -> the only folders that may include them
PINNED = {"lmdb.h": ["store/"], "fuse3/": ["fs/fuse/"], "fuse_lowlevel.h": ["fs/fuse/"], "seccomp.h": ["runner/"],
          "cjson/": ["mcp/", "cli/", "profile/", "fs/image/"], "pcre2.h": ["mcp/"], "zstd.h": ["store/"], "openssl/": ["store/", "fs/core/", "cli/", "fs/ctl/"],
          "msgpack.h": ["base/"], "archive": ["fs/image/"]}
BANNED = r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|gmtime|localtime|alloca|system|popen|strerror|gets)\s*\("

n = failed = 0


def check(bad, what):
    global n, failed
    n += 1
    print(f"{'not ' if bad else ''}ok {n} - {what}")
    failed += bool(bad)
    for b in list(bad)[:30]:
        print("#", b)


def files(*globs):
    return [p for g in globs for d in ("base", "policy", "net", "store", "fs", "stage3", "runner", "client", "profile", "apply", "mcp", "cli")
            for p in sorted((SRC / d).rglob(g))]


def rel(p):
    return str(p.relative_to(SRC))


bad = []
for p in files("*.c", "*.h"):
    me = rel(p)
    allowed = LAYERS[max((k for k in LAYERS if me.startswith(k)), key=len)]
    for line in p.read_text().splitlines():
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not m:
            continue
        inc = m[2]
        if m[1] == '"' and not any(inc.startswith(a) for a in allowed):
            bad.append(f"{me} may not include {inc}")
        for lib, where in PINNED.items():
            if m[1] == "<" and inc.startswith(lib) and not any(me.startswith(w) for w in where):
                bad.append(f"{me} may not include <{inc}>")
check(bad, "who includes whom")

bad = []
for p in files("*.c", "*.h"):
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(\\.|[^"\\])*"', "", p.read_text(), flags=re.S)
    for m in re.finditer(BANNED, text):
        bad.append(f"{rel(p)}: {m[1]}")
    for m in re.finditer(r"\b(assert|abort)\s*\(", text):
        if not rel(p).startswith("stage3/"):
            bad.append(f"{rel(p)}: {m[1]} in product code")
check(bad, "banned calls")

bad = []
flags = ["-D_GNU_SOURCE", "-DFUSE_USE_VERSION=314", "-I", str(SRC)]
for lib in ("fuse3", "msgpack", "libcjson", "libpcre2-8"):
    r = subprocess.run(["pkg-config", "--cflags", lib], capture_output=True, text=True)
    flags += r.stdout.split()
for p in files("*.h"):
    r = subprocess.run(["gcc", "-std=gnu17", "-fsyntax-only", "-Wall", "-Wno-pragma-once-outside-header", "-x", "c", *flags, "-include", str(p),
                        "/dev/null"], capture_output=True, text=True)
    if r.returncode:
        bad.append(f"{rel(p)}: {r.stderr.splitlines()[0]}")
check(bad, "every header compiles alone")

# Writable file-scope variables: only those named here, each with its reason in the source.
ALLOWED = {"sink"}
bad = []
if BUILD:
    for a in sorted(BUILD.glob("*/lib*.a")) + sorted(BUILD.glob("*/*/lib*.a")):
        if "tests" in a.parts:
            continue
        r = subprocess.run(["objdump", "-t", str(a)], capture_output=True, text=True)
        for line in r.stdout.splitlines():
            # value, flags, section, size, name; .data.rel.ro is constant after relocation
            m = re.match(r"^[0-9a-f]+ .{7} (\.(?:data|bss)\S*|\*COM\*)\s+[0-9a-f]+\s+(?:\.hidden )?(\S+)$", line)
            if m and not m[1].startswith(".data.rel.ro") and not m[2].startswith((".", "__")):
                if m[2].split(".")[0] not in ALLOWED:
                    bad.append(f"{a.name}: {m[2]} in {m[1]}")
check(bad, "no mutable globals")

bad = []
for p in [*SRC.glob("*.md"), *(SRC / "docs").rglob("*.md")]:
    for m in re.finditer(r"`((?:base|policy|net|store|fs|stage3|runner|client|mcp|cli|tests|scripts|docs)/[A-Za-z0-9_./-]+)`", p.read_text()):
        path = m[1].rstrip("/").rstrip(".")
        if not (SRC / path).exists() and not list(SRC.glob(path + ".*")):
            bad.append(f"{rel(p)}: {m[1]} does not exist")
    for m in re.finditer(r"\]\(([^)#:]+)(#[^)]*)?\)", p.read_text()):
        if not (p.parent / m[1]).exists():
            bad.append(f"{rel(p)}: link to {m[1]}")
check(bad, "paths in the docs")

index = (SRC / "docs/README.md").read_text()
check([f"docs/README.md does not list {p.name}" for p in sorted(SRC.glob("docs/*.md")) if p.name != "README.md" and f"({p.name})" not in index],
      "every page is in the index")

# ---- variables that change what a program does ----
looked = {(m, rel(p)) for p in files("*.[ch]") for m in re.findall(r'(?:getenv|env_setting)\("(RATTAN_\w+)"', p.read_text())}
told = set(re.findall(r"RATTAN_\w+", "\n".join(p.read_text() for p in (SRC / "docs").rglob("*.md"))))
check([f"{p}: {m} is in no page of docs/" for m, p in sorted(looked) if m not in told], "every variable is documented")

# What building needs is in all packages: each library of meson.build, and each -dev of scripts/deps.
bad = []
libs = re.findall(r"^\w+_dep = dependency\(\[?'([\w.-]+)'", (SRC / "meson.build").read_text(), re.M)
spec, control, pkgbuild = ((SRC / "packaging" / p).read_text() for p in ("rpm/rattan.spec", "debian/control", "arch/PKGBUILD"))
arch = set(re.search(r"^depends=\((.*)\)$", pkgbuild, re.M)[1].split())
named = {"libcjson": "cjson", "libcrypto": "openssl", "libxxhash": "xxhash", "libzstd": "zstd", "libpcre2-8": "pcre2", "msgpack": "msgpack-c"}
for lib in libs:
    if lib != "threads":
        bad += [] if f"pkgconfig({lib})" in spec else [f"packaging/rpm/rattan.spec has no BuildRequires: pkgconfig({lib})"]
        bad += [] if named.get(lib, lib) in arch else [f"packaging/arch/PKGBUILD has no {named.get(lib, lib)} in depends"]
for dev in re.findall(r"\blib[\w-]+-dev\b", re.search(r"^build=\((.*?)\)$", (SRC / "scripts/deps").read_text(), re.M | re.S)[1]):
    bad += [] if dev == "libc6-dev" or dev in control else [f"packaging/debian/control has no {dev} in Build-Depends"]
# Programs that some commands start where they are there: the packages suggest them, by their own names for them.
suggested = {"skopeo": ("skopeo", "skopeo", "skopeo"), "gpgv": ("gpgv", "gnupg", "gnupg2"), "mmdebstrap": ("mmdebstrap", None, "mmdebstrap"),
             "debootstrap": ("debootstrap", "debootstrap", "debootstrap"), "less": ("less", "less", "less"), "archlinux.gpg": ("archlinux-keyring", "archlinux-keyring", None)}
started = "\n".join(p.read_text() for p in files("*.c") if rel(p).startswith("cli/"))
optional = [re.findall(r"^Suggests: (.*)$", control, re.M), re.findall(r"'([\w-]+): [^']*'", pkgbuild), re.findall(r"^(?:Suggests|Recommends): +(.*)$", spec, re.M)]
for program, names in suggested.items():
    bad += [] if program in started else [f"tests/lint.py: no file of cli/ starts {program}"]
    for name, where, file in zip(names, optional, ("debian/control", "arch/PKGBUILD", "rpm/rattan.spec")):
        bad += [f"packaging/{file} does not suggest {name}"] if name and name not in re.findall(r"[\w-]+", " ".join(where)) else []
version = re.search(r"version: '([^']+)'", (SRC / "meson.build").read_text())[1]
for p, at in (("debian/changelog", f"rattan ({version})"), ("arch/PKGBUILD", f"pkgver={version}\n"), ("rpm/rattan.spec", f"Version:        {version}\n")):
    bad += [] if at in (SRC / "packaging" / p).read_text() else [f"packaging/{p} is not of version {version}"]
check(bad if libs else ["meson.build names no library"], "packages name what building needs")

# Every invariant that the architecture names has a row with a test in the list of them, and no other has.
bad = []
named = set(re.findall(r"\*\*([SFRM]\d+)\*\*", (SRC / "docs/architecture.md").read_text()))
rows = {}
for line in (SRC / "docs/security-invariants.md").read_text().splitlines():
    m = re.match(r"\| ([SFRM]\d+) \| .*? \| (.*) \|$", line)
    if m:
        rows[m[1]] = re.findall(r"`(tests/[A-Za-z0-9_./-]+)`", m[2])
bad += [] if named else ["docs/architecture.md names none"]
bad += [f"{i} has no row in docs/security-invariants.md" for i in sorted(named - set(rows))]
bad += [f"{i} is not in docs/architecture.md" for i in sorted(set(rows) - named)]
for i, tests in rows.items():
    if not any((SRC / t).is_file() for t in tests):
        bad.append(f"{i} has no test")
check(bad, "every invariant has a test")

# tests/run.py runs what is executable; a file that names its interpreter and is not would never run, and nobody would know.
check([f"{rel(p)} begins with #! and is not executable" for d in ("e2e", "mcp") for p in sorted((SRC / "tests" / d).iterdir())
       if p.is_file() and p.read_bytes()[:2] == b"#!" and not os.access(p, os.X_OK)], "every test can be run")

# Every fault of docs/known-faults.md has its number once.
numbers = []
for line in (SRC / "docs/known-faults.md").read_text().splitlines():
    m = re.match(r"\| ([\d, to]+) \|", line)
    for part in re.split(r", ", m[1]) if m else []:
        ends = [int(w) for w in part.split(" to ")]
        numbers += range(ends[0], ends[-1] + 1)
check([f"{k}: {numbers.count(k)} times" for k in range(1, 83) if numbers.count(k) != 1], "every known fault has a row")

print(f"1..{n}")
sys.exit(1 if failed else 0)
