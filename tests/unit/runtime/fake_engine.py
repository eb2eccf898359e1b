"""The smallest process that is an engine to the sidecar: ``fake_engine.py <port> <behaviour>...``.

``deaf`` ignores SIGTERM, ``sick`` answers 503, ``worker`` starts a child that lives on, ``deaf-worker`` one that
ignores SIGTERM, ``dies`` exits at once.
"""

import os
import signal
import socket
import sys

port, behaviour = int(sys.argv[1]), set(sys.argv[2:])
if "dies" in behaviour:
    os._exit(3)
if behaviour & {"worker", "deaf-worker"} and os.fork() == 0:
    if "deaf-worker" in behaviour:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()
if "deaf" in behaviour:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(("127.0.0.1", port))
listener.listen()
status = b"503 Sick" if "sick" in behaviour else b"200 OK"
while True:
    connection, _ = listener.accept()
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    connection.close()
