"""Train the behaviour policies that the package ships, all at once on one GPU, within a time limit.

    python benchmarks/gpu_behaviours.py OUT --seconds 540 --cores 16
    python benchmarks/gpu_behaviours.py OUT --seconds 60 --cores 2 --tiny     (a rehearsal on any machine)

Each robot is a process of its own (`train_behaviour`) that stops in time for its last policies to be measured; what is
not done at the limit is ended, and whatever has been measured by then counts. OUT gets a ladder (NAME.safetensors)
and a learning curve (NAME.jsonl) per robot, at most 16 MiB each. Run folders stay under --work: the same command
resumes them.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ENVIRONMENTS = {
    "hopper": "Hopper-v4",
    "walker2d": "Walker2d-v4",
    "halfcheetah": "HalfCheetah-v4",
    "ant": "bcol/AntDirections-v0",
}
MOST_BYTES = 16 * 2**20 - 4096
GPU_PROBE = "import jax, jax.numpy as j; assert jax.devices()[0].platform == 'gpu'; (j.ones(8) + 1).block_until_ready()"


def train(name: str, args: argparse.Namespace, seconds: float) -> None:
    """One robot, in this process."""
    from bcol.forge.online import train_behaviour
    from bcol.forge.sac import SAC

    # At the limit the driver ends this process: it must take its own processes along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended at the time limit"))
    # The ant is slow to simulate and needs no second try; the others are lucky or not.
    seeds = range(1 if name == "ant" else args.seeds)
    share = max(1, args.cores // len(args.robots))
    options = {"steps": args.steps, "updates_per_step": args.updates_per_step, "seconds": seconds}
    options |= {"workers": max(1, share - 1), "evaluators": 1, "checkpoint_every": 200_000, "round_steps": 64}
    if name == "ant":  # only its best rung is of use, and measuring one takes long
        options["rung_every"] = 20_000
    agent = SAC(batch_size=args.batch_size, critic_norm=args.critic_norm)
    if args.tiny:
        agent = SAC(hidden=(32, 32), batch_size=32)
        options |= {
            "steps": 3000,
            "random_steps": 500,
            "envs": 4,
            "round_steps": 32,
            "rung_every": 1000,
            "rung_episodes": 1,
        }
        options["checkpoint_every"] = 1000
    train_behaviour(ENVIRONMENTS[name], agent, seeds=tuple(seeds), out=args.work / name, progress=False, **options)


def pack(name: str, work: Path, out: Path) -> str:
    """The ladder of the best seed, and all learning curves, into OUT; returns a line about it."""
    from bcol.forge.folder import rung_files
    from bcol.forge.rungs import read_rung, thinned, write_ladder

    rungs = [rung for rung in map(read_rung, rung_files(work)) if rung.measured is not None]
    if not rungs:
        return f"{name}: nothing measured"
    best = max(rungs, key=lambda rung: rung.score())
    mine = [rung for rung in rungs if rung.seed == best.seed]
    one = rung_files(work)[0].stat().st_size
    # The folders are this machine's business.
    folders = {str(out): "OUT", str(work.parent): "WORK"}
    command = " ".join([Path(sys.argv[0]).name, *(folders.get(x, x) for x in sys.argv[1:])])
    about = {"command": command, **json.loads((work / "config.json").read_text())}
    write_ladder(out / f"{name}.safetensors", thinned(mine, MOST_BYTES // one), about)
    shutil.copy(work / "curve.jsonl", out / f"{name}.jsonl")
    last = max(rung.step for rung in mine)
    return (
        f"{name}: best of {len(rungs)} rungs at step {best.step:,} (seed {best.seed}, last {last:,}): "
        f"score {best.score():.1f} sampled, {best.score(sampled=False):.1f} mode"
    )


def start_mps(environment: dict[str, str]) -> bool:
    """Let the processes share the GPU without taking turns, if this machine can do that."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return False
    folder = tempfile.mkdtemp(prefix="mps")
    trial = {**environment, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    try:
        subprocess.run([control, "-d"], env=trial, timeout=20, check=True)
        subprocess.run([sys.executable, "-c", GPU_PROBE], env=trial, timeout=60, check=True, capture_output=True)
    except (subprocess.SubprocessError, OSError):
        stop_mps(trial)
        return False
    environment.update(trial)
    return True


def stop_mps(environment: dict[str, str]) -> None:
    subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 1\n", env=environment, timeout=20, capture_output=True)


def drive(args: argparse.Namespace) -> None:
    """All robots, each in a process; then pack."""
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "MUJOCO_GL": "disable", **os.environ}
    shared = args.mps and start_mps(environment)
    print("sharing the GPU by MPS" if shared else "without MPS", flush=True)
    processes = {}
    for name in args.robots:
        left = args.seconds - args.reserve - (time.monotonic() - began)
        command = [sys.executable, __file__, *sys.argv[1:], "--only", name, "--seconds", str(left)]
        with (args.work / f"{name}.log").open("w") as log:
            processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    deadline = began + args.seconds - 15
    shown = time.monotonic()
    while any(p.poll() is None for p in processes.values()) and time.monotonic() < deadline:
        time.sleep(0.5)
        if time.monotonic() - shown > 30:
            shown = time.monotonic()
            for name in args.robots:
                curve = args.work / name / "curve.jsonl"
                lines = curve.read_text().splitlines() if curve.exists() else []
                print(f"{shown - began:.0f} s {name}: {lines[-1][:200] if lines else 'no rows yet'}", flush=True)
    for process in processes.values():
        if process.poll() is None:
            process.terminate()
    for name, process in processes.items():
        try:
            process.wait(timeout=8)
        except subprocess.TimeoutExpired:
            process.kill()
        if process.wait() != 0:
            print(f"{name} ended with {process.returncode}: {(args.work / f'{name}.log').read_text()[-600:]}")
        if (args.work / name / "config.json").exists():
            print(pack(name, args.work / name, args.out), flush=True)
    if shared:
        stop_mps(environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=540.0, help="wall-clock limit, packing included")
    parser.add_argument("--reserve", type=float, default=45.0, help="seconds kept for measuring and packing")
    parser.add_argument("--work", type=Path, default=Path("runs/behaviours"))
    parser.add_argument("--robots", nargs="+", choices=ENVIRONMENTS, default=list(ENVIRONMENTS))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seeds", type=int, default=2, help="runs side by side per robot; the best is kept")
    parser.add_argument("--steps", type=int, default=3_000_000)
    parser.add_argument("--updates-per-step", type=float, default=0.5)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--critic-norm", choices=("none", "layer"), default="layer")
    parser.add_argument("--mps", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tiny", action="store_true", help="small networks and few steps, to see that it works")
    parser.add_argument("--only", choices=ENVIRONMENTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        train(args.only, args, args.seconds)
    else:
        drive(args)


if __name__ == "__main__":
    main()
