"""What a hub of models would give where it cannot be reached: the config that plimsoll ships for a model, and a folder that holds it."""

import functools
import json
import os
import subprocess
import sys

from . import journal

SYNTHETIC = os.environ.get("PLIMSOLL_REHEARSE_SYNTHETIC") == "1"


def shipped_config(name):
    """The config that plimsoll ships for a model of that name, or None."""
    program = os.environ.get("PLIMSOLL_REHEARSE_PROGRAM")
    if not program or not isinstance(name, str):
        return None
    plain = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
    found = subprocess.run([program, "models", "--config", name], capture_output=True, text=True, env=plain)
    return json.loads(found.stdout) if found.returncode == 0 else None


def ask_no_more(missing):
    """A hub that could not be reached is not asked for each further file, for half a minute every time."""
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None and "connect" in str(missing):
        constants.HF_HUB_OFFLINE = True
        journal.note("the hub cannot be reached: it is asked once, as with HF_HUB_OFFLINE=1")


def _made_up():
    """The folder of snapshots that a hub did not give, of this rehearsal alone."""
    return os.path.join(os.environ["PLIMSOLL_REHEARSE_FOLDER"], "snapshots")


def is_made_up(folder):
    return os.path.abspath(folder).startswith(_made_up() + os.sep)


def snapshot_of(name, missing):
    """A folder with the shipped config of a model and, with --synthetic-data, a tokenizer; `missing` is raised where there is no such model.
    Weights are in none: who loads it by transformers has them unset, as by its name."""
    folder = os.path.join(_made_up(), name.replace("/", "--")) if isinstance(name, str) else None
    if folder is not None and os.path.isdir(folder):
        return folder
    config = shipped_config(name)
    if config is None:
        raise missing
    ask_no_more(missing)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    if SYNTHETIC:
        from .transformers_patches import made_up_tokenizer

        made_up_tokenizer().save_pretrained(folder)
    holds = "its config and a tokenizer of a handful of words" if SYNTHETIC else "its config"
    journal.replaced(f"the snapshot of {name}, which cannot be fetched: a folder with {holds}")
    return folder


def downloads(original):
    """snapshot_download of a hub's library: of a model that it cannot fetch, the folder above."""

    @functools.wraps(original)
    def snapshot_download(*arguments, **options):
        try:
            return original(*arguments, **options)
        except Exception as missing:  # each library and release has its own errors: no network, no such name, offline
            if options.get("repo_type", "model") not in (None, "model"):
                raise
            named = (options[key] for key in ("repo_id", "model_id") if key in options)
            return snapshot_of(arguments[0] if arguments else next(named, None), missing)

    return snapshot_download
