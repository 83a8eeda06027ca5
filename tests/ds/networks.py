"""Two machines and the line between them, on this one: late, lossy, or cut.

Two network namespaces have a tunnel device each; whatever packet comes out of one is put into the other by a
thread here, later or never. That needs root, ``ip`` and ``/dev/net/tun``, and nothing of the kernel's own
queueing, which many a small machine lacks.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from pathlib import Path

HOSTS = ("10.99.7.1", "10.99.7.2")
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000


def possible() -> bool:
    """Whether namespaces and tunnels can be made here."""
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        return False
    try:
        return subprocess.run(["ip", "netns", "list"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def enter(namespace: str) -> None:
    """From here on this thread, and those that it begins, are there."""
    with (Path("/var/run/netns") / namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"no way into {namespace}")


class Line:
    """Between ``spaces``, whose addresses are :data:`HOSTS`; to be closed.

    delay: seconds each way; loss: chunk of the packets that never arrive; cut: nothing passes
    """

    def __init__(self, *, delay: float, loss: float, seed: int = 0) -> None:
        self.spaces = tuple(f"sac{os.getpid()}_{side}" for side in range(2))
        self.delay, self.loss, self.cut = delay, loss, False
        self.lost = self.passed = 0
        self._draw = random.Random(seed).random
        self._ends = [self._end(space, host) for space, host in zip(self.spaces, HOSTS, strict=True)]
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="line", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Nothing of it is left; no process may be there any more."""
        self._closed.set()
        self._thread.join()
        for end, space in zip(self._ends, self.spaces, strict=True):
            os.close(end)
            _ip("netns", "del", space)

    def _end(self, space: str, host: str) -> int:
        _ip("netns", "add", space)
        found: list[int] = []
        thread = threading.Thread(
            target=lambda: (enter(space), found.append(_tunnel()))
        )  # and is there alone
        thread.start()
        thread.join()
        _ip("-n", space, "addr", "add", f"{host}/24", "dev", "sac0")
        for device in ("lo", "sac0"):
            _ip("-n", space, "link", "set", device, "up")
        return found[0]

    def _carry(self) -> None:
        under_way: list[tuple[float, int, int, bytes]] = []  # when, in which order, into which end, what
        with selectors.DefaultSelector() as ready:
            for side, end in enumerate(self._ends):
                ready.register(end, selectors.EVENT_READ, 1 - side)
            while not self._closed.is_set():
                for key, _ in ready.select(0.002 if under_way else 0.05):
                    self._take(os.read(key.fd, 65536), int(key.data), under_way)
                while under_way and under_way[0][0] <= time.monotonic():
                    _, _, side, packet = heapq.heappop(under_way)
                    os.write(self._ends[side], packet)

    def _take(self, packet: bytes, side: int, under_way: list[tuple[float, int, int, bytes]]) -> None:
        if self.cut or self._draw() < self.loss:
            self.lost += 1
            return
        self.passed += 1
        heapq.heappush(under_way, (time.monotonic() + self.delay, self.passed, side, packet))


def _tunnel() -> int:
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", b"sac0", _IFF_TUN | _IFF_NO_PI))
    return end


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
