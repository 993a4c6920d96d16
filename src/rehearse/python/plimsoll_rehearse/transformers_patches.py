"""transformers: masks that are decided by reading values, and models whose weights, configs or tokenizers are not there."""

import contextlib
import functools
import os

from . import device, hub, journal
from .imports import after


@after("transformers")
def patch_transformers(transformers):
    journal.version("transformers", transformers.__version__)


@after("transformers.masking_utils")
def one_document_per_sequence(module):
    """Packed sequences are looked for by reading position ids, for which the host waits; the rehearsed batch has one document per sequence.

    What torch.compile traces reads nothing: there transformers itself takes every batch for a packed one and masks its attention.
    """
    if not hasattr(module, "find_packed_sequence_indices"):
        return
    import torch

    original = module.find_packed_sequence_indices

    def find_packed_sequence_indices(position_ids, *arguments, **options):
        if torch.compiler.is_compiling():
            return original(position_ids, *arguments, **options)
        journal.replaced("transformers' search for packed sequences: one document per sequence")
        if position_ids.is_cuda:
            answer = torch.empty(1, dtype=torch.bool, device=position_ids.device)
            device.note_values(answer.data_ptr(), answer.nbytes, device.CERTAIN)
            answer.cpu()
        return None

    module.find_packed_sequence_indices = find_packed_sequence_indices


@after("transformers.configuration_utils")
def find_configs(module):
    """A config that cannot be fetched: that of the shipped model of its name."""
    owner = getattr(module, "PreTrainedConfig", None) or module.PretrainedConfig
    original = owner.get_config_dict.__func__

    @functools.wraps(original)
    def get_config_dict(cls, name, **options):
        try:
            return original(cls, name, **options)
        except OSError as missing:
            config = hub.shipped_config(name)
            if config is None:
                raise
            hub.ask_no_more(missing)
            journal.replaced(f"the config of {name}, which cannot be fetched: plimsoll's own of that model")
            fetching = ("cache_dir", "force_download", "proxies", "token", "local_files_only", "revision", "trust_remote_code", "subfolder")
            private = ("_from_auto", "_from_pipeline", "_commit_hash")
            return config, {key: value for key, value in options.items() if key not in fetching + private}

    owner.get_config_dict = classmethod(get_config_dict)


def dtype_of(config, options, transformers):
    """As from_pretrained chooses it: what is asked for, or what the checkpoint has, which is the default since version 5."""
    asked = options.get("dtype", options.get("torch_dtype"))
    if asked is None and int(transformers.__version__.split(".")[0]) >= 5:
        asked = "auto"
    if asked == "auto":
        asked = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        if asked is None:
            journal.note("the weights are taken to be bfloat16, as the config names no type: dtype= of from_pretrained says another")
            asked = "bfloat16"
    return getattr(__import__("torch"), asked) if isinstance(asked, str) else asked


@contextlib.contextmanager
def whole_parameters(module):
    """Within, transformers does not split what it builds over ranks: a checkpoint holds whole tensors, under ZeRO-3 too."""
    splits = module.is_deepspeed_zero3_enabled
    module.is_deepspeed_zero3_enabled = lambda: False
    try:
        yield
    finally:
        module.is_deepspeed_zero3_enabled = splits


def unset_weights(module, cls, config, dtype):
    """A checkpoint of the model of a config, whose tensors are reserved and never written; as in one that was saved, a tied tensor lies there once."""
    import torch

    with torch.device("meta"), whole_parameters(module):
        model = cls._from_config(config, **({"dtype": dtype} if dtype is not None else {}))
    aliases = {name for name, _ in model.named_parameters(remove_duplicate=False)} - {name for name, _ in model.named_parameters()}
    return {name: torch.empty(each.shape, dtype=each.dtype, device="cpu") for name, each in model.state_dict().items() if name not in aliases}


@after("transformers.modeling_utils")
def build_without_weights(module):
    """from_pretrained where no weights are found: transformers' own loading, quantization and placement, of a checkpoint of unset values."""
    original = module.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(original)
    def from_pretrained(cls, name, *arguments, config=None, **options):
        try:
            return original(cls, name, *arguments, config=config, **options)
        except (OSError, ValueError) as missing:
            import transformers

            if config is None:
                try:
                    config = transformers.AutoConfig.from_pretrained(name)
                except Exception:
                    raise missing from None
                for key in [key for key in options if hasattr(config, key) and key not in ("dtype", "torch_dtype")]:
                    setattr(config, key, options.pop(key))  # as PreTrainedConfig.from_dict takes them: use_cache=False
            journal.replaced(f"the weights of {name}: the model was built from its config, values unset")
            weights = unset_weights(module, cls, config, dtype_of(config, options, transformers))
            built = original(cls, None, *arguments, config=config, state_dict=weights, **options)
            model = built[0] if isinstance(built, tuple) else built
            model.name_or_path = model.config.name_or_path = name  # by which others load it once more: a reference model, a tokenizer
            return built

    module.PreTrainedModel.from_pretrained = classmethod(from_pretrained)


# Turns between marks, those of the assistant told apart, as programs ask that learn from them alone.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ bos_token }} {{ message['role'] }} "
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }} {{ eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] }} {{ eos_token }}{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }} assistant {% endif %}"
)


def made_up_tokenizer():
    """Knows a handful of words; ids lie within any vocabulary."""
    import tokenizers
    import transformers

    words = {
        word: number for number, word in enumerate(["<unk>", "<pad>", "<s>", "</s>", "the", "ship", "leaves", "port", "line", "water"])
    }
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=model, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=CHAT_TEMPLATE
    )


def knows_words(tokenizer):
    """Whether it tells words apart. Where no files are found, transformers 5 makes a tokenizer of the class that the config names, with its
    special tokens alone: every text becomes nothing, or the same again and again."""
    try:
        ids = set(tokenizer("the ship leaves port", add_special_tokens=False)["input_ids"])
    except Exception:  # of another modality, or it wants other arguments: not for us to judge
        return True
    return len(ids - set(tokenizer.all_special_ids)) > 1


@after("transformers.models.auto.tokenization_auto")
def make_up_tokenizers(module):
    original = module.AutoTokenizer.from_pretrained.__func__

    @functools.wraps(original)
    def from_pretrained(cls, name, *arguments, **options):
        try:
            found = original(cls, name, *arguments, **options)
            if os.path.isdir(str(name)) and not hub.is_made_up(str(name)) or knows_words(found):
                return found
            missing = OSError(f"{name} has no tokenizer here whose words are known: --synthetic-data makes one up")
        except Exception as error:  # whatever keeps it from being read: no network, no cache, no such name
            missing = error
        if not hub.SYNTHETIC:
            raise missing
        journal.replaced(f"the tokenizer {name}: a handful of words")
        return made_up_tokenizer()

    module.AutoTokenizer.from_pretrained = classmethod(from_pretrained)
