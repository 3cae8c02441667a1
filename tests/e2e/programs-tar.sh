#!/bin/bash
# A large tree in and out by tar; what a mounted commit shows equals what went in.
# timeout: 300
. "$RATTAN_SRC/tests/e2e/lib.sh"

mkdir -p in/t && cd in
/usr/bin/python3 - <<'P'
import os, random
r = random.Random(11)
for d in range(100):
    p = f"t/d{d % 10}/e{d}"
    os.makedirs(p)
    for f in range(80):
        n = p + f"/f{f}"
        with open(n, "wb") as o:
            o.write(r.randbytes(int(r.lognormvariate(7.5, 1.5))))
        os.chmod(n, r.choice([0o644, 0o600, 0o755, 0o444]))
        os.utime(n, ns=(10**18 + r.randrange(10**17), 10**18 + r.randrange(10**17)))
    os.symlink(f"f{d % 80}", p + "/link")
    os.link(p + "/f0", p + "/hard")
    os.setxattr(p + "/f1", "user.note", b"n%d" % d)
with open("t/sparse", "wb") as o:
    o.truncate(50_000_000)
    o.seek(20_000_000)
    o.write(b"data")
with open("t/big", "wb") as o:
    o.write(r.randbytes(30_000_000))
P
tar --xattrs -cf t.tar t
want=$(listing t && sums t && cd t && getfattr -R -d . 2>/dev/null)
rt run --overlay-cwd -e tar -- bash -euo pipefail -c '
cd /home/user && tar --xattrs -xf /workspace/t.tar && tar --xattrs -C /home/user -cf /home/user/out.tar t
toc() { tar -tvf "$1" | awk "{ \\$2 = \"\"; print }" | sort; }
cmp <(toc /workspace/t.tar) <(toc out.tar)
' > log 2>&1 || fail "tar: $(tail -n 5 log)"
must rt commit -e tar -m tree
mkdir "$here/m"
must rt mount -e tar head "$here/m"
got=$(listing "$here/m/home/user/t" && sums "$here/m/home/user/t" && cd "$here/m/home/user/t" && getfattr -R -d . 2>/dev/null)
if [ "$got" != "$want" ]; then
	diff <(echo "$want") <(echo "$got") | head -n 10
	rt umount "$here/m"
	fail "the mounted commit differs from what was packed"
fi
diff -r t "$here/m/home/user/t" || fail "diff -r"
must rt umount "$here/m"
exit 0
