"""The programs that the soak test traces: each under load of its own, and each able to say whether its own result is right.

A workload has start(), processes() (those that may be traced now; the one under load), and finish(), which ends it and
returns what was wrong (an empty list: nothing). missing() says why it cannot run here, or is None. Servers run from a folder of
their own, listen at sockets there only, and are children of the test: no daemon of the system is touched."""

import glob
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import processes  # noqa: E402

NOBODY = 65534
LIBC = "pid$target:libc.so.6::entry, pid$target:libc.so.6::return"
EVERYTHING = "pid$target:::entry, pid$target:::return"
OWN = "pid$target:a.out::entry, pid$target:a.out::return"


def find_program(*names):
    """The first that exists: a path or a name on PATH, patterns allowed."""
    for name in names:
        for path in sorted(glob.glob(name)) if "/" in name else [shutil.which(name)]:
            if path and os.access(path, os.X_OK):
                return path
    return None


def command_line(pid):
    """Empty where the process has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class Workload:
    """Common to all. `programs`: what is armed, by turns."""

    name = ""
    programs = [EVERYTHING, LIBC]
    needs = ()

    def __init__(self, targets, folder):
        self.targets, self.folder = targets, folder
        self.children, self.wrong = [], []
        self.rounds = 0

    @classmethod
    def missing(cls):
        for names in cls.needs:
            if not find_program(*names):
                return f"{names[0]} is not installed"
        return None

    def spawn(self, *arguments, **options):
        # Who runs the test in the background may have SIGINT ignored.
        settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT,
                    "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
        child = subprocess.Popen([str(a) for a in arguments], cwd=self.folder, **(settings | options))
        self.children.append(child)
        return child

    def expect(self, holds, text):
        if not holds:
            self.wrong.append(f"{self.name}: {text}")
        return holds

    def processes(self):
        return [self.children[0].pid]

    def stop_children(self):
        for child in self.children:
            if child.poll() is None:
                child.terminate()
        for child in self.children:
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                self.expect(False, f"{child.args[0]} did not end")
                child.kill()
                child.wait()


class Conversation(Workload):
    """A program that works until a line comes, then says how often it has been right."""

    def start(self):
        self.child = self.spawn(*self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.expect(self.child.stdout.readline() == b"ready\n", "it never said ready")

    def finish(self):
        try:
            text = self.child.communicate(b"end\n", 120)[0].decode()
        except subprocess.TimeoutExpired:
            self.child.kill()
            text = "no end"
        self.expect(self.child.returncode == 0, f"ended with {self.child.returncode}")
        self.expect("intact 1\n" in text, f"its own result: {text[-500:]}")
        return self.wrong


class Storm(Conversation):
    """Eight threads that allocate, fill, check and free without pause."""

    name = "storm"

    def command(self):
        return [os.path.join(self.targets, "storm")]


class Signals(Conversation):
    """Queued real-time signals, none lost and none added, in order; waits that last as long as they should."""

    name = "signals"

    def command(self):
        return [os.path.join(self.targets, "sigqueues")]


class Python(Conversation):
    """python3's own regression tests, over and over."""

    name = "python3"
    needs = (("/usr/bin/python3", "python3"),)

    @classmethod
    def missing(cls):
        done = subprocess.run([find_program(*cls.needs[0]), "-c", "import test.test_json"], check=False,
                              stderr=subprocess.DEVNULL)
        return None if done.returncode == 0 else "python3's own tests are not installed (libpython3.11-testsuite)"

    def command(self):
        return [find_program(*self.needs[0]), "-B", HERE / "python_load.py"]


class Node(Conversation):
    name = "node"
    needs = (("/usr/bin/node", "node"),)
    programs = [LIBC, OWN.replace("a.out::", "a.out:*Scavenge*:"), OWN.replace("a.out::", "a.out:uv_*:"),
                "pid$target:a.out:*Heap*:entry, pid$target:a.out:*Heap*:return"]

    def command(self):
        return [find_program(*self.needs[0]), HERE / "node_load.js"]


class Repeated(Workload):
    """A server, and a client that is run again and again in a thread of the test."""

    def start(self):
        self.serve()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.repeat)
        self.thread.start()

    def repeat(self):
        while not self.stopping.is_set() and not self.wrong:
            try:
                self.client()
                self.rounds += 1
            except subprocess.SubprocessError as error:
                self.expect(False, f"round {self.rounds}: {error}: {getattr(error, 'output', '')}")

    def run(self, *arguments, timeout=120):
        done = subprocess.run([str(a) for a in arguments], capture_output=True, timeout=timeout, check=False,
                              cwd=self.folder, stdin=subprocess.DEVNULL)
        text = (done.stdout + done.stderr).decode(errors="replace")
        self.expect(done.returncode == 0, f"{arguments[0]} ended with {done.returncode}: {text[-500:]}")
        return text

    def finish(self):
        self.stopping.set()
        self.thread.join()
        if not self.wrong:
            self.final_check()
        self.expect(self.rounds > 0, "no round was finished")
        self.stop_children()
        return self.wrong

    def final_check(self):
        pass


class Redis(Repeated):
    """redis-server under redis-benchmark; a counter that knows every request."""

    name = "redis"
    needs = (("redis-server",), ("redis-benchmark",), ("redis-cli",))
    each = 20000

    def serve(self):
        self.socket = os.path.join(self.folder, "redis.sock")
        self.spawn(find_program("redis-server"), "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no")
        self.expect(processes.wait_until(lambda: os.path.exists(self.socket), 30), "no socket")

    def client(self):
        self.run("redis-benchmark", "-s", self.socket, "-q", "-n", self.each, "-c", "8", "INCR", "counter")
        self.run("redis-benchmark", "-s", self.socket, "-q", "-n", self.each // 4, "-c", "8", "-P", "4", "-t", "set,lpush,zadd")

    def final_check(self):
        count = int(self.run("redis-cli", "-s", self.socket, "GET", "counter"))
        self.expect(count == self.rounds * self.each, f"{count} of {self.rounds * self.each} increments")


class Nginx(Repeated):
    """nginx's worker under wrk; every answer must be the file."""

    name = "nginx"
    needs = (("nginx", "/usr/sbin/nginx"), ("wrk",))

    def serve(self):
        content = pathlib.Path(self.folder, "content")
        content.mkdir()
        (content / "index.html").write_text("x" * 5000)
        self.port = 20000 + os.getpid() % 20000
        user = "user root;" if os.geteuid() == 0 else ""
        pathlib.Path(self.folder, "nginx.conf").write_text(
            f"daemon off; worker_processes 1; pid nginx.pid; error_log stderr crit; {user}\n"
            "events { worker_connections 64; }\n"
            "http { access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;\n"
            "  uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n"
            f"  server {{ listen 127.0.0.1:{self.port}; root {content}; gzip on; gzip_types *; gzip_min_length 1; }} }}\n")
        self.server = self.spawn(find_program(*self.needs[0]), "-p", self.folder, "-c", "nginx.conf", "-e", "stderr")
        self.expect(processes.wait_until(lambda: processes.children(self.server.pid), 30), "no worker")

    def processes(self):
        return processes.children(self.server.pid)

    def client(self):
        text = self.run("wrk", "-t1", "-c8", "-d1s", "-H", "Accept-Encoding: gzip", f"http://127.0.0.1:{self.port}/")
        self.expect("requests in" in text and "Non-2xx" not in text and "Socket errors" not in text, text)


class Postgres(Repeated):
    """postgres under pgbench; the sums of TPC-B must agree."""

    name = "postgres"
    needs = (("/usr/lib/postgresql/*/bin/postgres",), ("/usr/lib/postgresql/*/bin/initdb",),
             ("/usr/lib/postgresql/*/bin/pgbench", "/usr/bin/pgbench"), ("/usr/lib/postgresql/*/bin/psql",))
    programs = [EVERYTHING, LIBC, OWN.replace("a.out::", "a.out:Exec*:")]
    each = 4000

    def as_user(self):
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}

    def program(self, name):
        return find_program(f"/usr/lib/postgresql/*/bin/{name}", name)

    def serve(self):
        data = os.path.join(self.folder, "data")
        os.mkdir(data, 0o700)
        if self.as_user():
            os.chmod(self.folder, 0o755)
            os.chown(data, NOBODY, NOBODY)
            self.sockets = os.path.join(self.folder, "sockets")
            os.mkdir(self.sockets)
            os.chown(self.sockets, NOBODY, NOBODY)
        else:
            self.sockets = self.folder
        made = subprocess.run([self.program("initdb"), "-D", data, "-A", "trust", "-U", "test", "--no-sync"], check=False,
                              capture_output=True, cwd=data, **self.as_user())
        self.expect(made.returncode == 0, f"initdb: {made.stderr.decode()}")
        self.server = self.spawn(self.program("postgres"), "-D", data, "-k", self.sockets, "-h", "", "-F", **self.as_user())
        self.connection = ["-h", self.sockets, "-U", "test"]
        pgbench = [self.program("pgbench"), *self.connection]
        up = processes.wait_until(lambda: subprocess.run([*pgbench, "-i", "-q", "postgres"], check=False,
                                                         capture_output=True).returncode == 0, 60)
        self.expect(up, "it does not answer")

    def processes(self):
        backends = [pid for pid in processes.children(self.server.pid) if b"postgres: test" in command_line(pid)]
        return backends or [self.server.pid]

    def client(self):
        self.run(self.program("pgbench"), *self.connection, "-n", "-c", "2", "-t", self.each, "postgres")

    def final_check(self):
        query = ("select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers),"
                 "(select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history),"
                 "(select count(*) from pgbench_history)")
        text = self.run(self.program("psql"), *self.connection, "-At", "-F", " ", "-c", query, "postgres")
        accounts, tellers, branches, history, count = (int(n) for n in text.split())
        self.expect(accounts == tellers == branches == history, f"the sums differ: {text}")
        self.expect(count == self.rounds * 2 * self.each, f"{count} of {self.rounds * 2 * self.each} transactions")


class Sqlite(Workload):
    """sqlite3 that is asked again and again; the answers are known."""

    name = "sqlite3"
    needs = (("sqlite3",),)
    # 3,000 rows: their number, a sum in two ways, a join over the key. Then all are deleted.
    question = """with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000)
      insert into t(v) select random() & 1023 from n;
      select count(*), sum(v) = (select sum(v * n) from (select v, count(*) n from t group by v)),
        (select count(*) from t a join t b on a.id = b.id + 1) from t;
      delete from t;
      """

    def start(self):
        self.child = self.spawn(find_program("sqlite3"), ":memory:", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.child.stdin.write(b"create table t(id integer primary key, v integer); create index i on t(v);\n")
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.repeat)
        self.thread.start()

    def repeat(self):
        while not self.stopping.is_set() and not self.wrong:
            self.child.stdin.write(self.question.encode())
            self.child.stdin.flush()
            answer = self.child.stdout.readline()
            self.expect(answer == b"3000|1|2999\n", f"round {self.rounds}: {answer}")
            self.rounds += 1

    def finish(self):
        self.stopping.set()
        self.thread.join()
        self.child.stdin.close()
        self.expect(self.child.wait(60) == 0, f"ended with {self.child.returncode}")
        self.expect(self.rounds > 0, "no round was finished")
        return self.wrong


class Xz(Repeated):
    """xz -T2, over and over: what it made must be what was there. Its processes live for some seconds each."""

    name = "xz"
    needs = (("xz",),)
    programs = [EVERYTHING, LIBC, "pid$target:liblzma*::entry, pid$target:liblzma*::return"]

    def serve(self):
        self.plain = os.path.join(self.folder, "plain")
        pathlib.Path(self.plain).write_text(random.Random(1).randbytes(6 << 20).hex())
        self.digest = hashlib.sha256(pathlib.Path(self.plain).read_bytes()).hexdigest()
        self.current = None

    def client(self):
        packed = self.plain + ".xz"
        self.current = subprocess.Popen(["xz", "-T2", "--block-size=2MiB", "-6", "-k", "-f", self.plain],
                                        stdin=subprocess.DEVNULL)
        status = self.current.wait()
        self.expect(status == 0, f"ended with {status}")
        done = subprocess.run(["xz", "-dc", packed], capture_output=True, check=True)
        self.expect(hashlib.sha256(done.stdout).hexdigest() == self.digest, "other bytes came out than went in")

    def processes(self):
        return [self.current.pid] if self.current and self.current.poll() is None else []


ALL = [Storm, Signals, Python, Node, Redis, Postgres, Nginx, Sqlite, Xz]
