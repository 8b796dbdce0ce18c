"""Linux, macOS and Windows: what only POSIX systems have is not needed to import the package."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Imports everything twice: the first time for other packages, which have their own ways on each system. Then
# what Windows lacks is removed, and every module of this package is imported again.
PROGRAM = """
import importlib, io, os, pathlib, pkgutil, signal, socket, sys, time

def modules():
    for name in ("pyspark_rocketmq", "pyspark_rocketmq_compat"):
        yield name
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
            if not module.name.endswith(".__main__"):
                yield module.name

def import_all():
    names = list(modules())
    for name in names:
        importlib.import_module(name)
    return names

import_all()
for name in list(sys.modules):
    if name.split(".")[0].startswith("pyspark_rocketmq"):
        del sys.modules[name]

sys.platform = "win32"
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix"):
    sys.modules[name] = None
WINDOWS_SIGNALS = {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
for name in [name for name in dir(signal) if name.startswith("SIG") and name[3:].isalpha()]:
    if name not in WINDOWS_SIGNALS:
        delattr(signal, name)
for place, names in {
    signal: "alarm pause setitimer sigwait pthread_kill siginterrupt pthread_sigmask",
    os: "fork forkpty register_at_fork setsid getsid getpgid setpgid killpg getuid geteuid getgid getegid "
        "sysconf uname getloadavg nice wait wait3 wait4 mkfifo chown chroot openpty statvfs",
    socket: "AF_UNIX SO_REUSEPORT MSG_DONTWAIT",
    time: "tzset pthread_getcpuclockid",
}.items():
    for name in names.split():
        if hasattr(place, name):
            delattr(place, name)

def on_windows(function, name):
    def call(file, *args, **options):
        if not isinstance(file, int) and os.fspath(file).startswith(("/proc", "/sys")):
            raise AssertionError(f"{name} {file}")
        return function(file, *args, **options)
    return call

for place, name in ((io, "open"), (os, "stat"), (os, "listdir"), (os, "scandir")):
    setattr(place, name, on_windows(getattr(place, name), name))
__builtins__.open = io.open

print(len(import_all()))
"""


@pytest.mark.since_spark("4.1")
def test_every_module_imports_without_what_windows_lacks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) > 400
