# shellcheck shell=bash
. "$DOCUMENTS_ROOT/tests/docs/before/session.sh"
