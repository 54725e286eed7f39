"""Records and stops what any Python process below a test does towards the network.

Python imports this module when it starts, wherever its folder stands on PYTHONPATH; children
inherit that. An audit hook sees every use of sockets in Python, whatever library it comes from, and
cannot be taken off again.

What stays on this machine is let through: sockets in the file system (AF_UNIX), which processes
of `multiprocessing` speak through, and addresses that are this machine's own (127.0.0.0/8, ::1,
``localhost``).
"""

import errno
import ipaddress
import json
import os
import socket
import sys

_RECORD = os.environ["DUALLGD_TEST_RECORD"]
_PROGRAMS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")
_LOOKS_UP = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_REACHES_OUT = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")


def note(event, what):
    """Add a line to the record, whole even where several processes write at once."""
    line = json.dumps({"event": event, "what": str(what)}) + "\n"
    file = os.open(_RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


def is_this_machine(host):
    if host in ("localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def guard(event, arguments):
    if event in _PROGRAMS:
        note("program", arguments[0])
    elif event in _LOOKS_UP and not is_this_machine(arguments[0]):
        note("network", f"{event} {arguments[0]}")
        raise socket.gaierror(socket.EAI_FAIL, "stopped by a test")
    elif event in _REACHES_OUT:
        used, address = arguments[:2]
        if used.family == socket.AF_UNIX or address is None:  # None: connected before
            return
        if used.family in (socket.AF_INET, socket.AF_INET6) and is_this_machine(address[0]):
            return
        note("network", f"{event} {address}")
        raise OSError(errno.ENETUNREACH, "stopped by a test")


note("start", os.getpid())
sys.addaudithook(guard)
