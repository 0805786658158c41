# shellcheck shell=bash
# The examples are those of `host create`.
. "$DOCUMENTS_ROOT/tests/docs/before/host-create.sh"
