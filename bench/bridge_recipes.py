#!/usr/bin/env python3
"""Reads what Megatron-Bridge's performance recipes of a release set into models/bridge-recipes.json.

    git clone https://github.com/NVIDIA-NeMo/Megatron-Bridge && python3 bench/bridge_recipes.py Megatron-Bridge

The recipes are functions that fill a configuration. Those of each release below are run, with whatever they import from outside of the recipes (torch,
Megatron-core, the bridge itself) standing as objects whose attributes appear when they are asked for. What a function then set is a fact of its source;
what it never touched stays unsaid, and is Megatron-core's default. Written down are the keys that the published tables do not repeat: the dispatcher
of experts, overlaps, CUDA graphs, recomputation, the experts' fused products and the layers of stages."""
import argparse
import dataclasses
import importlib.abc
import importlib.util
import inspect
import json
import pathlib
import re
import subprocess
import sys
import types

# The container of each table and the release in it; a later one of the same branch, where what was measured is that one's.
RELEASES = {"25.11": ["v0.2.0", "v0.2.1"], "26.02 ": ["v0.3.0"], "26.02.01": ["v0.3.1"], "26.04 ": ["v0.4.0"], "26.04.01": ["v0.4.1", "v0.4.2"],
            "26.06 ": ["v0.5.0"], "26.06.01": ["v0.5.1"], "26.08": ["v0.6.0"]}
DEVICES = {"H100": (9, "NVIDIA H100 80GB HBM3"), "B200": (10, "NVIDIA B200"), "B300": (10, "NVIDIA B300"), "GB200": (10, "NVIDIA GB200"),
           "GB300": (10, "NVIDIA GB300")}
PRECISIONS = {"bf16": "bf16", "fp8_cs": "fp8", "fp8cs": "fp8", "fp8_mx": "mxfp8", "fp8mx": "mxfp8", "nvfp4": "nvfp4"}
MODELS = {"deepseek_v3": "DeepSeek-V3", "qwen3_235b_a22b": "Qwen3-235B-A22B", "qwen3_30b_a3b": "Qwen3-30B-A3B", "qwen3_next_80b_a3b": "Qwen3-Next-80B-A3B",
          "gpt_oss_120b": "gpt-oss-120b", "gpt_oss_20b": "gpt-oss-20b", "kimi_k2": "Kimi-K2", "nemotron_3_nano": "Nemotron-3-Nano",
          "nemotron_3_super": "Nemotron-3-Super", "nemotron_3_5_lightning": "Nemotron-3.5-Lightning"}
SHAPE = {"training.tp": "tensor_model_parallel_size", "training.pp": "pipeline_model_parallel_size", "training.vp": "virtual_pipeline_model_parallel_size",
         "training.cp": "context_parallel_size", "training.ep": "expert_model_parallel_size"}
OUTSIDE = ("megatron", "configs", "utils", "torch", "omegaconf", "nemo_run", "transformers", "hydra", "yaml", "argument_parser", "numpy")
READ = ("megatron.bridge.perf_recipes", "megatron.bridge.recipes", "megatron.bridge.training.flex_dispatcher_backend", "configs", "utils")


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Unsaid()


class Unsaid(metaclass=Anything):
    """What nothing has set: false, empty, callable, and with every attribute."""

    def __init__(self, *_, **values):
        self.__dict__.update(values)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.__dict__.setdefault(name, Unsaid())

    def __call__(self, *_, **values):
        return Unsaid(**values)

    def __mro_entries__(self, bases):
        return (object,)

    __bool__ = lambda self: False
    __len__ = __int__ = lambda self: 0
    __iter__ = lambda self: iter(())
    __getitem__ = __or__ = __ror__ = lambda self, other: Unsaid()
    __setitem__ = lambda self, key, value: None
    __contains__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, other: False
    __mul__ = __truediv__ = lambda self, other: 0


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.finder.path(f"{self.__name__}.{name}"):
            return importlib.import_module(f"{self.__name__}.{name}")
        value = Anything(name, (Unsaid,), {}) if name[:1].isupper() else Unsaid()
        setattr(self, name, value)
        return value


class Release(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules of one tag, read out of git."""

    def __init__(self, checkout, tag):
        self.checkout, self.tag = checkout, tag
        self.files = set(self.git("ls-tree", "-r", "--name-only", tag, "scripts/performance", "src/megatron/bridge").split())

    def git(self, *arguments):
        return subprocess.run(["git", "-C", self.checkout, *arguments], check=True, capture_output=True, text=True).stdout

    def path(self, module):
        if not any(module == read or module.startswith(read + ".") for read in READ):
            return None
        stem = ("src/" if module.startswith("megatron") else "scripts/performance/") + module.replace(".", "/")
        return next((path for path in (stem + ".py", stem + "/__init__.py") if path in self.files), None)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in OUTSIDE:
            return None
        read = self.path(name)
        return importlib.util.spec_from_loader(name, self, is_package=not read or read.endswith("__init__.py"))

    def create_module(self, spec):
        module = Stub(spec.name)
        module.finder = self
        return module

    def exec_module(self, module):
        path = self.path(module.__name__)
        family = module.__name__.startswith(("megatron.bridge.recipes.", "configs."))  # whose packages hand on what they hold
        if path and (not path.endswith("__init__.py") or family):
            module.__file__ = path
            exec(compile(self.git("show", f"{self.tag}:{path}"), path, "exec"), module.__dict__)

    def start(self, device):
        """Forgets what ran for another device: a recipe asks torch which one it is on."""
        for name in [name for name in sys.modules if name.split(".")[0] in OUTSIDE]:
            del sys.modules[name]
        sys.meta_path[:] = [self] + [finder for finder in sys.meta_path if not isinstance(finder, Release)]
        major, name = DEVICES[device]
        torch = importlib.import_module("torch")
        torch.cuda = Unsaid(get_device_properties=lambda _: types.SimpleNamespace(major=major, name=name))
        graphs = importlib.import_module("megatron.bridge.utils.cuda_graph")
        graphs.set_cuda_graph_modules = lambda model, modules: setattr(model, "cuda_graph_modules", modules)

    def functions(self, pattern):
        for path in sorted(self.files):
            found = re.fullmatch(pattern, path)
            if not found or path.endswith("__init__.py"):
                continue
            try:
                module = importlib.import_module(found.group(1).replace("/", "."))
            except Exception as error:
                print(f"{self.tag}: {path}: {error}", file=sys.stderr)
                continue
            yield from ((name, value) for name, value in list(vars(module).items()) if inspect.isfunction(value) and value.__module__ == module.__name__)

    def recipes(self, device):
        """(model, precision, configuration) of every pretraining recipe for the device."""
        self.start(device)
        gpu = device.lower()
        # Since 0.6 a function for each setting, before that one for each device.
        for name, build in self.functions(rf"src/(megatron/bridge/perf_recipes/\w+/{gpu}/\w+)\.py"):
            found = re.fullmatch(rf"([a-z]\w*)_pretrain_\d+gpu_{gpu}_({'|'.join(PRECISIONS)})_config", name)
            if found:
                yield found.group(1), found.group(2), build
        for name, build in self.functions(r"scripts/performance/(configs/\w+/\w*pretrain)\.py"):
            found = re.fullmatch(rf"([a-z]\w*?)(_pretrain_config)?_{gpu}(_config)?", name)
            variants = ["v1", "v2", "v3"] if "config_variant" in inspect.signature(build).parameters else [None]
            for precision in PRECISIONS if found else ():
                for variant in variants:
                    yield found.group(1), precision, lambda: build(precision, **({"config_variant": variant} if variant else {}))


def said(value):
    return None if isinstance(value, Unsaid) else value


def layers_of(layout):
    """Decoder layers of each stage of Et*4|(t*4|)*14tmL. Lists of modules come from a function of pp and vp, which models/recipes.json has."""
    if not isinstance(layout, str):
        return None
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda group: group.group(1) * int(group.group(2)), layout)
    text = re.sub(r"(\w)\*(\d+)", lambda run: run.group(1) * int(run.group(2)), text)
    return [stage.count("t") for stage in text.split("|")]


def settings(cfg):
    """Keys of a row's training that the recipe decides."""
    model, overlap = cfg.model, cfg.comm_overlap if cfg.comm_overlap is not None else Unsaid()
    keys = {}
    kind = said(model.moe_token_dispatcher_type)
    dispatcher = said(model.moe_flex_dispatcher_backend) if kind == "flex" else kind
    if dispatcher in ("deepep", "hybridep"):
        keys["moe_dispatcher"] = dispatcher
    if said(overlap.overlap_moe_expert_parallel_comm):
        keys["moe_a2a_overlap"] = True
    if said(overlap.delay_wgrad_compute):
        keys["delay_wgrad_compute"] = True
    graph, scope = said(model.cuda_graph_impl), said(model.cuda_graph_scope) or said(model.cuda_graph_modules)
    if graph == "full_iteration" or (graph == "local" and scope == "full_iteration"):
        keys["cuda_graph"] = "full_iteration"
    elif graph == "transformer_engine" and scope:
        keys["cuda_graph"] = "transformer_engine:" + ",".join(scope)
    modules = said(model.recompute_modules)
    keys["recompute"] = "selective:" + ",".join(modules) if modules and said(model.recompute_granularity) == "selective" else "none"
    if said(model.use_transformer_engine_op_fuser):
        keys["moe_fused_mlp"] = True
    if said(getattr(cfg.mixed_precision, "fp8_dot_product_attention", None)):
        keys["fp8_attention"] = True
    return keys


def stages_of(cfg):
    """({shape of the pipeline}, layers of its stages), or None where no layout is written out."""
    pipeline = [said(getattr(cfg.model, SHAPE[key])) or 1 for key in ("training.pp", "training.vp")]
    layers = layers_of(said(cfg.model.pipeline_model_parallel_layout))
    if not layers or len(layers) != pipeline[0] * pipeline[1]:
        return None
    return {"training.pp": pipeline[:1], "training.vp": [None, 1] if pipeline[1] == 1 else pipeline[1:]}, layers


def shape_of(cfg):
    shape = {key: said(getattr(cfg.model, name)) or 1 for key, name in SHAPE.items()}
    shape["training.micro_batch"] = said(cfg.train.micro_batch_size) or 1
    shape["training.global_batch"] = said(cfg.train.global_batch_size)
    return shape


def of_release(checkout, tags):
    """{(model, device, precision): {shape: settings}}; of two tags the second's where the first has no setting of that shape. And (device, entry) of
    every layout of stages."""
    found, layouts = {}, []
    for tag in tags:
        release = Release(checkout, tag)
        own = {}
        for device in DEVICES:
            for model, precision, build in release.recipes(device):
                if model not in MODELS:
                    continue
                try:
                    cfg = build()
                except Exception:
                    continue  # no recipe of this precision or variant
                if not said(cfg.train.global_batch_size) or not said(cfg.model.tensor_model_parallel_size):
                    continue
                own.setdefault((MODELS[model], device, PRECISIONS[precision]), {})[tuple(shape_of(cfg).items())] = settings(cfg)
                if stages_of(cfg):
                    pipeline, layers = stages_of(cfg)
                    entry = {"when": {"training.framework_version": [], "hardware.gpu": [], **pipeline}, "models": {MODELS[model]: {"pp_layers": layers}}}
                    layouts.append((device, entry))
        for key, variants in own.items():
            for shape, keys in variants.items():
                found.setdefault(key, {}).setdefault(shape, keys)
    return found, layouts


def telling(variants):
    """The fewest keys of the shape that tell apart variants of different settings; none where all are alike."""
    import itertools
    names = ["training.global_batch", "training.pp", "training.ep", "training.vp", "training.micro_batch", "training.tp"]
    for count in range(len(names) + 1):
        for chosen in itertools.combinations(names, count):
            seen = {}
            if all(seen.setdefault(tuple(dict(shape)[name] for name in chosen), keys) == keys for shape, keys in variants.items()):
                return chosen
    raise SystemExit(f"two recipes of one shape: {variants}")


def merged(entries, part):
    """Entries alike but for the list at `part` as one."""
    groups, result = {}, [entry for entry in entries if part not in entry["when"]]
    for entry in entries:
        if part not in entry["when"]:
            continue
        rest = json.dumps([entry["models"], {key: value for key, value in entry["when"].items() if key != part}])
        groups.setdefault(rest, []).append(entry)
    for group in groups.values():
        values = []
        for entry in group:
            values += [value for value in entry["when"].get(part, []) if value not in values]
        result.append({"when": {**group[0]["when"], part: values}, "models": group[0]["models"]})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", help="a clone of NVIDIA-NeMo/Megatron-Bridge with its tags")
    parser.add_argument("-o", default=pathlib.Path(__file__).parent.parent / "models/bridge-recipes.json")
    arguments = parser.parse_args()
    fields = dataclasses.fields
    dataclasses.fields = lambda of: fields(of) if dataclasses.is_dataclass(of) else ()
    entries = []
    for container, tags in RELEASES.items():
        found, layouts = of_release(arguments.checkout, tags)
        for device, entry in layouts:
            entry["when"].update({"training.framework_version": ["NeMo " + container], "hardware.gpu": [device]})
            if entry not in entries:
                entries.append(entry)
        for (model, device, precision), variants in found.items():
            names = telling(variants)
            for shape, keys in variants.items():
                when = {"training.framework_version": ["NeMo " + container], "hardware.gpu": [device], "training.precision": [precision]}
                when.update({name: [dict(shape)[name]] for name in names})
                entry = {"when": when, "models": {model: keys}}
                if entry not in entries:
                    entries.append(entry)
    for part in ("training.precision", "hardware.gpu", "training.framework_version"):
        entries = merged(entries, part)
    head = {"schema": "plimsoll/recipes/1",
            "note": "Written by bench/bridge_recipes.py: what Megatron-Bridge's performance recipes of each container set, run from their source.",
            "title": "NVIDIA Megatron-Bridge performance summary",
            "source": "NVIDIA-NeMo/Megatron-Bridge " + ", ".join(tag for tags in RELEASES.values() for tag in tags) + ", performance recipes"}
    lines = ",\n".join("    " + json.dumps(entry) for entry in entries)
    pathlib.Path(arguments.o).write_text(json.dumps(head, indent=2)[:-2] + ',\n  "recipes": [\n' + lines + "\n  ]\n}\n")


if __name__ == "__main__":
    main()
