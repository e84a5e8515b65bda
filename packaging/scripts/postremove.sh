#!/bin/sh
# After a removal. The registry and the journal stay until dpkg purges the package. rpm knows no
# purge: there they stay. The user stays, so that no other user gets its number and its files.
set -e

if [ "$1" = purge ]; then
	rm -rf /var/lib/fairshare /var/log/fairshare
	rmdir /etc/fairshare 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
