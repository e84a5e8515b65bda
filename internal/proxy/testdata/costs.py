"""Spends ?ms=N of CPU time in a thread of its own. Reports the time that it spent, and
?cost=N as the cost, to the proxy and as a line of the file COSTS_FILE.

    python3 costs.py PORT http|wsgi

http reports in the trailer if the query has "trailer". wsgi is an application in the
reference server.
"""
import hashlib
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import ThreadingMixIn
from urllib.parse import parse_qs, urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

lock = threading.Lock()


def work(query, client):
    """Returns the Server-Timing, the cost and the page of a request."""
    query = {name: values[0] for name, values in parse_qs(query).items()}
    began, page = time.thread_time_ns(), b""
    while True:
        for n in range(100):
            page = hashlib.md5(page + b"%d" % n).hexdigest().encode()
        took = (time.thread_time_ns() - began) // 1000
        if took >= 1000 * float(query["ms"]):
            break
    cost = query.get("cost", "0")
    with lock, open(os.environ["COSTS_FILE"], "a") as costs:
        costs.write(f"{client} {took} {cost}\n")
    return f"app;dur=1, cpu;desc=\"thread\";dur={took / 1000!r}", cost, page


class Plain(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        query = urlsplit(self.path).query
        timing, cost, page = work(query, self.headers["X-Client"])
        self.send_response(200)
        if "trailer" in query:
            self.send_header("Transfer-Encoding", "chunked")
            if "declared" in query:
                self.send_header("Trailer", "Server-Timing, X-Cost")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(page), page))
            self.wfile.write(f"0\r\nServer-Timing: {timing}\r\nX-Cost: {cost}\r\n\r\n".encode())
            return
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Server-Timing", timing)
        self.send_header("X-Cost", cost)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_):
        pass


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Threads(ThreadingMixIn, WSGIServer):
    daemon_threads = True


def application(environ, start_response):
    timing, cost, page = work(environ["QUERY_STRING"], environ["HTTP_X_CLIENT"])
    start_response("200 OK", [("Server-Timing", timing), ("X-Cost", cost)])
    return [page]


port = int(sys.argv[1])
if sys.argv[2] == "http":
    ThreadingHTTPServer(("127.0.0.1", port), Plain).serve_forever()
else:
    make_server("127.0.0.1", port, application, Threads, Quiet).serve_forever()
