#!/bin/bash
# sqlite in WAL mode with two writers at once, committed and gone back to.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"

cat > w.py <<'P'
import sqlite3, sys
c = sqlite3.connect("/workspace/t.db", timeout=60)
if sys.argv[1] == "make":
    # Two that change the mode at once do not wait for each other, on any file system: one gives up.
    assert c.execute("pragma journal_mode=wal").fetchone()[0] == "wal"
    c.execute("create table t(who text, n integer)")
    sys.exit()
assert c.execute("pragma journal_mode").fetchone()[0] == "wal"
for i in range(300):
    with c:
        c.execute("begin immediate")
        c.execute("insert into t values(?, ?)", (sys.argv[1], i))
P
rt run --overlay "$here=/mnt" -- bash -euo pipefail -c '
/usr/bin/python3 /mnt/w.py make
/usr/bin/python3 /mnt/w.py a & p=$!
/usr/bin/python3 /mnt/w.py b
wait $p
' > log 2>&1 || fail "writers: $(tail -n 5 log)"
q='import sqlite3; c = sqlite3.connect("/workspace/t.db"); print(c.execute("pragma integrity_check").fetchone()[0], *c.execute("select count(*), count(distinct n) from t").fetchone())'
same "$(rt run -- /usr/bin/python3 -c "$q")" "ok 600 300" "rows"
must rt commit -m rows
must rt run -- /usr/bin/python3 -c 'import sqlite3; c = sqlite3.connect("/workspace/t.db"); c.execute("delete from t"); c.commit(); c.execute("vacuum")'
must rt rollback head
same "$(rt run -- /usr/bin/python3 -c "$q")" "ok 600 300" "rows after the rollback"
exit 0
