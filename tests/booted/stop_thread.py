#!/usr/bin/env python3
"""Stops one thread of a process from outside, until the process ends. Needs root.

    stop_thread.py PID THREAD      THREAD: its name, as `ps -L` shows it
"""

import ctypes
import os
import sys

PTRACE_ATTACH = 16
WALL = 0x40000000  # waits also for threads that are not children of this process

process, name = sys.argv[1:]
tasks = f"/proc/{process}/task"
thread = next((int(of) for of in os.listdir(tasks) if open(f"{tasks}/{of}/comm").read().strip() == name), None)
if thread is None:
    sys.exit(f"process {process} has no thread {name}")
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(PTRACE_ATTACH, thread, None, None) != 0:
    sys.exit(f"cannot stop thread {name}: {os.strerror(ctypes.get_errno())}")
os.waitpid(thread, WALL)
print(f"{name} is stopped", flush=True)
# The thread never continues. Each signal to it is reported here as a stop. This program waits for
# the end of the thread, because the process would stay a zombie until then.
while True:
    _, status = os.waitpid(thread, WALL)
    if not os.WIFSTOPPED(status):
        break
