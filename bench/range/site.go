//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"fairshare/bench/internal/stand"
)

//go:embed setup.php
var setupPHP string

// workers is the number of processes of PHP: what Debian's hosts of this size usually have.
const workers = 10

// A site is WordPress with its database and its PHP. The web server is a part of the peers.
type site struct {
	dir         string // its folder; WordPress is in dir/wordpress
	appPassword string // of the user app, for the REST API
	processes   []*stand.Process
	php         *stand.Process
}

const wpConfig = `<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:%s/mysql.sock');
define('DB_CHARSET', 'utf8mb4');
foreach (['AUTH_KEY', 'SECURE_AUTH_KEY', 'LOGGED_IN_KEY', 'NONCE_KEY', 'AUTH_SALT', 'SECURE_AUTH_SALT', 'LOGGED_IN_SALT', 'NONCE_SALT'] as $k) define($k, "range $k");
$table_prefix = 'wp_';
define('WP_ENVIRONMENT_TYPE', 'local');   // application passwords work without TLS
define('DISABLE_WP_CRON', true);          // or the clock decides which request runs its jobs
define('WP_HTTP_BLOCK_EXTERNAL', true);   // there is no network
define('AUTOMATIC_UPDATER_DISABLED', true);
if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
`

const fpmConfig = `[global]
error_log = %[1]s/php.log
daemonize = no
[www]
user = root
listen = %[1]s/php.sock
listen.mode = 0666
pm = static
pm.max_children = %[2]d
access.log = %[1]s/reached.log
access.format = "%%{REMOTE_ADDR}e %%s %%{microseconds}d %%C %%m %%{REQUEST_URI}e"
catch_workers_output = yes
php_admin_value[opcache.validate_timestamps] = 0
php_admin_value[sendmail_path] = /bin/true
php_admin_value[error_log] = %[1]s/php-errors.log
`

// newSite installs and starts a site below dir.
func newSite(ctx context.Context, dir string) (*site, error) {
	s := &site{dir: filepath.Join(dir, "site")}
	if err := s.start(ctx); err != nil {
		s.stop()
		return nil, fmt.Errorf("setting up WordPress: %w", err)
	}
	return s, nil
}

func (s *site) start(ctx context.Context) error {
	data := filepath.Join(s.dir, "mysql")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+data, "--user=root",
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput(); err != nil {
		return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	mariadbd, err := stand.Find("mariadbd")
	if err != nil {
		return err
	}
	db, err := stand.Start(s.dir, "mariadb", []string{mariadbd, "--no-defaults", "--user=root", "--datadir=" + data,
		"--socket=" + s.dir + "/mysql.sock", "--pid-file=" + s.dir + "/mysql.pid", "--skip-networking",
		"--innodb-flush-log-at-trx-commit=0"})
	if err != nil {
		return err
	}
	s.processes = append(s.processes, db)
	if err := db.Await("unix", s.dir+"/mysql.sock"); err != nil {
		return err
	}
	create := strings.NewReader("CREATE DATABASE wordpress CHARACTER SET utf8mb4")
	if err := s.sql(ctx, create, nil, "mariadb"); err != nil {
		return err
	}

	root := filepath.Join(s.dir, "wordpress")
	if out, err := exec.CommandContext(ctx, "cp", "-rL", "/usr/share/wordpress", root).CombinedOutput(); err != nil {
		return fmt.Errorf("copying WordPress: %w\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(root, "wp-content", "uploads"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "wp-config.php"), fmt.Appendf(nil, wpConfig, s.dir), 0o644); err != nil {
		return err
	}
	setup := exec.CommandContext(ctx, "php", "-d", "sendmail_path=/bin/true", "-d", "memory_limit=512M", "--", "1")
	setup.Dir = root
	setup.Stdin = strings.NewReader(setupPHP)
	var stderr bytes.Buffer
	setup.Stderr = &stderr
	out, err := setup.Output()
	if err != nil {
		return fmt.Errorf("setup.php: %w\n%s%s", err, out, stderr.Bytes())
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var made struct{ App string }
	if err := json.Unmarshal(lines[len(lines)-1], &made); err != nil || made.App == "" {
		return fmt.Errorf("setup.php printed no password of the app:\n%s%s", out, stderr.Bytes())
	}
	s.appPassword = made.App
	dump, err := os.Create(s.dump())
	if err != nil {
		return err
	}
	defer dump.Close()
	return s.sql(ctx, nil, dump, "mariadb-dump", "wordpress")
}

func (s *site) dump() string { return filepath.Join(s.dir, "dump.sql") }

// sql runs a client of the database.
func (s *site) sql(ctx context.Context, in io.Reader, out io.Writer, name string, args ...string) error {
	args = append([]string{"--no-defaults", "--socket=" + s.dir + "/mysql.sock", "-uroot"}, args...)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout = in, out
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, stderr.Bytes())
	}
	return nil
}

// reset gives the site the content of the beginning, and new processes of PHP.
func (s *site) reset(ctx context.Context) error {
	dump, err := os.Open(s.dump())
	if err != nil {
		return err
	}
	defer dump.Close()
	if err := s.sql(ctx, dump, nil, "mariadb", "wordpress"); err != nil {
		return err
	}
	if s.php != nil {
		s.php.Stop()
	}
	os.Remove(s.reached())
	config, err := stand.Write(s.dir, "php-fpm.conf", fmt.Sprintf(fpmConfig, s.dir, workers))
	if err != nil {
		return err
	}
	fpm, err := stand.Find("php-fpm*")
	if err != nil {
		return err
	}
	s.php, err = stand.Start(s.dir, "php-fpm", []string{fpm, "-R", "-F", "-y", config})
	if err != nil {
		return err
	}
	return s.php.Await("unix", s.dir+"/php.sock")
}

// warm fills the caches of PHP and the database.
func (s *site) warm(ctx context.Context) error {
	client := &http.Client{Timeout: 30 * time.Second}
	for i := range 2 * workers {
		path := []string{"/", "/wp-login.php", "/?s=river", "/2025/post-100/", "/feed/"}[i%5]
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+siteAddr+path, nil)
		if err != nil {
			return err
		}
		req.Host = siteHost
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("WordPress answers GET %s with %s", path, resp.Status)
		}
	}
	return nil
}

func (s *site) stop() {
	if s.php != nil {
		s.php.Stop()
	}
	for _, p := range s.processes {
		p.Stop()
	}
}

// reached is the log of the requests that PHP has processed.
func (s *site) reached() string { return filepath.Join(s.dir, "reached.log") }

// A hit is a request that PHP has processed.
type hit struct {
	from   netip.Addr
	status int
	took   time.Duration // time of a worker
	cpu    time.Duration
	method string
	target string
}

// parseHit reads a line of the log of php-fpm in the format of fpmConfig.
func parseHit(line string) (hit, error) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) != 6 {
		return hit{}, fmt.Errorf("%d fields in %q", len(fields), line)
	}
	from, err := netip.ParseAddr(fields[0])
	if err != nil {
		return hit{}, err
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil {
		return hit{}, err
	}
	took, err := strconv.ParseFloat(fields[2], 64)
	if err != nil {
		return hit{}, err
	}
	cpu, err := strconv.ParseFloat(fields[3], 64)
	if err != nil {
		return hit{}, err
	}
	h := hit{from: from, status: status, took: time.Duration(took * 1e3), method: fields[4], target: fields[5]}
	h.cpu = time.Duration(float64(h.took) * cpu / 100)
	return h, nil
}

// hits reads the log from a position, and returns the next position.
func (s *site) hits(from int64) ([]hit, int64, error) {
	f, err := os.Open(s.reached())
	if err != nil {
		return nil, from, err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, from, err
	}
	var found []hit
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF {
			return found, from, nil
		}
		if err != nil {
			return found, from, err
		}
		from += int64(len(line))
		h, err := parseHit(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return found, from, fmt.Errorf("log of php-fpm: %w", err)
		}
		found = append(found, h)
	}
}
