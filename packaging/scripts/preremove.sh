#!/bin/sh
# Before a removal, not before an upgrade.
set -e

case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now fairshare.socket fairshare.service fairshare-watch.service
fi
