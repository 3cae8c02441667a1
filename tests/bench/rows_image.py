"""Import and export of a root file system."""
import hashlib
import os
import random
import shutil
import subprocess
import time

from rows import Row, Target


def tree(bench, path):
    """1 GiB in 40,000 files, sizes as in a distribution: many small ones, few large."""
    n, total = bench.scaled(40000, 2000), bench.scaled(1 << 30, 1 << 26)
    rnd = random.Random(11)
    sizes = [int(rnd.paretovariate(1.1) * 1000) % (4 << 20) for _ in range(n)]
    scale = total / sum(sizes)
    for i, size in enumerate(sizes):
        d = path / f"{i % 40}" / f"{i // 40 % 25}"
        if i < 1000:
            d.mkdir(parents=True, exist_ok=True)
        (d / f"file{i}").write_bytes(rnd.randbytes(int(size * scale)))


def nearly(bench, path):
    """The same with one file in fifty changed."""
    shutil.rmtree(path)
    shutil.copytree(bench.once("image-tree", lambda p: tree(bench, p)), path)
    change(path, 12)


def change(path, seed):
    rnd = random.Random(seed)
    for i, (d, _, files) in enumerate(sorted(os.walk(path))):
        for f in sorted(files)[::50]:
            with open(os.path.join(d, f), "r+b") as o:
                o.write(rnd.randbytes(1000))


def bytes_of(path):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(path) for f in fs)


def timed(fn):
    os.sync()
    t = time.perf_counter()
    fn()
    return time.perf_counter() - t


def read_and_hash(path):
    for d, _, files in os.walk(path):
        for f in files:
            with open(os.path.join(d, f), "rb") as o:
                hashlib.sha256(o.read()).digest()


def write_disk(bench, n):
    """As many bytes into one file, in pieces of 4 MiB that are each waited for, as the store's are."""
    piece = random.Random(13).randbytes(4 << 20)
    fd = os.open(bench.top / "disk", os.O_WRONLY | os.O_CREAT, 0o600)
    for _ in range(n // len(piece)):
        os.write(fd, piece)
        os.fdatasync(fd)
    os.close(fd)
    os.unlink(bench.top / "disk")


def images(bench):
    one, two = bench.once("image-tree", lambda p: tree(bench, p)), bench.once("image-nearly", lambda p: nearly(bench, p))
    data = bench.top / "image-store"
    n, out = bytes_of(one), {}

    def rt(*args):
        subprocess.run([bench.rattan, *[str(a) for a in args], "--data-dir", str(data)], check=True, capture_output=True)
    beside = {"read and hash": timed(lambda: read_and_hash(one)), "write the bytes": timed(lambda: write_disk(bench, n)),
              "cp -a": timed(lambda: bench.run(["cp", "-a", one, bench.top / "image-copy"])),
              "tar": timed(lambda: bench.run(["tar", "-cf", bench.top / "image.tar", "-C", one, "."]))}
    shutil.rmtree(bench.top / "image-copy")
    for k, v in beside.items():
        out[k] = {"native": v}
    out["import dir"] = {"rattan": timed(lambda: rt("import", "dir", one, "one"))}
    out["import dir, nearly the same"] = {"rattan": timed(lambda: rt("import", "dir", two, "two"))}
    change(two, 13)
    out["import dir, the second again, a file in fifty changed"] = {"rattan": timed(lambda: rt("import", "dir", two, "three"))}
    out["import dir, the same, all read"] = {"rattan": timed(lambda: rt("import", "dir", two, "again", "--reread"))}
    out["import tar, the same"] = {"rattan": timed(lambda: rt("import", "tar", bench.top / "image.tar", "four"))}
    out["export tar"] = {"rattan": timed(lambda: rt("export", "tar", "one", bench.top / "out.tar"))}
    out["export dir"] = {"rattan": timed(lambda: rt("export", "dir", "one", bench.top / "out-dir"))}
    out["the store, as a factor of the files"] = {"rattan": int(subprocess.run(["du", "-s", "-B1", data], capture_output=True, text=True).stdout.split()[0]) / n}
    for p in ("image.tar", "out.tar"):
        os.unlink(bench.top / p)
    shutil.rmtree(bench.top / "out-dir")
    shutil.rmtree(data)
    return out


ROWS = [Row("images", "a root file system of 1 GiB in 40,000 files into the store and out", images, (), (Target("*factor*", 1.1),),
            unit={"*factor*": ""}, once=True)]
