"""The untrusted side, with real processes: confined, watched, and gone afterwards whatever they did."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest
import torch

from egg.evaluator.process import landlock
from egg.evaluator.process.handle import Fault, ForkServer, WorkerHandle
from egg.evaluator.process.sandbox import Limits
from egg.evaluator.transport import exchange
from egg.evaluator.transport.arena import create
from egg.evaluator.transport.protocol import Attach, Built, Fresh, Load, TensorForm, Warm
from tests.leftovers import PLANTED, Sandbox, sandboxed

GIB = 1 << 30
LIMITS = Limits(address_space=4 * GIB, resident=GIB, processes=32, open_files=128, output=1 << 20)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
with_landlock = pytest.mark.skipif(landlock.abi() < 1, reason="this kernel has no Landlock")

GOOD = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    tmp_path_factory.getbasetemp()
    with sandboxed() as place:
        yield place


@pytest.fixture(scope="module")
def forkserver(sandbox: Sandbox) -> Iterator[ForkServer]:
    home = ForkServer("interpret", LIMITS, Warm("cpu", watch=False))
    yield home
    home.close()
    assert sandbox.settles(lambda: not sandbox.processes()), "processes were left behind"
    assert sandbox.folders() == []


@pytest.fixture
def worker(forkserver: ForkServer) -> Iterator[WorkerHandle]:
    one = forkserver.worker()
    yield one
    one.end()


def load(worker: WorkerHandle, source: str, timeout: float = 30.0) -> Built:
    """Have the worker import ``source`` and build its ``ModelNew``."""
    arguments = exchange.whole(([], {}))
    return worker.ask(Load(source, arguments, 0, "match"), timeout)


def answer_of(worker: WorkerHandle, code: str) -> str:
    """What ``code`` leaves in ``answer`` when it runs as a candidate at import."""
    with pytest.raises(Fault) as caught:
        load(worker, f"{code}\nraise RuntimeError(f'answer: {{answer}}')")
    assert caught.value.reason == "candidate.error", caught.value
    return caught.value.evidence.split("answer: ", 1)[1]


def refused(worker: WorkerHandle, code: str, timeout: float = 30.0) -> Fault:
    with pytest.raises(Fault) as caught:
        load(worker, code + "\n" + GOOD, timeout)
    return caught.value


def test_an_honest_candidate_loads_and_is_described(worker):
    constructor = "    def __init__(self):\n        super().__init__(3, 2)\n"
    reply = load(worker, f"import torch\nclass ModelNew(torch.nn.Linear):\n{constructor}")
    assert reply.parameters == ("weight", "bias")
    assert reply.state["weight"] == TensorForm((2, 3), "torch.float32")


# confinement


@as_root
def test_a_candidate_is_nobody(worker):
    uid, gid, groups = answer_of(worker, "import os\nanswer = (os.getuid(), os.getgid(), os.getgroups())")[
        1:-1
    ].split(", ", 2)
    assert int(uid) >= 1_000_000_000
    assert int(gid) >= 1_000_000_000
    assert groups == "[]"
    assert "own user" in worker.means


@as_root
def test_every_candidate_is_another_nobody(forkserver):
    found = set()
    for _ in range(2):
        worker = forkserver.worker()
        found.add(answer_of(worker, "import os\nanswer = os.getuid()"))
        worker.end()
    assert len(found) == 2


def test_the_environment_is_an_allow_list(worker):
    names = eval(answer_of(worker, "import os\nanswer = sorted(os.environ)"))
    assert PLANTED not in names
    assert {"PATH", "HOME", "TRITON_CACHE_DIR"} <= set(names)
    assert not [name for name in names if "KEY" in name or "TOKEN" in name or "SECRET" in name]


def test_the_secret_is_not_in_any_environment_it_can_read(worker):
    code = f"""
import os
answer = []
for entry in os.listdir("/proc"):
    if entry.isdigit():
        try:
            if b"{PLANTED}" in open(f"/proc/{{entry}}/environ", "rb").read():
                answer.append(entry)
        except OSError:
            pass
"""
    if os.geteuid() == 0:
        assert answer_of(worker, code) == "[]"


@with_landlock
def test_files_outside_are_closed(worker, tmp_path):
    secret = tmp_path / "expected.txt"
    secret.write_text("42")
    tmp_path.chmod(0o755)
    secret.chmod(0o644)
    code = f"""
import os
answer = []
for path in ({str(secret)!r}, "/home", "/boot", "/etc", "/etc/passwd", "/etc/shadow", "/etc/ssh"):
    try:
        (os.listdir if os.path.isdir(path) else open)(path)
        answer.append(path)
    except OSError:
        pass
"""
    assert answer_of(worker, code) == "[]"


@with_landlock
def test_writing_is_for_its_own_folder(worker, tmp_path):
    tmp_path.chmod(0o777)
    code = f"""
import os, tempfile
answer = []
for folder in ({str(tmp_path)!r}, "/tmp", "/usr", "/etc", "/root", os.getcwd(), tempfile.gettempdir()):
    try:
        with open(os.path.join(folder, "was-here"), "w") as file:
            file.write("x")
        answer.append(folder)
    except OSError:
        pass
answer = answer == [os.getcwd(), tempfile.gettempdir()]
"""
    assert answer_of(worker, code) == "True"


def test_there_is_no_network(worker):
    if "network namespace" not in worker.means:
        pytest.skip("this machine lends no namespaces")
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    code = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=3)
    answer = "connected"
except OSError as error:
    answer = "refused"
"""
    assert answer_of(worker, code) == "refused"
    server.close()


@as_root
def test_nobody_of_ours_can_be_signalled(worker):
    code = f"""
import os, signal
answer = []
for pid in ({os.getpid()}, os.getppid(), 1):
    try:
        os.kill(pid, 0)
        answer.append(pid)
    except OSError:
        pass
"""
    assert answer_of(worker, code) == "[]"


@as_root
def test_privileges_do_not_come_back(worker):
    code = """
import os
answer = []
for attempt in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.chroot("."), lambda: os.nice(-5)):
    try:
        attempt()
        answer.append("yes")
    except OSError:
        pass
"""
    assert answer_of(worker, code) == "[]"


def test_nothing_of_the_oracle_is_inherited(worker):
    """Open descriptors: the three streams, the channel, and what Python itself holds; no other sockets."""
    code = """
import os
folder = "/proc/self/fd/"
answer = [os.readlink(folder + n) for n in os.listdir(folder) if os.path.lexists(folder + n)]
answer = sum(name.startswith("socket:") for name in answer)
"""
    assert answer_of(worker, code) == "1"


# limits


def test_a_hung_candidate_is_killed_in_time(worker):
    started = time.monotonic()
    fault = refused(worker, "while True: pass", timeout=1.0)
    assert fault.reason == "limits.timeout"
    assert time.monotonic() - started < 40
    assert not worker.alive


def test_a_candidate_that_stops_itself_is_killed_in_time(worker):
    fault = refused(worker, "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", timeout=1.0)
    assert fault.reason == "limits.timeout"


def test_a_candidate_that_ignores_signals_is_killed(worker):
    code = """
import signal
for n in range(1, 32):
    try:
        signal.signal(n, signal.SIG_IGN)
    except OSError:
        pass
while True:
    pass
"""
    assert refused(worker, code, timeout=1.0).reason == "limits.timeout"


def test_memory_has_a_limit_of_address_space(worker):
    assert refused(worker, "block = bytearray(64 << 30)").reason == "limits.memory"


def test_memory_has_a_limit_of_residence(worker):
    code = """
import time
blocks = []
while True:
    blocks.append(bytearray(b"x") * (64 << 20))
    time.sleep(0.02)
"""
    assert refused(worker, code).reason == "limits.memory"


def test_printing_has_a_limit(worker):
    assert refused(worker, "while True: print('x' * 10000)").reason == "limits.output"


def test_last_words_are_evidence(worker):
    fault = refused(worker, "import os\nprint('farewell', flush=True)\nos._exit(3)")
    assert fault.reason == "limits.died"
    assert "farewell" in fault.evidence


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
        "import os\nos.closerange(3, 200)",
        "import sys\nsys.exit(0)",
        "raise KeyboardInterrupt",
    ],
)
def test_ending_early_is_a_fault_and_not_a_success(worker, code):
    assert refused(worker, code).reason == "limits.died"


@as_root
def test_a_fork_bomb_stays_small_and_leaves_nothing(worker, sandbox):
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    fault = refused(worker, bomb, timeout=2.0)
    assert fault.reason in ("limits.timeout", "limits.protocol", "limits.died")
    assert sandbox.settles(lambda: not sandbox.confined())


def test_a_daemon_does_not_outlive_its_candidate(worker, sandbox):
    daemon = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(n, signal.SIG_IGN)
        os.closerange(0, 200)
        time.sleep(3600)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
    before = set(sandbox.processes())
    load(worker, daemon + GOOD)
    assert len(set(sandbox.processes()) - before) >= 1
    worker.end()
    assert sandbox.settles(lambda: set(sandbox.processes()) <= before)


def test_a_daemon_does_not_outlive_a_candidate_that_died_itself(worker, sandbox):
    before = set(sandbox.processes())
    fault = refused(worker, "import os, time\nif os.fork() == 0: time.sleep(3600)\nos._exit(0)")
    assert fault.reason == "limits.died"
    assert sandbox.settles(lambda: set(sandbox.processes()) <= before)


def test_the_scratch_folder_goes_with_the_worker(forkserver, sandbox):
    worker = forkserver.worker()
    [root] = sandbox.folders()
    before = set(os.listdir(sandbox.folder / root))
    load(worker, "open('left-behind', 'w').write('x')\n" + GOOD)
    [file] = (sandbox.folder / root).glob("worker-*/left-behind")
    assert file.parent.name in before
    worker.end()
    assert sandbox.settles(lambda: not file.parent.exists())


def test_nothing_is_left_in_shared_memory(worker):
    name = f"/dev/shm/egg-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        load(worker, f"try:\n    open({name!r}, 'w').write('x')\nexcept OSError: pass\n" + GOOD)
        worker.end()
        assert not os.path.exists(name)
    finally:
        if os.path.exists(name):
            os.unlink(name)


# the channel

FIND_CHANNEL = """
import json, os, socket, stat, struct
fds = [int(n) for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}")]
fd = next(n for n in fds if n > 2 and stat.S_ISSOCK(os.fstat(n).st_mode))
channel = socket.socket(fileno=os.dup(fd))
def write(body):
    channel.sendall(struct.pack("!I", len(body)) + body)
"""


@pytest.mark.parametrize(
    "forgery",
    [
        "channel.sendall(b'garbage that is no protocol at all')",
        "write(b'not json')",
        "write(b'[]')",
        "write(b'[' * 100000)",
        "write(json.dumps({'id': 999, 'verdict': 'accepted'}).encode())",
        "write(json.dumps({'verdict': 'accepted'}).encode())",
        "write(json.dumps({'id': 2, 'reply': {'state': 3, 'parameters': None}}).encode())",
        "write(json.dumps({'id': 2, 'fault': 'none'}).encode())",
        'write(b\'{"id": 2, "reply": {"state": {}, "parameters": [NaN]}}\')',
        "channel.sendall(struct.pack('!I', 1 << 31))",
        "channel.sendall(struct.pack('!I', 1000) + b'{')",
        "channel.shutdown(socket.SHUT_RDWR)",
    ],
)
def test_forged_replies_are_faults(worker, forgery):
    fault = refused(worker, f"{FIND_CHANNEL}\n{forgery}\nimport time\ntime.sleep(60)", timeout=2.0)
    assert fault.reason in ("limits.protocol", "limits.died", "limits.timeout")


def test_an_answer_that_trickles_in_is_not_waited_for(worker):
    """One byte at a time would keep a deadline per read from ever passing."""
    trickle = """
import time
channel.sendall(struct.pack("!I", 100000))
while True:
    channel.sendall(b" ")
    time.sleep(0.2)
"""
    started = time.monotonic()
    fault = refused(worker, f"{FIND_CHANNEL}\n{trickle}", timeout=1.5)
    assert fault.reason == "limits.protocol"
    assert time.monotonic() - started < 40


def test_a_reply_written_ahead_gains_nothing_but_a_fault(worker):
    """A forged reply to this request leaves the true one to be read as an answer to the next."""
    ahead = "write(json.dumps({'id': 2, 'reply': {'state': {}, 'parameters': [], 'forward': []}}).encode())"
    load(worker, f"{FIND_CHANNEL}\n{ahead}\n{GOOD}")
    with pytest.raises(Fault) as caught:
        worker.ask(Fresh(), 10)
    assert caught.value.reason == "limits.protocol"


def test_descriptors_sent_along_are_closed(forkserver):
    """A candidate cannot exhaust the oracle's descriptors by sending it some."""
    worker = forkserver.worker()
    count = len(os.listdir("/proc/self/fd"))
    flood = "import array\nsocket.send_fds(channel, [b'xxxx'], [0] * 8)"
    refused(worker, f"{FIND_CHANNEL}\n{flood}\nimport time\ntime.sleep(60)", timeout=2.0)
    assert len(os.listdir("/proc/self/fd")) <= count


def test_a_dead_worker_answers_every_request_with_a_fault(worker):
    refused(worker, "import os\nos._exit(0)")
    for _ in range(2):
        with pytest.raises(Fault) as caught:
            worker.ask(Fresh(), 5)
        assert caught.value.reason == "limits.died"
    worker.end()


def test_shared_memory_cannot_be_pulled_away(worker):
    memory = create(1 << 16, torch.device("cpu"))
    worker.ask(Attach(memory.handle()), 10, memory.fds())
    pull = """
import os
answer = []
for n in os.listdir("/proc/self/fd"):
    try:
        if "egg-arena" in os.readlink(f"/proc/self/fd/{n}"):
            answer.append("found")
            os.ftruncate(int(n), 0)
            answer.append("truncated")
    except OSError:
        pass
"""
    assert set(eval(answer_of(worker, pull))) == {"found"}
    memory.close()


# the forkserver


def test_a_dead_forkserver_is_replaced(forkserver, sandbox):
    first = forkserver.worker()
    forkserver.prepare()
    forkservers = [
        p
        for p in sandbox.processes()
        if os.stat(f"/proc/{p}").st_uid == os.geteuid() and _parent(p) == os.getpid()
    ]
    assert len(forkservers) == 1
    os.kill(forkservers[0], signal.SIGKILL)
    assert sandbox.settles(lambda: forkservers[0] not in sandbox.processes())
    second = forkserver.worker()
    load(second, GOOD)
    first.end()
    second.end()


@as_root
def test_a_worker_goes_with_its_supervisor(forkserver):
    worker = forkserver.worker()
    load(worker, GOOD)
    os.kill(_parent(worker.pid), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{worker.pid}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{worker.pid}")
    worker.end()


def test_children_of_the_compiling_kind_are_confined_alike():
    home = ForkServer("compile", LIMITS, Warm("cpu", watch=False))
    try:
        worker = home.worker()
        assert "rlimits" in worker.means
        assert answer_of(worker, f"import os\nanswer = {PLANTED!r} in os.environ") == "False"
        worker.end()
    finally:
        home.close()


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])
