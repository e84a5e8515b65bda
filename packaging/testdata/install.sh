#!/bin/sh
# Installs, upgrades, removes and purges the package $1 on a copy-on-write copy of this machine.
set -eu
work=$(mktemp -d)
cleanup() {
	umount "$work/root/proc" 2>/dev/null || true
	umount "$work/root" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount -t proc proc "$work/root/proc"
cp "$1" "$work/root/fairshare.deb"
chroot "$work/root" /bin/sh -euc '
dpkg -i /fairshare.deb
fairshare version
fairshare check /etc/fairshare/fairshare.yaml | head -1
stat -c "state of %U, mode %a" /var/lib/fairshare
systemd-analyze verify --man=no fairshare.service fairshare.socket fairshare-watch.service
ls /etc/systemd/system/*.wants/fairshare* 2>/dev/null && exit 1 # nothing is enabled
echo "# mine" >>/etc/fairshare/fairshare.yaml
touch /var/lib/fairshare/registry.db
dpkg -i /fairshare.deb
tail -1 /etc/fairshare/fairshare.yaml
dpkg -r fairshare
test ! -e /usr/bin/fairshare
test -e /var/lib/fairshare/registry.db
tail -1 /etc/fairshare/fairshare.yaml
dpkg -P fairshare
test ! -e /etc/fairshare
test ! -e /var/lib/fairshare
echo all went well'
