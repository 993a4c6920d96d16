#include "code/transformers/texts.hpp"

namespace plimsoll::code {

namespace {

/// PreTrainedModel: its text, but for what it does when a class or an instance is made: weights are not initialised, only tied; which
/// attention and which experts run is what the strategy says.
constexpr const char* kModelingUtils = R"py(
from plimsoll import loss_begins, tie_weights
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
    pass


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

constexpr const char* kHeterogeneity = R"py(
class HeterogeneousConfigMixin:
    is_heterogeneous = False
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

constexpr const char* kMasks = R"py(
from plimsoll import mask


def create_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None, or_mask_function=None,
                       and_mask_function=None, block_sequence_ids=None, layer_idx=None, allow_is_causal_skip=True, **kwargs):
    if not getattr(config, "is_causal", True):
        return create_bidirectional_mask(config, inputs_embeds, attention_mask)
    return mask("causal", config._attn_implementation, inputs_embeds, attention_mask, position_ids, None,
                [or_mask_function, and_mask_function, block_sequence_ids], allow_is_causal_skip)


def create_bidirectional_mask(config, inputs_embeds=None, attention_mask=None, encoder_hidden_states=None, or_mask_function=None,
                              and_mask_function=None, cache=None, allow_is_bidirectional_skip=True, **kwargs):
    return mask("bidirectional", config._attn_implementation, inputs_embeds, attention_mask, None, None,
                [or_mask_function, and_mask_function], allow_is_bidirectional_skip)


def create_sliding_window_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None,
                                      or_mask_function=None, and_mask_function=None, block_sequence_ids=None, layer_idx=None, **kwargs):
    if not getattr(config, "is_causal", True):
        return create_bidirectional_sliding_window_mask(config, inputs_embeds, attention_mask)
    window = getattr(config, "sliding_window", None)
    if window is None:
        raise ValueError("Could not find a `sliding_window` argument in the config, or it is not set")
    return mask("causal", config._attn_implementation, inputs_embeds, attention_mask, position_ids, window,
                [or_mask_function, and_mask_function, block_sequence_ids], True)


def create_bidirectional_sliding_window_mask(config, inputs_embeds=None, attention_mask=None, or_mask_function=None,
                                             and_mask_function=None, **kwargs):
    window = getattr(config, "sliding_window", None)
    if window is None:
        raise ValueError("Could not find a `sliding_window` argument in the config, or it is not set")
    return mask("bidirectional", config._attn_implementation, inputs_embeds, attention_mask, None, window,
                [or_mask_function, and_mask_function], True)


def create_chunked_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None,
                               or_mask_function=None, and_mask_function=None, **kwargs):
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk is None:
        raise ValueError("Could not find an `attention_chunk_size` argument in the config, or it is not set")
    return mask("chunked", config._attn_implementation, inputs_embeds, attention_mask, position_ids, chunk,
                [or_mask_function, and_mask_function], True)


def create_recurrent_attention_mask(config, inputs_embeds=None, attention_mask=None, cache=None, **kwargs):
    return attention_mask


LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
    "chunked_attention": create_chunked_causal_mask,
}
)py";

/// The classes of a model type, by upstream's own tables.
constexpr const char* kAutoFactory = R"py(
from transformers.models.auto.auto_mappings import CONFIG_MAPPING_NAMES, SPECIAL_MODEL_TYPE_TO_MODULE_NAME


def module_of(model_type):
    if model_type in SPECIAL_MODEL_TYPE_TO_MODULE_NAME:
        return SPECIAL_MODEL_TYPE_TO_MODULE_NAME[model_type]
    return model_type.replace("-", "_")


def named(model_type, name):
    from plimsoll import imported

    return imported("transformers.models." + module_of(model_type), name)


def model_class(config, table):
    name = table.get(config.model_type)
    if name is None:
        raise ValueError("Unrecognized configuration class " + type(config).__name__ + " for this kind of AutoModel")
    if isinstance(name, (list, tuple)):
        wanted = [each for each in name if each in (getattr(config, "architectures", None) or [])]
        name = wanted[0] if wanted else name[0]
    return named(config.model_type, name)


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

            return model_class(config, getattr(modeling_auto, table))._from_config(config, **kwargs)

    return Auto
)py";

constexpr const char* kConfigurationAuto = R"py(
from transformers.models.auto.auto_factory import CONFIG_MAPPING, AutoConfig


def model_type_to_module_name(model_type):
    from transformers.models.auto.auto_factory import module_of

    return module_of(model_type)
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
      {"transformers.integrations.heterogeneity", kHeterogeneity},
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
