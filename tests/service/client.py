"""A server in a process of its own, and plain requests to it."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import warm

TOKEN = "0123456789abcdefghij"
SECONDS = 240  # until a server listens on a slow machine, or answers


class Running:
    """``hierlearn serve`` on a port that the system chose.

    Args:
        folder: of the model.
        words: more of the command line.
        cwd: where the command runs.
        token: of the environment; None for none.
        is_warm: fork a process that has imported torch; SIGKILL needs a process of its own.
    """

    def __init__(self, folder, *words, cwd, token=TOKEN, is_warm=True):
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        variables.pop("HIERLEARN_TOKEN", None)
        if token is not None:
            variables["HIERLEARN_TOKEN"] = token
        python = warm.python() if is_warm else [sys.executable]
        self.job = subprocess.Popen(
            [*python, "-m", "hierlearn", "serve", str(folder), "--port", "0", *words],
            cwd=cwd,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said, self.complained = [], []
        self.listens = threading.Event()
        self.threads = [
            threading.Thread(target=self._read, args=(self.job.stdout, self.said), daemon=True),
            threading.Thread(
                target=self._read, args=(self.job.stderr, self.complained), daemon=True
            ),
        ]
        for thread in self.threads:
            thread.start()
        assert self.listens.wait(SECONDS), self.complained
        (port,) = re.findall(r"listening on http://127\.0\.0\.1:(\d+)", "".join(self.said))
        self.port = int(port)

    def _read(self, stream, into):
        for line in stream:
            into.append(line)
            if "docs:" in line:
                self.listens.set()
        self.listens.set()

    def signal(self, number=signal.SIGTERM):
        self.job.send_signal(number)

    def wait(self, seconds=SECONDS):
        """The exit code."""
        return self.job.wait(seconds)

    def end(self):
        """Stop, and check that nothing went wrong inside."""
        if self.job.poll() is None:
            self.signal()
            self.wait()
        for thread in self.threads:
            thread.join(SECONDS)
        self.job.stdout.close()
        self.job.stderr.close()
        assert not any("Traceback" in line for line in self.complained), "".join(self.complained)

    def connect(self, timeout=SECONDS):
        found = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        found.connect()
        found.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def request(self, method, path, body=None, connection=None, **headers):
        """Status, headers and the JSON or text of a response."""
        own = connection or self.connect()
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        try:
            own.request(method, path, body, headers)
            got = own.getresponse()
            content = got.read()
        finally:
            if connection is None:
                own.close()
        is_json = got.headers.get("content-type") == "application/json"
        return got.status, got.headers, json.loads(content) if is_json else content.decode()

    def get(self, path):
        return self.request("GET", path)

    def post(self, path, body, connection=None, **headers):
        code, _, found = self.request("POST", path, body, connection, **headers)
        return code, found

    def predict(self, rows, **options):
        code, found = self.post("/predict", {"rows": rows, **options})
        assert code == 200, found
        return found["answers"]

    def remember(self, rows, labels, token=TOKEN, **more):
        body = {"rows": rows, "labels": labels, **more}
        return self.post("/remember", body, Authorization=f"Bearer {token}")

    def raw(self, content, timeout=SECONDS):
        """A connection on which some bytes were sent."""
        found = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        found.sendall(content)
        return found

    def begun(self):
        """A connection whose request was accepted, and whose body does not come."""
        found = self.raw(
            b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n"
            b"expect: 100-continue\r\n\r\n"
        )
        assert found.recv(100).startswith(b"HTTP/1.1 100")  # somebody reads
        found.sendall(b"{")
        return found

    def metric(self, line):
        """The value of a line of /metrics, whatever the order of its labels."""

        def parts(text):
            return sorted(re.split("[{},]", text))

        for one in self.get("/metrics")[2].splitlines():
            name, _, value = one.rpartition(" ")
            if parts(name) == parts(line):
                return float(value)
        return None
