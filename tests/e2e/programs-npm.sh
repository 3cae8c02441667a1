#!/bin/bash
# npm install of a package with dependencies, offline from a warm cache, in the sandbox; and node itself.
# timeout: 300
. "$RATTAN_SRC/tests/e2e/lib.sh"

command -v npm >/dev/null || fail "no npm"
mkdir proj && cd proj
cat > package.json <<'J'
{ "name": "t", "version": "1.0.0", "private": true, "dependencies": { "express": "4.21.2" } }
J
# The cache is filled outside: the sandbox has no network.
npm install --cache "$PWD/.npm" --no-audit --no-fund --loglevel=error > log 2>&1 || fail "npm outside: $(tail -n 3 log)"
rm -rf node_modules
before=$(sums .)
rt run --overlay-cwd -- bash -euo pipefail -c '
npm ci --offline --cache /workspace/.npm --no-audit --no-fund --loglevel=error
node -e "
const http = require(\"http\"), app = require(\"express\")();
app.get(\"/\", (q, r) => r.send(\"served\"));
const s = app.listen(0, \"127.0.0.1\", () => http.get({host: \"127.0.0.1\", port: s.address().port}, r => r.on(\"data\", d => { console.log(String(d)); process.exit(0); })));
" > out
grep -qx served out
' > ../log2 2>&1 || fail "npm inside: $(tail -n 5 ../log2)"
must rt commit -m installed
must rt run --overlay-cwd -- rm -rf node_modules
must rt rollback head
must rt run --overlay-cwd -- node -e 'require("express")'
same "$(sums .)" "$before" "the project on the host"
exit 0
