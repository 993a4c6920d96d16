# mT5: T5's classes under names of its own.
from families.t5 import T5EncoderModel, T5ForConditionalGeneration


class MT5EncoderModel(T5EncoderModel):
    pass


class MT5ForConditionalGeneration(T5ForConditionalGeneration):
    pass
