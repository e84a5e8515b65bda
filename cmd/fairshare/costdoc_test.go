package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"fairshare/internal/setup"
	"fairshare/policyfile"
)

// costPage returns the code that docs/cost.md shows for a language.
func costPage(t *testing.T, language string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/cost.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/cost.md shows no %s", language)
	}
	return string(found[1])
}

// The policies in docs/cost.md have no errors and no warnings.
func TestCostPageHasValidPolicies(t *testing.T) {
	file, err := policyfile.Options{Bots: setup.BotNames}.Parse("site.yaml", []byte(costPage(t, "yaml")))
	if err != nil || len(file.Warnings) > 0 {
		t.Fatalf("%v, warnings %v", err, file.Warnings)
	}
}

// Sites that report CPU time as docs/cost.md describes report it correctly.
// Each page uses 30 ms of CPU, and its header Used has the time that it
// measured itself.
func TestCostPageShowsHowSitesReportCPUTime(t *testing.T) {
	for _, test := range []struct {
		language, program, debian string
		site                      map[string]string // files, in which PAGE is what the page shows
		args                      []string          // DIR is their folder, ADDR and PORT where the site is to listen
	}{
		{"php", "php", "php-cli", map[string]string{"told.php": "PAGE", "index.php": `<?php
function used() { $u = getrusage(); return $u['ru_utime.tv_sec'] + $u['ru_stime.tv_sec'] + ($u['ru_utime.tv_usec'] + $u['ru_stime.tv_usec']) / 1e6; }
$began = used();
while (used() - $began < 0.03);
echo str_repeat('page ', 10000);
usleep(20000);
header('Used: ' . 1000 * (used() - $began));
`}, []string{"-d", "auto_prepend_file=DIR/told.php", "-t", "DIR", "-S", "ADDR"}},
		{"python", "python3", "python3", map[string]string{"site.py": `
import sys
from wsgiref.simple_server import make_server
PAGE
def site(environ, start):
    began = time.thread_time()
    while time.thread_time() - began < 0.03: pass
    time.sleep(0.02)
    start("200 OK", [("Used", str(1000 * (time.thread_time() - began)))])
    return [b"page"]
make_server("127.0.0.1", int(sys.argv[1]), ReportsCPU(site)).serve_forever()
`}, []string{"DIR/site.py", "PORT"}},
		{"js", "node", "nodejs", map[string]string{"site.js": `
PAGE
function page(ms) {
  const began = process.cpuUsage();
  for (let used = { user: 0, system: 0 }; used.user + used.system < 1000 * ms; ) used = process.cpuUsage(began);
  return 'page';
}
require('node:http').createServer(async (req, res) => {
  spend(res, () => page(10));
  await new Promise((resolve) => setTimeout(resolve, 20));
  res.setHeader('Used', '30');
  res.end(spend(res, () => page(20)));
}).listen(+process.argv[2], '127.0.0.1');
`}, []string{"DIR/site.js", "PORT"}},
		{"go", "go", "golang", map[string]string{"go.mod": "module site\n\ngo 1.26\n", "site.go": `package main

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"time"
)

PAGE

func main() {
	http.ListenAndServe(os.Args[1], reportsCPU(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var used syscall.Rusage
		cpu := func() int64 {
			syscall.Getrusage(1, &used)
			return used.Utime.Nano() + used.Stime.Nano()
		}
		for began := cpu(); cpu()-began < 30e6; {
		}
		w.Header().Set("Used", "30")
		fmt.Fprint(w, "page")
		time.Sleep(20 * time.Millisecond)
	})))
}
`}, []string{"ADDR"}},
	} {
		t.Run(test.language, func(t *testing.T) {
			shown := costPage(t, test.language)
			if _, err := exec.LookPath(test.program); err != nil && test.language == "js" { // not worth a Node in CI
				t.Skip("node is not installed: apt-get install nodejs")
			}
			program := need(t, test.program, test.debian)
			dir := t.TempDir()
			for name, text := range test.site {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(text, "PAGE", shown, 1)),
					0o600); err != nil {
					t.Fatal(err)
				}
			}
			addr := freeAddr(t)
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			if test.language == "go" { // go run would leave the site behind
				build := exec.Command(program, "build", "-o", "site", ".")
				build.Dir = dir
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				program = filepath.Join(dir, "site")
			}
			args := []string{program}
			for _, arg := range test.args {
				args = append(args, strings.NewReplacer("DIR", dir, "ADDR", addr, "PORT", port).Replace(arg))
			}
			startServer(t, syscall.SIGTERM, args, addr)

			resp, err := http.Get("http://" + addr + "/")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			told := resp.Header.Get("Server-Timing") + resp.Trailer.Get("Server-Timing")
			var cpu float64
			if _, err := fmt.Sscanf(told, "cpu;dur=%g", &cpu); err != nil {
				t.Fatalf("Server-Timing %q, %s", told, resp.Status)
			}
			used, err := strconv.ParseFloat(resp.Header.Get("Used"), 64)
			if err != nil || used < 30 {
				t.Fatalf("used %v ms, %v", used, err)
			}
			if cpu < used-1 || cpu > used+15 { // what is around the page takes little, even on a slow machine
				t.Errorf("%v ms were reported, %v used", cpu, used)
			}
		})
	}
}
