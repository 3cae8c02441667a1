#!/bin/bash
# As cases-outside.sh, by root.
# timeout: 2400
# user: root
# long
. "$RATTAN_SRC/tests/e2e/cases-outside.sh"
