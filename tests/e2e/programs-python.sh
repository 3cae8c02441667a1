#!/bin/bash
# A python virtual environment, with a package installed from a wheel on disk, in the sandbox.
# timeout: 180
. "$RATTAN_SRC/tests/e2e/lib.sh"

mkdir proj && cd proj
/usr/bin/python3 - <<'P' || fail "could not make the wheel"
import base64, hashlib, zipfile
files = {
    "greet/__init__.py": b"def hello():\n    return 'hello from a wheel'\n",
    "greet-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
    "greet-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
def line(n, d):
    h = base64.urlsafe_b64encode(hashlib.sha256(d).digest()).rstrip(b"=").decode()
    return f"{n},sha256={h},{len(d)}\n"
record = "".join(line(n, d) for n, d in files.items()) + "greet-1.0.dist-info/RECORD,,\n"
with zipfile.ZipFile("greet-1.0-py3-none-any.whl", "w") as z:
    for n, d in files.items():
        z.writestr(n, d)
    z.writestr("greet-1.0.dist-info/RECORD", record)
P
rt run --overlay-cwd -- bash -euo pipefail -c '
/usr/bin/python3 -m venv v
v/bin/pip install -q --no-index ./greet-1.0-py3-none-any.whl
v/bin/python -c "import greet; assert greet.hello() == \"hello from a wheel\""
v/bin/python - <<P
import multiprocessing, socket, threading, sqlite3, tempfile
def sq(x): return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as p:
        assert p.map(sq, range(5)) == [0, 1, 4, 9, 16]
    s = socket.create_server(("127.0.0.1", 0))
    t = threading.Thread(target=lambda: s.accept()[0].sendall(b"hi"))
    t.start()
    assert socket.create_connection(s.getsockname()).recv(2) == b"hi"
    t.join()
P
' > log 2>&1 || fail "python: $(tail -n 5 log)"
must rt commit -m venv
must rt run --overlay-cwd -- rm -rf v
must rt rollback head
same "$(rt run --overlay-cwd -- v/bin/python -c 'import greet; print(greet.hello())')" "hello from a wheel" "after the rollback"
[ ! -e v ] || fail "the venv is on the host"
exit 0
