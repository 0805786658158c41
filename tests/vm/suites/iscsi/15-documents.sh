# The host's commands of documents, as printed.
# shellcheck shell=bash

# shellcheck source=/dev/null
. "$VM_TOP/lib/documents.sh"

# The documents' host has one name, and no interface with another one, which iscsiadm would use.
setup() {
  document_setup
  guest << 'E'
iscsiadm -m iface -I second -o delete
killall iscsid
no_iscsid() { ! pidof iscsid; }
eventually 10 no_iscsid > /dev/null
echo InitiatorName=iqn.1993-08.org.debian:01:9b8e2c > /etc/iscsi/initiatorname.iscsi
iscsid
E
}
teardown() {
  guest << 'E'
killall iscsid
no_iscsid() { ! pidof iscsid; }
eventually 10 no_iscsid > /dev/null
be_initiator
E
  document_teardown
}

# attached DOCUMENT WORD: its commands attach one disk of 50 GiB.
attached() {
  document_serve "$1" "$2"
  document_attach "$1" "$2" << 'E'
has_disk() { lsscsi -s | grep -E 'RAMPORT.* 53\.[67]GB'; }
eventually 15 has_disk
iscsiadm -m session -P 1 | grep -F 'Iface Initiatorname: iqn.1993-08.org.debian:01:9b8e2c'
iscsiadm -m node --logout
iscsiadm -m node -o delete
iscsiadm -m discoverydb -t sendtargets -p 192.0.2.1 -o delete
E
  document_end
}

test_the_readme_attaches_a_disk() { attached README.md iscsiadm; }
test_a_disk_for_one_host() { attached docs/iscsi.md lsscsi; }
test_a_disk_with_chap() { attached docs/iscsi.md discoverydb; }
