#!/bin/sh
# After an installation or upgrade. dpkg passes "configure" and the former version, rpm the number of
# versions that are installed then.
set -e

case "$1" in
configure) upgrade=$2 ;;
1) upgrade= ;;
[2-9]*) upgrade=yes ;;
*) exit 0 ;;
esac

if ! getent passwd fairshare >/dev/null; then
	if command -v systemd-sysusers >/dev/null; then
		systemd-sysusers fairshare.conf
	else
		useradd --system --user-group --no-create-home --home-dir /var/lib/fairshare \
			--shell /usr/sbin/nologin fairshare
	fi
fi
# systemd creates it too. It is here for operators' commands before the first start.
if [ ! -e /var/lib/fairshare ]; then
	install -d -o fairshare -g fairshare -m 0700 /var/lib/fairshare
fi

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$upgrade" ]; then
		# Only what runs. The socket stays open meanwhile: no connection is lost.
		systemctl try-restart fairshare.service fairshare-watch.service
	fi
fi
if [ -z "$upgrade" ]; then
	echo "fairshare is installed, and not started. Name your site in /etc/fairshare/fairshare.yaml, then:"
	echo "    systemctl enable --now fairshare.socket fairshare.service"
fi
