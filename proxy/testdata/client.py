"""The client inside the sandbox: takes a JSON object a line, does what it says
and prints what it got as a JSON line.

  send       latin-1 texts, each sent on its own, to the proxy or to the address "to"
  responses  how many HTTP responses to read then; else everything until the end
  tls        after a 200, or at once where "to" is given: a handshake with "sni"
             (null for none), in one-byte writes if "split", together with "send" if
             "early", and a GET for "host"
  then       latin-1 text to send after a 200
  code       Python that leaves its answer in "result"
"""
import http.client
import json
import socket
import ssl
import sys

PROXY = ("127.0.0.1", 3128)
TIMEOUT = 20


class Stream:
    """What http.client takes for a socket: one buffer for many responses."""

    def __init__(self, sock):
        self.file = sock.makefile("rb")
        self.close = lambda: None

    def makefile(self, *_):
        return self

    def __getattr__(self, name):
        return getattr(self.file, name)


def response(stream, method):
    r = http.client.HTTPResponse(stream, method=method)
    try:
        r.begin()
        body = "" if r.status == 200 and method == "CONNECT" else r.read().decode("latin-1")
    except (OSError, http.client.HTTPException) as e:
        return {"closed": type(e).__name__}
    return {"status": r.status, "egress": r.getheader("X-Sbench-Egress"), "body": body, "location": r.getheader("Location")}


def hello_and_more(sock, spec, first=b""):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=spec.get("sni"))

    def flush(split=False):
        data = outgoing.read()
        if not split:
            return sock.sendall(data)
        for i in range(len(data)):
            sock.send(data[i:i + 1])

    def drive(step):
        while True:
            try:
                value = step()
                flush()
                return value
            except ssl.SSLWantReadError:
                flush(spec.get("split", False))
                data = sock.recv(65536)
                if not data:
                    raise ConnectionError("closed")
                incoming.write(data)

    if first:  # the CONNECT and the ClientHello in one write
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            sock.sendall(first + outgoing.read())
        head = b""
        while b"\r\n\r\n" not in head:
            data = sock.recv(1)
            if not data:
                raise ConnectionError("closed")
            head += data
    drive(tls.do_handshake)
    request = "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (spec.get("path", "/"), spec["host"])
    tls.write(request.encode())
    flush()
    got = b""
    while True:
        try:
            data = drive(lambda: tls.read(65536))
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            break
        if not data:
            break
        got += data
    return got.decode("latin-1")


def everything(sock):
    got = b""
    try:
        while True:
            data = sock.recv(65536)
            if not data:
                return {"got": got.decode("latin-1")}
            got += data
    except OSError as e:
        return {"got": got.decode("latin-1"), "closed": type(e).__name__}


def ask(row):
    if "code" in row:
        space = {"TIMEOUT": TIMEOUT, "PROXY": PROXY}
        try:
            exec(row["code"], space)
        except OSError as e:
            return {"error": e.strerror or str(e)}
        return {"result": space.get("result")}
    sends = [s.encode("latin-1") for s in row.get("send", [])]
    with socket.create_connection(tuple(row.get("to") or PROXY), TIMEOUT) as sock:
        spec = row.get("tls")
        if spec and spec.get("early"):
            return {"tls": hello_and_more(sock, spec, sends[0])}
        if row.get("to") and spec:
            return {"tls": hello_and_more(sock, spec)}
        for data in sends:
            sock.sendall(data)
        if "responses" not in row:
            return everything(sock)
        stream, answers = Stream(sock), []
        method = sends[0].split(b" ")[0].decode("latin-1")
        for _ in range(row["responses"]):
            answers.append(response(stream, method))
        if answers[0].get("status") == 200 and spec:
            return {"answers": answers, "tls": hello_and_more(sock, spec)}
        if answers[0].get("status") == 200 and "then" in row:
            sock.sendall(row["then"].encode("latin-1"))
            return {"answers": answers, "then": everything(sock)}
        return {"answers": answers}


def main():
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            answer = ask(json.loads(line))
        except (OSError, ssl.SSLError) as e:
            answer = {"error": getattr(e, "reason", None) or e.strerror or str(e), "type": type(e).__name__}
        print(json.dumps(answer), flush=True)


main()
