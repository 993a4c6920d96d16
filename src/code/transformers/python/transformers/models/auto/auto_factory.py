# The classes of a model type, by upstream's own tables.
from upstream.transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name


def named(model_type, name, table=None):
    """The type's own class; where its module has none of that name, that of another type (exaone is a llama)."""
    from plimsoll import imported

    try:
        return imported("transformers.models." + model_type_to_module_name(model_type), name)
    except ImportError:
        for other, value in (table or CONFIG_MAPPING_NAMES).items():
            if value != name or other == model_type:
                continue
            try:
                return imported("transformers.models." + model_type_to_module_name(other), name)
            except ImportError:
                pass
        raise


def model_class(config, table):
    model_type = type(config).model_type
    name = table.get(model_type)
    if name is None:
        raise ValueError("Unrecognized configuration class " + type(config).__name__ + " for this kind of AutoModel")
    if isinstance(name, (list, tuple)):
        wanted = [each for each in name if each in (getattr(config, "architectures", None) or [])]
        name = wanted[0] if wanted else name[0]
    return named(model_type, name, table)


def made(model_class, config):
    """from_config: a class of the text alone is given the text's configuration."""
    text_config = config.sub_configs.get("text_config")
    if text_config is not None and getattr(model_class, "config_class", None) is text_config:
        config = config.get_text_config()
    return model_class._from_config(config)


def parts(model):
    """What trainers, PEFT and quantisers ask of a model and of the models within it."""
    from transformers.modeling_utils import PreTrainedModel

    embeddings, classes, kept = [], [], []
    for module in model.modules():
        if not isinstance(module, PreTrainedModel):
            continue
        for name in type(module)._no_split_modules or []:
            if name not in classes:
                classes.append(name)
        for name in type(module)._keep_in_fp32_modules or []:
            if name not in kept:
                kept.append(name)
        try:
            found = module.get_input_embeddings()
        except NotImplementedError:
            continue
        if found is not None and not any(found is each for each in embeddings):
            embeddings.append(found)
    return embeddings, model.get_output_embeddings(), model.base_model_prefix or "", classes, kept


def without_cache(config):
    """What Trainer sets, and what a training step needs."""
    config.use_cache = False
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if part is not None:
            without_cache(part)


def config_class(model_type):
    if model_type not in CONFIG_MAPPING_NAMES:
        raise KeyError(model_type)
    return named(model_type, CONFIG_MAPPING_NAMES[model_type])


def config_named(name):
    for model_type, known in CONFIG_MAPPING_NAMES.items():
        if known == name:
            return named(model_type, name)
    return None


class _Configurations:
    def __getitem__(self, model_type):
        return config_class(model_type)

    def __contains__(self, model_type):
        return model_type in CONFIG_MAPPING_NAMES

    def keys(self):
        return CONFIG_MAPPING_NAMES.keys()


CONFIG_MAPPING = _Configurations()


class AutoConfig:
    @classmethod
    def for_model(cls, model_type, *args, **kwargs):
        return config_class(model_type)(*args, **kwargs)


class _LazyAutoMapping:
    def __init__(self, config_mapping, model_mapping):
        self.names = model_mapping


class _BaseAutoModelClass:
    _model_mapping = None

    @classmethod
    def from_config(cls, config, **kwargs):
        return made(model_class(config, cls._model_mapping.names), config)


class _BaseAutoBackboneClass(_BaseAutoModelClass):
    pass


def auto_class_update(cls, **options):
    return cls
