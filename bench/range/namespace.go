//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fairshare/bench/internal/stand"
)

// insideKey is the environment variable that holds the folder of the process inside the namespaces.
const insideKey = "FAIRSHARE_RANGE"

// needed are the programs of every run, and their Debian packages. Peers and attacks name further ones.
var needed = []program{
	{"/usr/share/wordpress/wp-load.php", "wordpress"},
	{"/usr/share/wordpress/wp-content/themes/twentytwentyone/style.css", "wordpress-theme-twentytwentyone"},
	{"mariadbd", "mariadb-server"},
	{"nginx", "nginx"},
	{"php-fpm*", "php-fpm"},
	{"php", "php-cli"},
	{"/usr/share/doc/php*-mysql", "php-mysql"},
	{"/usr/share/doc/php*-xml", "php-xml"},
	{"chromium", "chromium"},
	{"linkchecker", "linkchecker"},
	{"ip", "iproute2"},
}

// A program is a command or a file, and the Debian package that provides it.
type program struct{ name, pkg string }

// missing returns the packages that have to be installed.
func missing(programs []program) []string {
	var pkgs []string
	for _, p := range programs {
		var err error
		if filepath.IsAbs(p.name) {
			if found, _ := filepath.Glob(p.name); len(found) == 0 {
				err = fs.ErrNotExist
			}
		} else {
			_, err = stand.Find(p.name)
		}
		if err != nil {
			pkgs = append(pkgs, p.pkg)
		}
	}
	return pkgs
}

// outside checks the packages, builds fairshare, runs this program again in namespaces of its own, and
// removes everything when it has ended. All its processes end with it: they have no other namespace.
func outside(ctx context.Context, o options) error {
	attacks, peers, err := choose(o)
	if err != nil {
		return err
	}
	programs := needed
	for _, a := range attacks {
		programs = append(programs, a.needs...)
	}
	for _, p := range peers {
		programs = append(programs, p.needs...)
	}
	if pkgs := missing(programs); len(pkgs) > 0 {
		text := "packages are missing. Install them, or leave out what needs them with -only:\n"
		if slices.Contains(pkgs, "crowdsec") { // its installation registers the machine, unless this file is not empty
			text += "\tmkdir -p /etc/crowdsec\n" +
				"\techo '# not registered' >/etc/crowdsec/online_api_credentials.yaml # without it, crowdsec needs the Internet\n"
		}
		return fmt.Errorf("%s\tapt-get install -y --no-install-recommends %s", text, strings.Join(pkgs, " "))
	}
	if os.Geteuid() != 0 {
		return errors.New("run this as root: the namespaces, the servers and the firewalls of the peers need it")
	}
	for _, path := range []string{o.policy, o.before} {
		if _, err := os.Stat(path); path != "" && err != nil {
			return err
		}
	}
	removeLeftovers(os.TempDir())
	dir, err := os.MkdirTemp("", fmt.Sprintf("range-%d-", os.Getpid()))
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if _, err := stand.Build(ctx, dir); err != nil {
		return err
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), insideKey+"="+work, "TMPDIR="+work, "HOME="+work)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC,
		Setpgid:    true, // Ctrl-C comes here, and is passed on
		Pdeathsig:  syscall.SIGKILL,
	}
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		if err := cmd.Start(); err != nil {
			ended <- err
			return
		}
		go func() {
			<-ctx.Done()
			cmd.Process.Signal(syscall.SIGTERM)
			time.Sleep(20 * time.Second)
			cmd.Process.Kill()
		}()
		ended <- cmd.Wait()
	}()
	err = <-ended
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// removeLeftovers removes the folders of runs that were killed. Their names hold the process.
func removeLeftovers(temp string) {
	folders, _ := filepath.Glob(filepath.Join(temp, "range-*-*"))
	for _, folder := range folders {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), "range-"), "-")
		if n, err := strconv.Atoi(pid); err != nil || n <= 0 || syscall.Kill(n, 0) != syscall.ESRCH {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			log.Printf("removing the leftovers of a run that was killed: %v", err)
		}
	}
}

// siteHost is the name of the site, and siteAddr its address in the namespace.
const (
	siteHost = "site.example"
	siteIP   = "203.0.113.80"
	siteAddr = siteIP + ":80"
)

// furnish prepares the namespaces: files in memory, and a network in which every IPv4 address is local.
// So each client has an address of its own, and every peer and its firewall see it as they see it on a
// real network.
func furnish(dir string) error {
	if os.Getpid() != 1 {
		return errors.New(insideKey + " is set, but this process is not in a namespace of its own")
	}
	mounts := []struct {
		source, target, fstype string
		flags                  uintptr
		data                   string
	}{
		{"none", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"proc", "/proc", "proc", 0, ""},
		{"tmpfs", dir, "tmpfs", 0, "size=4g,mode=755"},
	}
	for _, m := range mounts {
		if err := syscall.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	if err := hide("/etc/hosts", filepath.Join(dir, "hosts"),
		"127.0.0.1 localhost\n"+siteIP+" "+siteHost+"\n"); err != nil {
		return err
	}
	if err := hide("/etc/resolv.conf", filepath.Join(dir, "resolv.conf"), ""); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"route", "add", "local", "0.0.0.0/1", "dev", "lo"},
		{"route", "add", "local", "128.0.0.0/1", "dev", "lo"},
	} {
		ip, err := stand.Find("ip")
		if err != nil {
			return err
		}
		if out, err := exec.Command(ip, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	for name, value := range map[string]string{
		"/proc/sys/net/ipv4/ip_local_port_range": "10240 65000",
		"/proc/sys/net/core/somaxconn":           "4096",
	} {
		if err := os.WriteFile(name, []byte(value), 0o644); err != nil {
			log.Printf("%v; the default stays", err)
		}
	}
	return nil
}

// hide shows a file with that text in place of a file of the machine, in this namespace only.
func hide(path, with, text string) error {
	if err := os.WriteFile(with, []byte(text), 0o644); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := syscall.Mount(with, real, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", path, err)
	}
	return nil
}

// hideFolder shows a copy of a folder in its place, in this namespace only. A later call shows a new copy.
func hideFolder(path, with string) error {
	syscall.Unmount(path, syscall.MNT_DETACH)
	if err := copyTree(path, with); err != nil {
		return err
	}
	if err := syscall.Mount(with, path, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", path, err)
	}
	return nil
}

// copyTree copies a folder with cp, which keeps links and modes.
func copyTree(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w\n%s", from, err, out)
	}
	return nil
}

// copyLogs copies the logs of all programs from the files in memory to a folder.
func copyLogs(dir, to string) {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".log" || strings.Contains(path, "/profile/") {
			return nil
		}
		rel, _ := filepath.Rel(dir, path)
		target := filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
	if err != nil {
		log.Printf("copying logs: %v", err)
	}
}
