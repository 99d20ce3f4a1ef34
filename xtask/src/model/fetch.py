"""Downloads URL into PART with HTTP ranges, going on where an earlier run stopped.

Usage: fetch.py URL PART PAUSE, where PAUSE is the first wait after a failure, in seconds. Writes lines to stdout: `total N` and `at N` (bytes), `note TEXT`.
Ends with 0 when PART is complete; otherwise PART keeps what came, and stderr says why.
"""

import http.client
import os
import sys
import time
import urllib.error
import urllib.request

CHUNK = 1 << 18
TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 20  # in all: a server that drops every connection must not hold us for ever
ATTEMPTS_WITHOUT_PROGRESS = 5


def say(word, value):
    try:
        print(word, value, flush=True)
    except BrokenPipeError:
        # Whoever asked is gone, and with it the lock on PART.
        os._exit(1)


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def answer_to(url, have):
    request = urllib.request.Request(url)
    # Byte ranges count what is sent, so it must not be compressed on the way.
    request.add_header("Accept-Encoding", "identity")
    if have:
        request.add_header("Range", f"bytes={have}-")
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def expected_total(answer, resumed):
    if resumed:
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    else:
        total = answer.headers.get("Content-Length", "")
    return int(total) if total.isdigit() else None


def continue_download(url, part):
    have = size(part)
    with answer_to(url, have) as answer:
        resumed = answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if have:
            say("note", f"resuming at {have} bytes" if resumed else "the server has no ranges: starting again")
        total = expected_total(answer, resumed)
        say("total", total or 0)
        with open(part, "ab" if resumed else "wb") as file:
            at = have if resumed else 0
            while chunk := answer.read(CHUNK):
                file.write(chunk)
                at += len(chunk)
                say("at", at)
    if total is not None and at != total:
        raise ConnectionError(f"the connection ended at {at} of {total} bytes")


def is_permanent(error):
    return isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 416, 429)


def download(url, part, pause):
    idle = 0
    for _ in range(ATTEMPTS):
        before = size(part)
        try:
            return continue_download(url, part)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == 416:
                # What is there is longer than the file: it belongs to something else.
                os.remove(part)
            idle = 0 if size(part) > before else idle + 1
            if is_permanent(error) or idle == ATTEMPTS_WITHOUT_PROGRESS:
                raise
            say("note", f"{error}; trying again")
            time.sleep(pause * 2**idle)
    raise ConnectionError(f"gave up after {ATTEMPTS} attempts")


if __name__ == "__main__":
    try:
        download(sys.argv[1], sys.argv[2], float(sys.argv[3]))
    except (OSError, http.client.HTTPException, ValueError) as error:
        sys.exit(str(error))
