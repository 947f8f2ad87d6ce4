"""A local HTTP server that truncates, corrupts, stalls and refuses, and fetch from it."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from hierlearn.errors import DownloadError
from hierlearn.lab.corpora.download import fetch

BODY = bytes(range(256)) * 800  # 204,800 bytes: several blocks
SIZE = len(BODY)
SHA256 = hashlib.sha256(BODY).hexdigest()
HALF = SIZE // 2
BY_HAND = "put the file by hand into a folder named by data_dir= or HIERLEARN_DATA"


class Server(ThreadingHTTPServer):
    """Answers request i with ``script[i]``, the last entry for all further ones."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = [whole]
        self.asked = 0  # how often
        self.release = threading.Event()  # ends the stalls

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/rows.arff"

    def handle_error(self, request, client_address):
        """Stay silent: clients hang up on purpose here."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        number = self.server.asked
        self.server.asked += 1
        self.server.script[min(number, len(self.server.script) - 1)](self)
        self.close_connection = True

    def log_message(self, *arguments):
        """Keep the test output quiet."""

    def head(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


def whole(handler):
    handler.head(200, Content_Length=SIZE)
    handler.wfile.write(BODY)


def truncate(count):
    def answer(handler):
        handler.head(200, Content_Length=SIZE)
        handler.wfile.write(BODY[:count])

    return answer


def stall(count):
    def answer(handler):
        handler.head(200, Content_Length=SIZE)
        handler.wfile.write(BODY[:count])
        handler.wfile.flush()
        handler.server.release.wait(600)

    return answer


def never_answer(handler):
    handler.server.release.wait(600)


def status(code):
    return lambda handler: handler.head(code, Content_Length=0)


def corrupt(handler):
    handler.head(200, Content_Length=SIZE)
    handler.wfile.write(BODY[:-1] + bytes([BODY[-1] ^ 1]))


def of_length(count):
    def answer(handler):
        handler.head(200, Content_Length=count)
        handler.wfile.write((BODY * 2)[:count])

    return answer


def without_length(count):
    """Send no Content-Length: the end of the connection ends the body."""

    def answer(handler):
        handler.head(200, Connection="close")
        handler.wfile.write((BODY * 2)[:count])

    return answer


def chunked(*, complete):
    def answer(handler):
        handler.head(200, Transfer_Encoding="chunked")
        handler.wfile.write(b"%x\r\n" % SIZE)
        handler.wfile.write(BODY + b"\r\n0\r\n\r\n" if complete else BODY[:HALF])

    return answer


def redirect(target):
    return lambda handler: handler.head(302, Location=target, Content_Length=0)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def get(server, target, **options):
    return fetch(server.url, target, **{"size": SIZE, "sha256": SHA256, "timeout": 5.0, **options})


def refusal(server, target, **options):
    with pytest.raises(DownloadError) as caught:
        get(server, target, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message
