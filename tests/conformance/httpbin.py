"""Stands for the go-httpbin of E2B's suite: says at /headers which headers a request has, as that does.

    python3 httpbin.py PORT
"""
import http.server
import json
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        headers = {}
        for name, value in self.headers.items():
            headers.setdefault("-".join(word.capitalize() for word in name.split("-")), []).append(value)
        found = self.path == "/headers"
        body = json.dumps({"headers": headers} if found else {"error": "there is /headers alone"}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
