#!/usr/bin/env python3
"""Reads the keys of a program's own schema out of its installed (or unpacked) packages into models/keys/FORMAT.json.

    python3 bench/format_keys.py axolotl --release "axolotl 0.19.0" --packages DIR [--former "axolotl 0.13.2=DIR" …]

DIR holds the packages as pip would lay them out (site-packages, or unpacked wheels). Nothing of them is imported: classes are read as text
(dataclasses' and pydantic's annotated fields, with what they inherit), so that a schema can be read without the program's dependencies.
Facts alone are written: the keys with their defaults, and of earlier releases what has gone since. What a key means is said by people, in
`neutral` and `not_modelled` of the same file and in the reader's table; those parts are kept, and keys that nobody has judged are printed."""
import argparse
import ast
import json
import pathlib
import re
import sys

# Per format: where its classes lie (package folders or files), and which of them are its tables; "key=Class" is a table below a key.
FORMATS = {
    "axolotl": {"where": ["axolotl/utils/schemas", "axolotl/integrations"],
                "classes": ["AxolotlConfigWCapabilities", "*Args:axolotl/integrations", "*Config:axolotl/integrations"]},
    "transformers": {"where": ["transformers/training_args.py", "transformers/training_args_seq2seq.py", "trl/trainer/base_config.py",
                               "trl/trainer/sft_config.py", "trl/trainer/model_config.py", "trl/trainer/utils.py", "trl/scripts/utils.py",
                               "trl/trainer/base_trainer.py"],
                     "classes": ["TrainingArguments", "Seq2SeqTrainingArguments", "SFTConfig", "ModelConfig", "ScriptArguments",
                                 "DatasetMixtureConfig"],
                     "post_training": "trl/**/*_config.py"},
    "llama-factory": {"where": ["llamafactory/hparams"],
                      "classes": ["ModelArguments", "DataArguments", "FinetuningArguments", "TrainingArguments", "GeneratingArguments",
                                  "EvaluationArguments"]},
    "ms-swift": {"where": ["swift/arguments", "swift/llm/argument", "swift/trainers/arguments.py", "swift/ray_utils", "swift/ray"],
                 "classes": ["SftArguments", "TrainArguments", "TrainArgumentsMixin"], "beside": "transformers"},
    "megatron-swift": {"where": ["swift/megatron/arguments", "swift/arguments", "swift/ray_utils"], "classes": ["MegatronSftArguments"]},
    "nanotron": {"where": ["nanotron/config"], "classes": ["Config", "model.model_config=LlamaConfig"], "nested": True},
    "torchtitan": {"where": ["torchtitan/config_manager.py", "torchtitan/config/job_config.py"], "classes": ["JobConfig"], "nested": True},
    "peft": {"where": ["peft/config.py", "peft/tuners/lora/config.py", "peft/tuners/ia3/config.py", "peft/tuners/prompt_tuning/config.py",
                       "peft/tuners/p_tuning/config.py", "peft/tuners/prefix_tuning/config.py", "peft/tuners/ln_tuning/config.py"],
             "classes": ["LoraConfig", "IA3Config", "PromptTuningConfig", "PromptEncoderConfig", "PrefixTuningConfig", "LNTuningConfig"]},
    "torchtune": {"where": ["recipes/full_finetune_distributed.py", "recipes/full_finetune_single_device.py",
                            "recipes/lora_finetune_distributed.py", "recipes/lora_finetune_single_device.py"],
                  "classes": [], "reads": "cfg"},
    "primus": {"where": [], "classes": [], "beside": "megatron",
               "files": ["primus/configs/modules/*.yaml", "primus/configs/modules/megatron/*.yaml", "primus/configs/models/megatron/*.yaml"]},
    "verl": {"where": [], "classes": [], "trees": ["verl/trainer/config/_generated_ppo_trainer.yaml"]},
    "megatron": {"where": ["megatron/training", "megatron/core", "megatron/post_training", "megatron"], "classes": [], "arguments": True},
}


def classes_under(root, where):
    """Name -> (class, file) of every class in the files."""
    found = {}
    for place in where:
        path = root / place
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append((node, str(file.relative_to(root))))
    return found


def default_of(value):
    """The default as the program's file would write it; None: it has none, or one that is made as it runs."""
    if value is None:
        return None
    if isinstance(value, ast.Call):
        for word in value.keywords:
            if word.arg == "default":
                return default_of(word.value)
        name = getattr(value.func, "id", getattr(value.func, "attr", ""))
        if name == "Field" and value.args:
            return default_of(value.args[0])
        return None
    if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        inner = default_of(value.operand)
        return None if inner is None else "-" + inner
    if isinstance(value, ast.Constant):
        if value.value is None:
            return "null"
        if isinstance(value.value, bool):
            return str(value.value).lower()
        if isinstance(value.value, (int, float, str)):
            return str(value.value)
    if isinstance(value, ast.Attribute):  # an enum's member: its name is its word
        return value.attr.lower()
    return None


def names_in(annotation):
    return [n.id for n in ast.walk(annotation) if isinstance(n, ast.Name)] + \
           [n.value for n in ast.walk(annotation) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def fields_of(classes, node, nested, depth=0):
    """Field -> default, what is inherited first; a field whose type is one of the classes has the fields of that below it."""
    fields = {}
    for base in node.bases:
        name = getattr(base, "id", getattr(base, "attr", None))
        if name in classes and name != node.name:
            for inherited, _ in classes[name]:
                fields.update(fields_of(classes, inherited, nested, depth))
    for line in node.body:
        if isinstance(line, ast.ClassDef) and nested:
            classes.setdefault(line.name, []).append((line, ""))
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        key = line.target.id
        if (key.startswith("_") and not nested) or (key == "model_config" and not isinstance(line.annotation, ast.Name)) or "ClassVar" in names_in(line.annotation):
            continue
        inner = [n for n in names_in(line.annotation) if n in classes and n != node.name and "Enum" not in bases_of(classes, n)]
        if inner and nested and depth < 6 and "list" not in names_in(line.annotation):
            for name in inner:
                for below, _ in classes[name]:
                    for sub, default in fields_of(classes, below, nested, depth + 1).items():
                        fields[f"{key}.{sub}"] = default
        else:
            fields[key] = default_of(line.value)
            for alias in aliases_of(line.value):
                fields[alias] = None
    return fields


def aliases_of(value):
    if not isinstance(value, ast.Call):
        return []
    return [w.value.value for w in value.keywords if w.arg == "alias" and isinstance(w.value, ast.Constant)]


def bases_of(classes, name):
    bases = set()
    for node, _ in classes[name]:
        bases |= {getattr(b, "id", getattr(b, "attr", "")) for b in node.bases}
    return " ".join(bases)


def arguments_under(root, where):
    """Flags of argparse, and the fields of dataclasses that arguments are made from (ArgumentGroupFactory)."""
    keys = {}
    for place in where:
        path = root / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else []:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
                    continue
                flags = [a.value for a in node.args if isinstance(a, ast.Constant) and str(a.value).startswith("--")]
                action = next((w.value.value for w in node.keywords if w.arg == "action" and isinstance(w.value, ast.Constant)), "")
                default = next((default_of(w.value) for w in node.keywords if w.arg == "default"), None)
                for flag in flags:
                    keys[flag[2:].replace("-", "_")] = default if default is not None else "false" if action == "store_true" else None
    return keys


def made_arguments(root):
    """ArgumentGroupFactory(Config, exclude=[…]) makes a flag of every field; a switch that is on by default is --no-…, or --disable-…."""
    classes = classes_under(root, ["megatron/training", "megatron/core"])
    keys = {}
    for file in sorted((root / "megatron/training").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ArgumentGroupFactory" and node.args:
                name = getattr(node.args[0], "id", getattr(node.args[0], "attr", ""))
                for cls, _ in classes.get(name, []):
                    for line in ast.walk(cls):
                        if isinstance(line, ast.Constant) and isinstance(line.value, str) and re.fullmatch("--[a-z0-9-]+", line.value):
                            keys[line.value[2:].replace("-", "_")] = None
                    for key, default in fields_of(classes, cls, False).items():
                        keys[key] = default
                        if default == "true":
                            keys["no_" + key] = keys["disable_" + key] = None
    return keys


def keys_read(root, where, variable):
    """Keys that programs take from a configuration as they run: cfg.a.b, cfg["a"], cfg.get("a", default); a table that is handed on whole
    (instantiate(cfg.model)) is one key."""
    keys = {}
    for place in where:
        if not (root / place).exists():
            continue
        tree = ast.parse((root / place).read_text(encoding="utf-8"))
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Subscript))}
        for node in ast.walk(tree):
            path, default, top = [], None, node
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("get", "pop") and node.args:
                path, top = [getattr(node.args[0], "value", None)], node.func.value
                default = default_of(node.args[1]) if len(node.args) > 1 else "null"
            elif id(node) in inner:
                continue
            while isinstance(top, (ast.Attribute, ast.Subscript)):
                path.insert(0, top.attr if isinstance(top, ast.Attribute) else getattr(top.slice, "value", None))
                top = top.value
            if isinstance(top, ast.Name) and top.id == variable and path and all(isinstance(p, str) for p in path) and path[-1] not in ("get", "pop"):
                keys.setdefault(".".join(path), default)
    return keys


def keys_of_files(root, patterns):
    """Keys of files that hold every key with its default, one a line; those of models say other values, the first file counts."""
    keys = {}
    for pattern in patterns:
        for file in sorted(root.glob(pattern)):
            for key, value in re.findall(r"^([a-z]\w*):[ \t]*([^#\n]*)", file.read_text(encoding="utf-8"), re.M | re.I):
                if key not in ("extends", "bases", "includes"):
                    keys.setdefault(key, value.strip().strip("'\"") or None)
    return keys


def keys_of_trees(root, patterns):
    """Keys of files that hold every key with its default as a tree, two spaces a level; a list has no default, a reference to another key none
    of its own."""
    keys = {}
    for pattern in patterns:
        for file in sorted(root.glob(pattern)):
            path = []
            for indent, key, value in re.findall(r"^( *)'?([a-z_]\w*)'?:[ \t]*([^#\n]*)", file.read_text(encoding="utf-8"), re.M | re.I):
                path = [*path[: len(indent) // 2], key]
                if value.strip() or key != "_target_":
                    keys.setdefault(".".join(path), None if "${" in value or value.strip() in ("", "{}", "[]", "???") else value.strip().strip("'\""))
    return {k: v for k, v in keys.items() if not k.endswith("_target_") and not any(o.startswith(k + ".") for o in keys)}


def read_keys(format_name, root):
    spec = FORMATS[format_name]
    if spec.get("trees"):
        return keys_of_trees(root, spec["trees"])
    if spec.get("files"):
        return keys_of_files(root, spec["files"])
    if spec.get("reads"):
        return keys_read(root, spec["where"], spec["reads"])
    if spec.get("arguments"):
        return {**made_arguments(root), **arguments_under(root, spec["where"])}
    classes = classes_under(root, spec["where"])
    keys = {}
    for wanted in spec["classes"]:
        below, _, wanted = wanted.rpartition("=")
        pattern, _, under = wanted.partition(":")
        for name, found in sorted(classes.items()):
            for node, file in found:
                if name == pattern or (pattern.startswith("*") and name.endswith(pattern[1:]) and file.startswith(under)):
                    fields = fields_of(classes, node, spec.get("nested", False))
                    keys.update({f"{below}.{key}" if below else key: default for key, default in fields.items()})
    return keys


def post_training_keys(format_name, roots, known):
    """Keys that only the configurations of preferences and rewards have, which a reader of supervised training refuses."""
    pattern, found = FORMATS[format_name].get("post_training"), set()
    for root in roots if pattern else []:
        for file in sorted(root.glob(pattern)):
            classes = classes_under(root, [str(file.relative_to(root))])
            for nodes in classes.values():
                for node, _ in nodes:
                    if node.bases:  # extends TrainingArguments; loops of their own are no Trainer's
                        found |= set(fields_of(classes, node, False))
    return sorted(found - set(known))


def judged(document, rows, key):
    """Whether somebody said what a key means: the reader's table, or the lists beside the keys."""
    names = list(rows)
    for part in ("neutral", "told", "not_modelled"):
        for group in document.get(part, []):
            names += group["keys"]
    return any(n == key or (n.endswith("*") and key.startswith(n[:-1])) or n.startswith(key + ".") or key.startswith(n + ".") for n in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=sorted(FORMATS))
    parser.add_argument("--release", required=True, help='"axolotl 0.19.0"')
    parser.add_argument("--packages", required=True, type=pathlib.Path, action="append")
    parser.add_argument("--former", action="append", default=[], help="RELEASE=DIR, the oldest first")
    parser.add_argument("--rows", type=pathlib.Path, help="foreign keys that the reader's table has, one a line")
    arguments = parser.parse_args()
    file = pathlib.Path(__file__).parent.parent / "models" / "keys" / (arguments.format + ".json")
    document = json.loads(file.read_text()) if file.exists() else {"schema": "plimsoll/keys/1", "format": arguments.format}
    keys = {}
    for packages in arguments.packages:
        keys.update(read_keys(arguments.format, packages))
    if not keys:
        sys.exit(f"no class of {arguments.format} lies under {arguments.packages}")
    if beside := FORMATS[arguments.format].get("beside"):  # what another format's schema has is judged there
        theirs = json.loads((file.parent / (beside + ".json")).read_text())
        keys = {key: default for key, default in keys.items() if key not in theirs["keys"] and key not in theirs["former"]}
    else:
        theirs = {"keys": {}, "former": {}}
    former = {}
    for one in arguments.former:
        folder = one.partition("=")[2]
        for key, default in read_keys(arguments.format, pathlib.Path(folder)).items():
            if key not in keys and key not in theirs["keys"] and key not in theirs["former"]:
                former[key] = default
    if arguments.former:
        document["former_releases"] = ", ".join(one.partition("=")[0] for one in arguments.former)
    roots = arguments.packages + [pathlib.Path(one.partition("=")[2]) for one in arguments.former]
    if post := post_training_keys(arguments.format, roots, [*keys, *former, *(arguments.rows.read_text().split() if arguments.rows else [])]):
        document["post_training"] = post
    document["release"] = arguments.release
    document["keys"] = dict(sorted(keys.items()))
    document["former"] = dict(sorted(former.items()))
    file.write_text(layout(document))
    rows = arguments.rows.read_text().split() if arguments.rows else []
    for key in [*keys, *former]:
        if not judged(document, rows, key):
            print(f"{key}\t{keys.get(key)}")


def layout(document):
    """The document as JSON whose tables fill lines, a change of one key being a change of one line's."""
    def filled(pairs, opening, closing):
        lines, line = [], "   "
        for i, pair in enumerate(pairs):
            pair += "," if i + 1 < len(pairs) else ""
            if len(line) + len(pair) > 148:
                lines.append(line)
                line = "   "
            line += " " + pair
        return opening + "\n" + "\n".join([*lines, line]) + "\n  " + closing if pairs else opening + closing
    parts = []
    for key, value in document.items():
        if isinstance(value, dict):
            text = filled([f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()], "{", "}")
        elif isinstance(value, list) and value and isinstance(value[0], str):
            text = filled([json.dumps(k) for k in value], "[", "]")
        elif isinstance(value, list):
            groups = []
            for group in value:
                front = ", ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in group.items() if k != "keys")
                groups.append(f'   {{{front}, "keys": ' + filled([json.dumps(k) for k in sorted(group["keys"])], "[", "]}"))
            text = "[\n" + ",\n".join(groups) + "\n  ]" if groups else "[]"
        else:
            text = json.dumps(value, ensure_ascii=False)
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
