# PreTrainedModel: its text, but for what it does when a class or an instance is made: weights are not initialised, only tied; which
# attention and which experts run is what the strategy says.
import torch
from plimsoll import ask_all, loss_begins, tie_weights
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
    "ForCTC": "ForCTCLoss",
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
    elif config._attn_implementation.startswith("flash") and not self._supports_flash_attn:
        raise ValueError(type(self).__name__ + " does not support Flash Attention yet.")
    if config._experts_implementation is None:
        config._experts_implementation_internal = "grouped_mm"
    self.loss_type = type(self).__name__


def _post_init(self):
    keys = self._tied_weights_keys
    if keys and getattr(self.config, "tie_word_embeddings", False):
        tie_weights(self, keys)


def _warn_if_padding(self, input_ids, attention_mask):
    if attention_mask is None and self.config.pad_token_id is not None:  # the host asks whether the first or the last token is padding: it is not
        ask_all(input_ids[:, torch.tensor([-1, 0])] == self.config.pad_token_id)


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


class AttentionInterface:
    def __init__(self):
        self._own = {}

    @classmethod
    def register(cls, name, function):
        pass

    def __setitem__(self, name, function):
        self._own[name] = function

    def __getitem__(self, name):
        if name in self._own:
            return self._own[name]
        if name == "sdpa":
            from transformers.integrations.sdpa_attention import sdpa_attention_forward

            return sdpa_attention_forward
        if name in ("flash_attention_2", "flash_attention_3", "flash_attention_4"):
            from transformers.integrations.flash_attention import flash_attention_forward

            return flash_attention_forward
        raise NotImplementedError("attention implementation '" + str(name) + "'")

    def get_interface(self, name, default):
        return default if name is None or name == "eager" else self[name]

    def get(self, name, default=None):
        return self.get_interface(name, default)

    def __contains__(self, name):
        return name in ("sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4") or name in self._own


ALL_ATTENTION_FUNCTIONS = AttentionInterface()
