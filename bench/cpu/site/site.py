"""A site of forked workers that process one request each at a time, like the sync
workers of gunicorn. /name?burn=MS&wait=MS spends CPU time, then waits. The header Used
of each answer is the CPU time of its process since the previous answer, by getrusage,
in µs. So it includes accepting and reading the request.

    python3 site.py PORT WORKERS
"""
import os
import resource
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit


def used():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


class Site(BaseHTTPRequestHandler):
    def do_GET(self):
        global told
        began = used()
        query = parse_qs(urlsplit(self.path).query)
        until = began + float(query.get("burn", ["0"])[0]) / 1000
        rows = []
        while used() < until:
            rows = sorted(str(n * 7919 % 1009) for n in range(200))
        time.sleep(float(query.get("wait", ["0"])[0]) / 1000)
        page = ("\n".join(rows[:20]) + "\n").encode()
        took, told = used() - told, used()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Used", str(round(took * 1e6)))
        self.send_header("Server-Timing", "cpu;dur=%.3f" % (took * 1000))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


told = 0.0
HTTPServer.request_queue_size = 1024
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Site)
workers = []
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        told = used()
        server.serve_forever()
    workers.append(pid)


def stop(*_):
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
signal.pause()
