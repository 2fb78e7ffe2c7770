"""Stands in for the job server of a Ray head: the part of its HTTP that the worker speaks.

Jobs are processes of this machine. They hold a pipe to this process and end with it, as what runs
on a Ray ends with its head; a new one knows nothing of its predecessor's jobs. It starts in a blink
and takes no memory, so that hundreds of jobs can be run under faults; `--ray` takes the real one.
"""

import argparse
import io
import json
import os
import signal
import subprocess
import threading
import time
import zipfile
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

NODE = "the-only-node"
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Job:
    entrypoint: str
    process: subprocess.Popen[bytes]
    log: Path
    stop_seconds: float
    stopped: bool = False

    def details(self, submission_id: str) -> dict[str, object]:
        code = self.process.poll()
        status = "RUNNING"
        if code is not None:
            status = "STOPPED" if self.stopped else "FAILED" if code else "SUCCEEDED"
        return {
            "type": "SUBMISSION",
            "submission_id": submission_id,
            "status": status,
            "entrypoint": self.entrypoint,
            "message": f"exit code {code}",
            "driver_node_id": NODE,
            "driver_exit_code": code,
        }

    def stop(self) -> None:
        self.stopped = self.process.poll() is None
        self.process.terminate()
        try:
            self.process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Head(ThreadingHTTPServer):
    daemon_threads = True
    # What a predecessor's connections keep of the port is no reason to wait.
    allow_reuse_address = True

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder = folder
        self.packages: dict[str, bytes] = {}
        self.jobs: dict[str, Job] = {}
        self.lock = threading.Lock()

    def submit(self, asked: dict[str, Any]) -> bool:
        """Start a job; False: there is one of this name."""
        name = asked["submission_id"]
        environment = asked["runtime_env"]
        with self.lock:
            if name in self.jobs:
                return False
            # A name may come again after a restart: the folder of its predecessor stays as it is.
            folder = self.folder / f"{name}-{os.getpid()}"
            folder.mkdir(parents=True)
            package = environment["working_dir"].rpartition("/")[2]
            with zipfile.ZipFile(io.BytesIO(self.packages[package])) as archive:
                archive.extractall(folder)
            variables = environment.get("env_vars", {})
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    ["bash", "-c", asked["entrypoint"]],
                    cwd=folder,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **variables},
                    start_new_session=True,
                )
            stop_seconds = float(variables.get("RAY_JOB_STOP_WAIT_TIME_S", 3))
            self.jobs[name] = Job(asked["entrypoint"], process, folder / "log", stop_seconds)
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Head

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: there would be hundreds of lines a second."""

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        *_, kind, name = address.path.split("/")
        if name == "version":
            self.answer(200, {"version": "4", "ray_version": version("ray"), "ray_commit": ""})
        elif kind == "gcs":
            self.answer(200 if name in self.server.packages else 404, "")
        elif kind == "jobs" and name in self.server.jobs:
            self.answer(200, self.server.jobs[name].details(name))
        elif kind == "logs":
            log = parse_qs(address.query)["filename"][0]
            job = self.server.jobs.get(log.removeprefix("job-driver-").removesuffix(".log"))
            if job is None:
                self.answer(404, "no log")
            elif name == "file":
                self.answer(200, job.log.read_bytes())
            else:
                self.follow(job)
        else:
            self.answer(404, f"{self.path} does not exist")

    def do_PUT(self) -> None:
        self.server.packages[self.path.rpartition("/")[2]] = self.body()
        self.answer(200, "")

    def do_POST(self) -> None:
        body = self.body()
        if self.path == "/api/jobs/":
            asked = json.loads(body)
            try:
                new = self.server.submit(asked)
            except (OSError, KeyError) as error:  # a full disk; a package that went with the last
                self.answer(500, f"{type(error).__name__}: {error}")
                return
            name = asked["submission_id"]
            answer = {"job_id": name, "submission_id": name}
            self.answer(200, answer) if new else self.answer(400, f"job {name} exists already")
            return
        job = self.server.jobs.get(self.path.split("/")[-2])
        if job is None:
            self.answer(404, "does not exist")
            return
        threading.Thread(target=job.stop).start()
        self.answer(200, {"stopped": True})

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, content: object) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def follow(self, job: Job) -> None:
        """The log from its beginning, and whatever it grows by, as long as somebody listens."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with job.log.open("rb") as log:
            while True:
                piece = log.read(2**16)
                if piece:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                else:
                    time.sleep(LOOK_SECONDS)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # who listened has gone
            self.close_connection = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    Head(given.port, given.folder).serve_forever()


if __name__ == "__main__":
    main()
