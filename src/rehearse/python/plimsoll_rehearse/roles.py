"""Which processes are wanted. Whatever starts them, of a program's ranks only those that were asked for run; any other is ended as if it had
done its work, as soon as its rank is known."""

import os
import socket
import subprocess

from . import journal

LOCAL_RANK = "@local_rank@"  # in a command: the rank's number on its node
MOST_TOGETHER = 16  # as kMostTogether of src/cli/rehearsed_program.cpp
# how launchers tell a process its rank and the world: torchrun and its like, Open MPI, Slurm
TOLD = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def asked(world):
    """Ranks of a world that are rehearsed: those of the command line, else the first, the middle and the last."""
    named = os.environ.get("PLIMSOLL_REHEARSE_RANKS", "")
    if named == "all":
        return list(range(world))
    ranks = [int(rank) for rank in named.split(",")] if named else [0, world // 2, world - 1]
    return sorted({rank for rank in ranks if 0 <= rank < world})


def check_world(world):
    """Throws SystemExit where the cluster of --on has not so many devices."""
    most = int(os.environ.get("PLIMSOLL_REHEARSE_GPUS", "0"))
    if os.environ.get("PLIMSOLL_REHEARSE_TOGETHER") == "1" and world > MOST_TOGETHER:
        raise SystemExit(f"plimsoll rehearse: --together runs all ranks of a world, of at most {MOST_TOGETHER}; this one has {world}")
    if most and world > most:
        raise SystemExit(f"plimsoll rehearse: a world of {world}, started at {journal.user_line()}, does not fit on the {most} GPUs of --on")


def take(rank, world):
    """This process is that rank: it goes on if it was asked for, and says so, and ends here if not."""
    if rank not in asked(world):
        journal.leave()
    journal.summary("rank", rank)
    journal.summary("world", world)
    folder = os.environ.get("PLIMSOLL_REHEARSE_FOLDER")
    if folder:  # the command waits for it, even where what started it has ended
        open(os.path.join(folder, f"{os.getpid()}.rank"), "w").close()


def take_told():
    """At the start of a process that a launcher gave a rank."""
    told = os.environ
    for rank, world in TOLD:
        if rank in told and world in told:
            return take(int(told[rank]), int(told[world]))
    if "LOCAL_RANK" in told and "NODE_RANK" in told and "WORLD_SIZE" in told:  # Lightning's children
        local = int(told.get("LOCAL_WORLD_SIZE", os.environ.get("PLIMSOLL_REHEARSE_DEVICES", "1")))
        return take(int(told["NODE_RANK"]) * local + int(told["LOCAL_RANK"]), int(told["WORLD_SIZE"]))


def run_ranks(command, nodes, per_node):
    """What a launcher would have started, once for each rank that is asked for, one after the other; together where they need each other.
    Throws SystemExit with the first exit code that is not 0."""
    world = nodes * per_node
    check_world(world)
    journal.replaced(f"the launcher of {world} processes: those of the ranks that are asked for are started, without it")
    running, together, port = [], os.environ.get("PLIMSOLL_REHEARSE_TOGETHER") == "1", 29500
    if together:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    for rank in asked(world):
        told = {
            "RANK": rank,
            "WORLD_SIZE": world,
            "LOCAL_RANK": rank % per_node,
            "LOCAL_WORLD_SIZE": per_node,
            "GROUP_RANK": rank // per_node,
            "GROUP_WORLD_SIZE": nodes,
            "NODE_RANK": rank // per_node,
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": world,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "rehearsal",
            "TORCHELASTIC_RESTART_COUNT": 0,
            "TORCHELASTIC_MAX_RESTARTS": 0,
        }
        told = {name: str(value) for name, value in told.items()}
        line = [word.replace(LOCAL_RANK, told["LOCAL_RANK"]) for word in command]
        process = subprocess.Popen(line, env={**os.environ, **told})
        if together:
            running.append(process)
        elif process.wait() != 0:
            raise SystemExit(process.returncode if process.returncode > 0 else 128 - process.returncode)
    failed = [process.returncode for process in running if process.wait() != 0]
    if failed:
        raise SystemExit(max(1, failed[0]))

