#include "code/transformers/texts.hpp"

namespace plimsoll::code {

namespace {

/// PreTrainedModel: its text, but for what it does when a class or an instance is made: weights are not initialised, only tied; which
/// attention and which experts run is what the strategy says.
constexpr const char* kModelingUtils = R"py(
import torch
from plimsoll import ask_whether_all, loss_begins, tie_weights
from torch import nn
from upstream.transformers.modeling_utils import PreTrainedModel


_LOSSES = {
    "ForSemanticSegmentation": "ForSemanticSegmentationLoss",
    "ForCausalLM": "ForCausalLMLoss",
    "ForMaskedLM": "ForMaskedLMLoss",
    "ForQuestionAnswering": "ForQuestionAnsweringLoss",
    "ForSequenceClassification": "ForSequenceClassificationLoss",
    "ForImageClassification": "ForSequenceClassificationLoss",
    "ForVideoClassification": "ForSequenceClassificationLoss",
    "ForAudioClassification": "ForSequenceClassificationLoss",
    "ForTokenClassification": "ForTokenClassification",
    "ForConditionalGeneration": "ForCausalLMLoss",
}


def _init_subclass(cls, **kwargs):
    own = cls.__dict__
    if "config_class" not in own and "_config_annotation" in own:
        cls.config_class = cls._config_annotation


def _init(self, config, *inputs, **kwargs):
    nn.Module.__init__(self)
    self.config = config
    self.name_or_path = config.name_or_path
    self.kernel_config = None
    if config._attn_implementation is None:
        config._attn_implementation_internal = "sdpa" if self._supports_sdpa else "eager"
    elif config._attn_implementation == "sdpa" and not self._supports_sdpa:
        config._attn_implementation_internal = "eager"
    if config._experts_implementation is None:
        config._experts_implementation_internal = "grouped_mm"
    self.loss_type = type(self).__name__


def _post_init(self):
    keys = self._tied_weights_keys
    if keys and getattr(self.config, "tie_word_embeddings", False):
        tie_weights(self, keys)


def _warn_if_padding(self, input_ids, attention_mask):
    if attention_mask is None and self.config.pad_token_id is not None:  # the host asks whether the first or the last token is padding: it is not
        ask_whether_all(torch.stack([input_ids[:, -1], input_ids[:, 0]], 1) == self.config.pad_token_id)


def _loss_function(self):
    found = None
    for name in _LOSSES:
        at = self.loss_type.find(name)
        if at >= 0 and (found is None or at < found[0]):
            found = (at, name)
    name = _LOSSES[found[1]] if found is not None else "ForCausalLMLoss"
    from transformers.loss import loss_utils

    loss_begins()
    return getattr(loss_utils, name)


def _from_config(cls, config, **kwargs):
    return cls(config)


def _get_init_context(cls, *args, **kwargs):
    return []


PreTrainedModel.__init_subclass__ = _init_subclass
PreTrainedModel.__init__ = _init
PreTrainedModel.post_init = _post_init
PreTrainedModel.loss_function = property(_loss_function)
PreTrainedModel.warn_if_padding_and_no_attention_mask = _warn_if_padding
PreTrainedModel._from_config = classmethod(_from_config)
PreTrainedModel.can_generate = classmethod(lambda cls: False)
PreTrainedModel.gradient_checkpointing = False


class _AttentionFunctions:
    def __getitem__(self, name):
        if name == "sdpa":
            from transformers.integrations.sdpa_attention import sdpa_attention_forward

            return sdpa_attention_forward
        raise NotImplementedError("attention implementation '" + str(name) + "'")

    def get_interface(self, name, default):
        return default if name is None or name == "eager" else self[name]

    def get(self, name, default=None):
        return self.get_interface(name, default)

    def __contains__(self, name):
        return name == "sdpa"


ALL_ATTENTION_FUNCTIONS = _AttentionFunctions()
)py";

constexpr const char* kMixins = R"py(
class PushToHubMixin:
    def push_to_hub(self, *args, **options):
        pass
)py";

/// Numbers are not followed: what a weight is filled with does not matter.
constexpr const char* kInitialization = R"py(
def guard_torch_init_functions():
    return lambda function: function


def _fill(tensor, *args, **options):
    return tensor


uniform_ = normal_ = constant_ = ones_ = zeros_ = eye_ = copy_ = trunc_normal_ = _fill
xavier_uniform_ = xavier_normal_ = kaiming_uniform_ = kaiming_normal_ = orthogonal_ = _fill
)py";

constexpr const char* kDoc = R"py(
def copy_func(function):
    return function
)py";

constexpr const char* kPeft = R"py(
class PeftAdapterMixin:
    pass
)py";

constexpr const char* kDistributed = R"py(
class DistributedMixin:
    pass
)py";

constexpr const char* kGeneration = R"py(
class GenerationMixin:
    pass


class CompileConfig:
    pass
)py";

/// Configurations are text; that they rename attributes is the evaluator's.
constexpr const char* kConfigurationUtils = R"py(
from plimsoll import class_property, renames_attributes
from upstream.transformers.configuration_utils import PreTrainedConfig


classproperty = class_property
PreTrainedConfig._renames = renames_attributes(PreTrainedConfig)
PretrainedConfig = PreTrainedConfig
)py";

/// A field that is checked is what its default is.
constexpr const char* kStrict = R"py(
def strict(cls=None, **options):
    return cls if cls is not None else strict


def as_validated_field(check):
    def field(default=None, **options):
        if "default_factory" in options:
            from dataclasses import field as made

            return made(default_factory=options["default_factory"])
        return default

    def with_arguments(*args, **kwargs):
        if args or (kwargs and "default" not in kwargs and "default_factory" not in kwargs):
            return check(*args, **kwargs)
        return field(**kwargs)

    return with_arguments
)py";

constexpr const char* kTypeValidators = R"py(
def _field(default=None, default_factory=None, **options):
    if default_factory is not None:
        from dataclasses import field

        return field(default_factory=default_factory)
    return default


def interval(min=None, max=None, exclude_min=False, exclude_max=False):
    return _field


def is_divisible_by(divisor=None):
    return _field


def activation_fn_key(default=None, **options):
    return default


def probability(default=None, **options):
    return default


def positive_int_field(default=None, **options):
    return default
)py";

/// An output is what of its fields is not None.
constexpr const char* kGeneric = R"py(
from dataclasses import fields


class ModelOutput:
    def _known(self):
        known = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                known[field.name] = value
        return known

    def keys(self):
        return self._known().keys()

    def values(self):
        return self._known().values()

    def items(self):
        return self._known().items()

    def to_tuple(self):
        return tuple(self._known().values())

    def get(self, name, default=None):
        return self._known().get("cache" if name in ("past_key_values", "cache_params") else name, default)

    def pop(self, name, default=None):
        value = getattr(self, name)
        setattr(self, name, None)
        return value if value is not None else default

    def __getitem__(self, key):
        if isinstance(key, str):
            return self._known()[key]
        return self.to_tuple()[key]

    def __setitem__(self, key, value):
        setattr(self, key, value)

    def __contains__(self, name):
        return name in self._known()

    def __iter__(self):
        return iter(self._known())

    def __len__(self):
        return len(self._known())

    @property
    def past_key_values(self):
        return getattr(self, "cache", None)


class GeneralInterface:
    pass


def is_flash_attention_requested(config=None, requested_attention_implementation=None, version=None):
    name = requested_attention_implementation
    if name is None:
        name = config._attn_implementation
    return name is not None and "flash" in name


def check_model_inputs(func=None, **options):
    from transformers.utils.generic import merge_with_config_defaults
    from transformers.utils.output_capturing import capture_outputs

    def decorator(function):
        return merge_with_config_defaults(capture_outputs(function))

    return decorator(func) if func is not None else decorator
)py";

/// Hooks that gather hidden states stand where those are asked for; a training step asks for none.
constexpr const char* kOutputCapturing = R"py(
from functools import wraps


class OutputRecorder:
    def __init__(self, target_class, index=0, layer_name=None, class_name=None, **options):
        self.target_class = target_class
        self.index = index
        self.layer_name = layer_name
        self.class_name = class_name


def maybe_install_capturing_hooks(model):
    pass


def capture_outputs(func=None, *, tie_last_hidden_states=True):
    def wrapped_fn(func):
        @wraps(func)
        def wrapper(self, *args, **kwargs):
            return_dict = kwargs.pop("return_dict", getattr(self.config, "return_dict", True))
            for name in ("output_hidden_states", "output_attentions"):
                if kwargs.get(name, getattr(self.config, name, False)):
                    from plimsoll import refuse

                    refuse(name)
            outputs = func(self, *args, **kwargs)
            if return_dict is False:
                outputs = outputs.to_tuple()
            return outputs

        return wrapper

    if func is not None:
        return wrapped_fn(func)
    return wrapped_fn


def select_hidden_states(*args, **options):
    return lambda function: function
)py";

constexpr const char* kDeprecation = R"py(
def deprecate_kwarg(*args, **options):
    return lambda function: function
)py";

constexpr const char* kAutoDocstring = R"py(
def auto_docstring(obj=None, **options):
    return obj if obj is not None else lambda of: of


def auto_class_docstring(*args, **options):
    return lambda of: of
)py";

/// Kernels of the hub are not installed: what is decorated stays.
constexpr const char* kHubKernels = R"py(
def use_kernel_forward_from_hub(name=None, *args, **options):
    return lambda of: of


def use_kernelized_func(function=None, *args, **options):
    return lambda of: of


def use_kernel_func_from_hub(name=None, *args, **options):
    return lambda of: of


def use_kernel_func_from_hub_with_fallback(func_name=None, package=None, internal_path=None):
    return lambda fallback: fallback


def lazy_load_kernel(*args, **options):
    return None


def is_kernel(name):
    return False


ALLOW_ALL_KERNELS = False
)py";

constexpr const char* kAccelerate = R"py(
def force_accelerate_hooks(*args, **options):
    return lambda of: of


def force_accelerate_hook(*args, **options):
    return lambda of: of
)py";

constexpr const char* kLogging = R"py(
class _Logger:
    def debug(self, *args, **options):
        pass

    info = warning = error = warning_once = info_once = warning_advice = debug


_LOGGER = _Logger()


def get_logger(name=None):
    return _LOGGER
)py";

constexpr const char* kImportUtils = R"py(
from plimsoll import refuse


def is_torch_available():
    return True


def is_torch_greater_or_equal(version, accept_dev=False):
    return True


def is_torch_less_or_equal(version, accept_dev=False):
    return False


def get_torch_version():
    return "2.15.0"


def is_tracing(*tensors):
    return False


def is_torchdynamo_compiling():
    return False


def is_torchdynamo_exporting():
    return False


def is_jit_tracing():
    return False


def is_cuda_stream_capturing():
    return False


def is_torch_fx_proxy(x):
    return False


def requires_backends(obj, backends):
    refuse("an object of " + str(backends))


def requires(*args, **options):
    return lambda of: of


def torch_compilable_check(condition, message=None, *args, **options):
    pass
)py";

constexpr const char* kActivations = R"py(
from upstream.transformers.activations import ACT2CLS


class _Activations:
    def __getitem__(self, name):
        made = ACT2CLS[name]
        if isinstance(made, tuple):
            return made[0](**made[1])
        return made()

    def __contains__(self, name):
        return name in ACT2CLS

    def keys(self):
        return ACT2CLS.keys()


ACT2FN = _Activations()
)py";

/// Masks without padding, positions or functions of a model's own are the tape's; others are read as upstream's code has them. What they
/// ask the device for (is there padding, does a new sequence begin) is read and waited for; padding is taken to be there, packing not.
constexpr const char* kMasks = R"py(
from plimsoll import ask_whether_all, find_packed, mask
from upstream.transformers.masking_utils import create_bidirectional_mask as bidirectional_as_read
from upstream.transformers.masking_utils import create_bidirectional_sliding_window_mask as bidirectional_window_as_read
from upstream.transformers.masking_utils import create_causal_mask as causal_as_read
from upstream.transformers.masking_utils import create_chunked_causal_mask as chunked_as_read
from upstream.transformers.masking_utils import create_sliding_window_causal_mask as window_as_read
from upstream.transformers.masking_utils import eager_mask, sdpa_mask


class _MaskFunctions:
    _global_mapping = {"sdpa": sdpa_mask, "eager": eager_mask}

    def __getitem__(self, name):
        return self._global_mapping[name]

    def __contains__(self, name):
        return name in self._global_mapping


ALL_MASK_ATTENTION_FUNCTIONS = _MaskFunctions()


class PagedAttentionCache:
    pass


class BlockMask:
    pass


def fast_all(tensor):
    return ask_whether_all(tensor)


def find_packed_sequence_indices(position_ids):
    find_packed(position_ids)
    return None


def _ignore_bidirectional_mask_sdpa(padding_mask, kv_length, local_attention_size=None):
    if padding_mask is not None:
        ask_whether_all(padding_mask)
        return False
    return local_attention_size is None or kv_length < local_attention_size


def _is_plain(inputs_embeds, attention_mask, *functions):
    return attention_mask is None and all(each is None for each in functions)


def create_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None, or_mask_function=None,
                       and_mask_function=None, block_sequence_ids=None, layer_idx=None, allow_is_causal_skip=True, **kwargs):
    if getattr(config, "is_causal", True) and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function,
                                                        block_sequence_ids):
        return mask("causal", config._attn_implementation, inputs_embeds, position_ids, None, allow_is_causal_skip)
    return causal_as_read(config, inputs_embeds, attention_mask, cache, position_ids, or_mask_function, and_mask_function,
                          block_sequence_ids, layer_idx, allow_is_causal_skip)


def create_bidirectional_mask(config, inputs_embeds=None, attention_mask=None, encoder_hidden_states=None, or_mask_function=None,
                              and_mask_function=None, cache=None, allow_is_bidirectional_skip=True, **kwargs):
    if allow_is_bidirectional_skip and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function):
        return mask("bidirectional", config._attn_implementation, inputs_embeds, None, None, True)
    return bidirectional_as_read(config, inputs_embeds, attention_mask, encoder_hidden_states, or_mask_function, and_mask_function, cache,
                                 allow_is_bidirectional_skip)


def create_sliding_window_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None,
                                      or_mask_function=None, and_mask_function=None, block_sequence_ids=None, layer_idx=None, **kwargs):
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "is_causal", True) and _is_plain(inputs_embeds, attention_mask, or_mask_function,
                                                                               and_mask_function, block_sequence_ids):
        return mask("causal", config._attn_implementation, inputs_embeds, position_ids, window, True)
    return window_as_read(config, inputs_embeds, attention_mask, cache, position_ids, or_mask_function, and_mask_function,
                          block_sequence_ids, layer_idx)


def create_bidirectional_sliding_window_mask(config, inputs_embeds=None, attention_mask=None, or_mask_function=None,
                                             and_mask_function=None, **kwargs):
    window = getattr(config, "sliding_window", None)
    if window is not None and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function):
        return mask("bidirectional", config._attn_implementation, inputs_embeds, None, window, True)
    return bidirectional_window_as_read(config, inputs_embeds, attention_mask, or_mask_function, and_mask_function)


def create_chunked_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None,
                               or_mask_function=None, and_mask_function=None, **kwargs):
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk is not None and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function):
        return mask("chunked", config._attn_implementation, inputs_embeds, position_ids, chunk, True)
    return chunked_as_read(config, inputs_embeds, attention_mask, cache, position_ids, or_mask_function, and_mask_function)


LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
    "chunked_attention": create_chunked_causal_mask,
}
)py";

/// The classes of a model type, by upstream's own tables.
constexpr const char* kAutoFactory = R"py(
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
    name = table.get(config.model_type)
    if name is None:
        raise ValueError("Unrecognized configuration class " + type(config).__name__ + " for this kind of AutoModel")
    if isinstance(name, (list, tuple)):
        wanted = [each for each in name if each in (getattr(config, "architectures", None) or [])]
        name = wanted[0] if wanted else name[0]
    return named(config.model_type, name, table)


def made(model_class, config):
    """from_config: a class of the text alone is given the text's configuration."""
    text_config = config.sub_configs.get("text_config")
    if text_config is not None and getattr(model_class, "config_class", None) is text_config:
        config = config.get_text_config()
    return model_class._from_config(config)


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


def auto(name, table):
    class Auto:
        @classmethod
        def from_config(cls, config, **kwargs):
            from transformers.models.auto import modeling_auto

            return made(model_class(config, getattr(modeling_auto, table)), config)

    return Auto
)py";

constexpr const char* kConfigurationAuto = R"py(
from transformers.models.auto.auto_factory import CONFIG_MAPPING, AutoConfig
)py";

constexpr const char* kModelingAuto = R"py(
from transformers.models.auto.auto_factory import auto


AutoModel = auto("AutoModel", "MODEL_MAPPING_NAMES")
AutoModelForCausalLM = auto("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES")
AutoModelForSeq2SeqLM = auto("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES")
AutoModelForMaskedLM = auto("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES")
AutoModelForImageTextToText = auto("AutoModelForImageTextToText", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES")
AutoModelForKeypointDetection = auto("AutoModelForKeypointDetection", "MODEL_FOR_KEYPOINT_DETECTION_MAPPING_NAMES")
AutoModelForTextEncoding = auto("AutoModelForTextEncoding", "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES")
AutoBackbone = auto("AutoBackbone", "MODEL_FOR_BACKBONE_MAPPING_NAMES")
)py";

constexpr const char* kAuto = R"py(
from transformers.models.auto.auto_factory import CONFIG_MAPPING, AutoConfig
from transformers.models.auto.modeling_auto import (
    AutoBackbone,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForKeypointDetection,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForTextEncoding,
)
)py";

constexpr const char* kDeepspeed = R"py(
def is_deepspeed_zero3_enabled():
    return False


def is_fsdp_managed_module(module):
    return False


def is_fsdp_enabled():
    return False
)py";

constexpr const char* kProcessing = R"py(
class Unpack:
    pass
)py";

}  // namespace

const std::vector<ModuleText>& transformers_texts() {
  static const std::vector<ModuleText> texts = {
      {"transformers.modeling_utils", kModelingUtils},
      {"transformers.utils.hub", kMixins},
      {"transformers.initialization", kInitialization},
      {"transformers.utils.doc", kDoc},
      {"transformers.integrations.peft", kPeft},
      {"transformers.distributed.mixin", kDistributed},
      {"transformers.generation", kGeneration},
      {"transformers.generation.utils", kGeneration},
      {"transformers.configuration_utils", kConfigurationUtils},
      {"huggingface_hub.dataclasses", kStrict},
      {"transformers.utils.type_validators", kTypeValidators},
      {"transformers.utils.generic", kGeneric},
      {"transformers.utils.output_capturing", kOutputCapturing},
      {"transformers.utils.deprecation", kDeprecation},
      {"transformers.utils.auto_docstring", kAutoDocstring},
      {"transformers.integrations.hub_kernels", kHubKernels},
      {"transformers.integrations.accelerate", kAccelerate},
      {"transformers.utils.logging", kLogging},
      {"transformers.utils.import_utils", kImportUtils},
      {"transformers.activations", kActivations},
      {"transformers.masking_utils", kMasks},
      {"transformers.models.auto.auto_factory", kAutoFactory},
      {"transformers.models.auto.configuration_auto", kConfigurationAuto},
      {"transformers.models.auto.modeling_auto", kModelingAuto},
      {"transformers.models.auto", kAuto},
      {"transformers.integrations.deepspeed", kDeepspeed},
      {"transformers.integrations.fsdp", kDeepspeed},
      {"transformers.distributed.fsdp", kDeepspeed},
      {"transformers.processing_utils", kProcessing},
  };
  return texts;
}

}  // namespace plimsoll::code
