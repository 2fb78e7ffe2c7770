"""The fork server's own process: imports the planner, and forks a process per message.

A message is the length of a `Setup`, the descriptors of a process's pipes, and the `Setup`. Without
a service there are no more messages, and the server ends; its processes end with it.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from typing import NoReturn

from automap.service.planners.messages import LENGTH, Setup

_PR_SET_PDEATHSIG = 1
_NUM_DESCRIPTORS = 4


def main() -> None:
    """Fork until the service is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which then stops us
    control = socket.socket(fileno=os.dup(0))
    _import_planner()
    statuses: dict[int, int] = {}
    signal.signal(signal.SIGCHLD, lambda *_: _report_ends(statuses))
    while (received := socket.recv_fds(control, LENGTH.size, _NUM_DESCRIPTORS))[0]:
        size, descriptors, *_ = received
        message = control.recv(LENGTH.unpack(size)[0], socket.MSG_WAITALL)
        _fork(Setup.model_validate_json(message), descriptors, statuses, control)


def _import_planner() -> None:
    """All of it: what a process imports by itself, every other one imports again."""
    from automap.service.planners.child import import_planner

    import_planner()
    gc.collect()
    gc.freeze()  # what was imported stays, so no collection need look at it


def _fork(
    setup: Setup, descriptors: list[int], statuses: dict[int, int], control: socket.socket
) -> None:
    stdin, stdout, status, stderr = descriptors
    server = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})  # it may end before it is noted
    pid = os.fork()
    if pid == 0:
        _become_planner(setup, descriptors, [*statuses.values(), control.fileno()], server)
    _report(status, pid)
    statuses[pid] = status
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    for each in (stdin, stdout, stderr):
        os.close(each)


def _become_planner(
    setup: Setup, descriptors: list[int], of_server: list[int], server: int
) -> NoReturn:
    """Work as a planner process until the service has no more for it."""
    from automap.service.planners import child

    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        _end_with(server)
        stdin, answers, status, stderr = descriptors
        for end in (*of_server, status):
            os.close(end)
        os.dup2(stdin, 0)
        os.dup2(stderr, 2)
        os.dup2(stderr, 1)  # whatever prints must not spoil an answer
        for end in (stdin, stderr):
            os.close(end)
        child.serve(setup, answers)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _end_with(server: int) -> None:
    """End when the fork server does; elsewhere than on Linux the service ends us."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:
            os._exit(1)


def _report_ends(statuses: dict[int, int]) -> None:
    while statuses:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return  # a signal that came within this call has had the last of them reported
        if pid == 0:
            return
        told = statuses.pop(pid)
        _report(told, os.waitstatus_to_exitcode(status))
        os.close(told)


def _report(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(status, b"%d\n" % number)


if __name__ == "__main__":
    main()
