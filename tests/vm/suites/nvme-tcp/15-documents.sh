# The host's commands of documents, as printed.
# shellcheck shell=bash

# shellcheck source=/dev/null
. "$VM_TOP/lib/documents.sh"

# The documents' disk is the second one: /dev/nvme1n1.
setup() {
  document_setup
  connect_host
}
teardown() {
  document_teardown
  disconnect_host
}

test_the_readme_attaches_and_mounts_a_disk() {
  document_serve README.md 'nvme connect'
  guest << 'E'
echo nqn.2014-08.org.nvmexpress:uuid:ce4fee3e-c02c-11ee-8442-830d068a36c6 > /etc/nvme/hostnqn
echo ce4fee3e-c02c-11ee-8442-830d068a36c6 > /etc/nvme/hostid
E
  document_attach README.md 'nvme connect' << 'E'
same "$(awk '$2 == "/mnt" { print $1, $3 }' /proc/mounts)" "/dev/nvme1n1 xfs" "what is mounted"
same "$(cat /sys/block/nvme1n1/size)" "$((50 * 1024 * 1024 * 2))" "sectors"
echo written > /mnt/file
sync /mnt/file
umount /mnt
nvme disconnect -n nqn.2026-11.com.example:rd0
be_host
E
  document_end
}
