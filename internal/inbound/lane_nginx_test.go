package inbound

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const nginxConfig = `
daemon off; master_process off; worker_processes 1; pid DIR/pid; error_log DIR/error.log crit;
events { worker_connections 64; }
http {
	access_log off; merge_slashes off; underscores_in_headers on;
	client_header_buffer_size 16k; large_client_header_buffers 4 128k;
	client_body_temp_path DIR/body; proxy_temp_path DIR/proxy; fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u;
	scgi_temp_path DIR/s;
	server {
		listen unix:DIR/in;
		location / {
			proxy_pass http://unix:DIR/up:;
			proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
			proxy_ignore_client_abort on;
		}
	}
}`

// startNginx starts an nginx that forwards to handler, and returns its socket.
func startNginx(t *testing.T, handler http.HandlerFunc) string {
	program, err := exec.LookPath("nginx")
	if err != nil {
		t.Skip("nginx is not installed")
	}
	dir, err := os.MkdirTemp("", "nginx") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	up, err := net.Listen("unix", filepath.Join(dir, "up"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler, DisableGeneralOptionsHandler: true}
	go srv.Serve(up)
	t.Cleanup(func() { srv.Close() })
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(nginxConfig, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-c", config)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	in := filepath.Join(dir, "in")
	for range 1000 {
		if conn, err := net.Dial("unix", in); err == nil {
			conn.Close()
			return in
		}
		time.Sleep(10 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(dir, "error.log"))
	t.Fatalf("nginx does not start: %s", log)
	return ""
}

// A requestList collects the requests of a connection in a form that nginx does not change.
type requestList struct {
	mu  sync.Mutex
	all []string
}

func (l *requestList) add(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf("%s %s %s %q %v", r.Method, r.Host, r.RequestURI, body, err))
}

// take returns the requests, and begins a new list.
func (l *requestList) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}

// Nginx finds the same requests, with the same bodies, in the bytes of a connection as the lane does by itself, or it
// refuses them. So nginx in front of the lane, or a lane in front of a server like nginx, cannot be made to disagree.
func TestNginxGetsTheSameRequestsAsTheLane(t *testing.T) {
	var byNginx, byLane requestList
	socket := startNginx(t, func(w http.ResponseWriter, r *http.Request) { byNginx.add(r) })
	p := newLanePair(t, echo)
	p.mu.Lock()
	p.fastOnes = byLane.add
	p.mu.Unlock()
	texts := ambiguousRequests(t)
	for _, text := range requests {
		texts = append(texts, rawRequest(text))
	}
	both, refused := 0, 0
	for _, raw := range texts {
		p.send(0, raw, 1<<20)
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		go func() {
			io.WriteString(conn, raw)
			conn.(*net.UnixConn).CloseWrite()
		}()
		answers, _ := io.ReadAll(conn)
		conn.Close()
		lane, nginx := byLane.take(), byNginx.take()
		n := min(len(lane), len(nginx))
		if !slices.Equal(lane[:n], nginx[:n]) {
			t.Errorf("%.300q: the lane got\n%q\nnginx got\n%q", raw, lane, nginx)
		}
		both += n
		if len(nginx) < len(lane) {
			refused++
			if text := string(answers); text != "" && !strings.Contains(text, "HTTP/1.1 4") &&
				!strings.Contains(text, "HTTP/1.1 5") {
				t.Errorf("%.300q: the lane got\n%q\nnginx got\n%q\nwithout an error: %.300q", raw, lane, nginx, answers)
			}
		}
	}
	t.Logf("%d requests were the same; %d connections were refused by nginx", both, refused)
	if both < 30 {
		t.Errorf("only %d requests were compared", both)
	}
}
