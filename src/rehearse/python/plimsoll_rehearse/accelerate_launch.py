"""`accelerate launch …` in this process: accelerate's own code reads its flags and its file and sets the environment; the script then runs
here, as the one rank that the environment names."""

import os
import runpy
import sys


def run_script(script, arguments, module=False):
    sys.argv = [script, *arguments]
    if module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
        runpy.run_path(script, run_name="__main__")


def in_this_process(args):
    """Takes the place of torch.distributed.run.run, and of accelerate's launcher for one process."""
    if hasattr(args, "nproc_per_node"):
        asked = int(args.nproc_per_node) * int(str(args.nnodes).split(":")[-1])  # nnodes may be "1:4", at least and at most
    else:
        asked = int(args.num_processes or 1)
    told = int(os.environ.get("WORLD_SIZE", "1"))
    if told != asked:
        raise SystemExit(f"plimsoll rehearse: accelerate would start {asked} processes; give --world {asked}")
    run_script(args.training_script, args.training_script_args, getattr(args, "module", False))


def main():
    import accelerate.commands.launch as launch
    import torch.distributed.run as run

    run.run = in_this_process

    def simple_launcher(args):
        _, environment = launch.prepare_simple_launcher_cmd_env(args)
        os.environ.update(environment)
        in_this_process(args)

    launch.simple_launcher = simple_launcher
    launch.launch_command(launch.launch_command_parser().parse_args(sys.argv[1:]))


if __name__ == "__main__":
    main()
