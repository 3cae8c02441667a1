#!/usr/bin/python3
# What was half provisioned cannot be taken back, for the store's disk is full to the last byte: that is told in a sentence, nobody works on what is
# half done, and when there is room again the next one who comes finds the state of before.
# timeout: 120
import os
import subprocess
import sys

from lib import check, done, here, rattan

if "INNER" not in os.environ:
    os.environ["INNER"] = "1"
    os.execvp("unshare", ["unshare", "-Urm", "--propagation", "private", sys.executable, __file__])
os.mkdir("d")
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", "d"]).returncode:
    sys.exit("no tmpfs in a user namespace")
os.environ.update(RATTAN_DATA_DIR=f"{here}/d/store", RATTAN_GC_S="0")


def rt(*args):
    return subprocess.run([rattan, *args], capture_output=True, text=True)


def fill():
    with open("d/hog", "ab", buffering=0) as f:
        n = 1 << 20
        while n:
            try:
                f.write(b"x" * n)
            except OSError:
                n //= 2


check(rt("run", "--", "sh", "-c", "echo before > f").returncode == 0, "it works")
p = subprocess.Popen([rattan, "run", "--provision", "-c", "echo half > f; head -c 8000000 /dev/urandom > /usr/half; sync /usr/half; echo go; read -r x; exit 1"],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
check(p.stdout.readline() == "go\n", "it has begun")
fill()
said = p.communicate("\n")[1]
words = 'what was half provisioned in environment "default" could not be taken back yet: the rollback failed and moved nothing: No space left on device; the next command tries it again'
check(p.returncode == 1 and said == f"rattan: {words}\n", "it is told, in a sentence", (p.returncode, said))
r = rt("run", "--", "sh", "-c", "cat f; ls /usr/half")
check(r.returncode == 125 and r.stdout == "" and r.stderr == f"rattan: {words}\n", "nobody works on it meanwhile", r)
os.unlink("d/hog")
r = rt("run", "--", "sh", "-c", "cat f; ls /usr/half")
check(r.returncode == 2 and r.stdout == "before\n", "then it is as before", r)
r = rt("fsck")
check(r.returncode == 0, "the store is whole", (r.stdout + r.stderr)[-400:])
done()
