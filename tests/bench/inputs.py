"""What programs are given to work on: the same bytes on every run."""
import io
import os
import random
import shutil
import subprocess
import tarfile


def words(r):
    return ["".join(r.choice("abcdefghijklmnopqrstuvwxyz_") for _ in range(r.randint(3, 11))) for _ in range(3000)]


def text(r, known, n):
    s = []
    while n > 0:
        w = r.choice(known) + r.choice([" ", " ", "\n", "(", ");\n"])
        s.append(w)
        n -= len(w)
    return "".join(s).encode()


def unit(i):
    """A C file that takes a compiler a moment."""
    body = '#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "common.h"\n'
    for k in range(25):
        body += (f"int f_{i}_{k}(struct box *b, const char *s) {{ int n = (int)strlen(s); for (int j = 0; j < n;"
                 f" j++) b->v[(j * {k + 3}) & 63] += s[j] ^ {i}; return printf(\"%d\\n\", b->v[{k}]); }}\n")
    return body.encode()


MAKEFILE = (b"OBJ := $(patsubst %.c,%.o,$(wildcard *.c))\nprog: $(OBJ)\n\t$(CC) -o $@ $^\n"
            b"%.o: %.c common.h\n\t$(CC) -O1 -c -o $@ $<\n")


def source_tar(path, files, units):
    """@files small texts, and a C program of @units."""
    r = random.Random(7)
    known = words(r)
    with tarfile.open(path / "in.tar", "w") as t:
        def add(name, data):
            i = tarfile.TarInfo("tree/" + name)
            i.size, i.mtime, i.mode = len(data), 1700000000, 0o644
            t.addfile(i, io.BytesIO(data))
        for k in range(files):
            add(f"pkg{k // 80:03}/sub{k % 8}/mod{k % 80:03}.txt", text(r, known, int(r.lognormvariate(7.6, 1.1))))
        for i in range(units):
            add(f"csrc/u{i:03}.c", unit(i))
        add("csrc/common.h", b"struct box { int v[64]; };\n")
        add("csrc/main.c", b"int main(void) { return 0; }\n")
        add("csrc/Makefile", MAKEFILE)


def sources(bench):
    """A directory with in.tar of 10,000 files and 150 units."""
    return bench.once("sources", lambda p: source_tar(p, bench.scaled(10000, 1000), bench.scaled(150, 10)))


def texts(bench, n):
    """A directory of @n small texts."""
    def make(path):
        r = random.Random(11)
        known = words(r)
        pool = [text(r, known, r.randint(200, 3000)) for _ in range(500)]
        for k in range(n):
            if k % 100 == 0:
                os.makedirs(path / f"d{k // 10000}/e{k // 100 % 100}", exist_ok=True)
            (path / f"d{k // 10000}/e{k // 100 % 100}/t{k}.txt").write_bytes(b"%d " % k + pool[k % 500])
    return bench.once(f"texts-{n}", make)


def big_file(bench):
    """A directory with a file of 1 GiB, no two blocks alike."""
    def make(path):
        r = random.Random(3)
        with open(path / "big", "wb") as f:
            for _ in range(bench.scaled(1024, 64)):
                f.write(r.randbytes(1 << 20))
    return bench.once("big", make)


def npm(bench):
    """A warm cache of the packages of the test clients, and the lock file; None without npm or its registry."""
    if not shutil.which("npm"):
        return None

    def make(path):
        for f in ("package.json", "package-lock.json"):
            shutil.copy(os.path.join(os.path.dirname(__file__), "../mcp", f), path)
        r = subprocess.run(["npm", "ci", "--cache", str(path / "npm"), "--no-audit", "--no-fund", "--loglevel=error"], cwd=path,
                           capture_output=True)
        shutil.rmtree(path / "node_modules", ignore_errors=True)
        if r.returncode:
            print("  npm ci:", r.stderr.decode(errors="replace")[-300:])
            shutil.rmtree(path / "npm", ignore_errors=True)
    path = bench.once("npm", make)
    return path if (path / "npm").exists() else None


def go_module(bench):
    """Packages that need nothing but the standard library."""
    def make(path):
        (path / "go.mod").write_text("module example.org/bench\n\ngo 1.19\n")
        names = [f"p{i}" for i in range(30)]
        for i, n in enumerate(names):
            (path / n).mkdir()
            body = "".join(f"func F{k}(s string) string {{ return strings.Repeat(fmt.Sprint(len(s), {i * k}), {k % 5 + 1}) }}\n" for k in range(40))
            (path / n / "p.go").write_text(f'package {n}\n\nimport (\n\t"fmt"\n\t"strings"\n)\n\n{body}')
        uses = "".join(f'\t"example.org/bench/{n}"\n' for n in names)
        calls = "".join(f'\tprintln({n}.F1("x"))\n' for n in names)
        (path / "main.go").write_text(f"package main\n\nimport (\n{uses})\n\nfunc main() {{\n{calls}}}\n")
    return bench.once("go", make)


def cargo_workspace(bench):
    """Crates that need nothing from a registry."""
    def make(path):
        names = [f"c{i}" for i in range(12)]
        (path / "Cargo.toml").write_text('[workspace]\nresolver = "2"\nmembers = ["top", ' + ", ".join(f'"{n}"' for n in names) + "]\n")
        for n in (*names, "top"):
            (path / n / "src").mkdir(parents=True)
            deps = "".join(f'{d} = {{ path = "../{d}" }}\n' for d in names) if n == "top" else ""
            (path / n / "Cargo.toml").write_text(f'[package]\nname = "{n}"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n{deps}')
        body = "".join(f"pub fn f{k}(v: &[u64]) -> String {{ v.iter().map(|x| format!(\"{{}}\", x * {k})).collect::<Vec<_>>().join(\",\") }}\n"
                       for k in range(30))
        for n in names:
            (path / n / "src/lib.rs").write_text(body)
        calls = "".join(f'    println!("{{}}", {n}::f1(&[1, 2]));\n' for n in names)
        (path / "top/src/main.rs").write_text(f"fn main() {{\n{calls}}}\n")
    return bench.once("cargo", make)
