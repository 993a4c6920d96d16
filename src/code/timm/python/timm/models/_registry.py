# A registry of one file: the names of its functions, and its default_cfgs, which say by architecture and tag what weights were trained with.
from timm.models._pretrained import PretrainedCfg

_configured_by = {}


def split_model_name_tag(model_name, no_tag=""):
    parts = model_name.split(".", 1)
    return parts[0], parts[1] if len(parts) > 1 else no_tag


def configure_by(default_cfgs):
    global _configured_by
    _configured_by = default_cfgs


def register_model(function):
    return function


# Names of the past, which nobody asks for here.
def register_model_deprecations(module_name, deprecation_map):
    pass


def generate_default_cfgs(cfgs):
    return cfgs


# The default is the first of a queue that what goes before the others enters in front.
def _tags_of(architecture):
    tags = []
    marked = has_weights = False
    for key, cfg in _configured_by.items():
        name, tag = split_model_name_tag(key)
        if name != architecture:
            continue
        if isinstance(cfg, dict):
            cfg = PretrainedCfg(**cfg)
        row = (tag.strip("*"), cfg)
        goes_first = (cfg.has_weights and not tag) or (tag.endswith("*") and not marked)
        if goes_first or (cfg.has_weights and not has_weights):
            tags.insert(0, row)
        else:
            tags.append(row)
        marked = marked or bool(goes_first)
        has_weights = has_weights or bool(cfg.has_weights)
    return tags


def get_pretrained_cfg(model_name, allow_unregistered=True):
    architecture, wanted = split_model_name_tag(model_name)
    tags = _tags_of(architecture)
    for tag, cfg in tags:
        if tag == wanted or not wanted:
            return cfg
    if tags:
        raise RuntimeError(f"Invalid pretrained tag ({wanted}) for {architecture}.")
    return None
