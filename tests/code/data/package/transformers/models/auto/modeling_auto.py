from collections import OrderedDict

MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("tiny", "TinyForCausalLM"), ("tiny-sister", "TinyForCausalLM")])
