# PEGASUS: mBART with sinusoids, and without a norm behind the embeddings.
import torch
from families.bart_parts import (Body, Decoder, Encoder, ForConditionalGeneration, FrozenPositions, NormsFirstDecoderLayer,
                                 NormsFirstEncoderLayer)
from families.seq2seq import padded_causal_mask, shifted_right


class PegasusEncoder(Encoder):
    layer_class = NormsFirstEncoderLayer
    positions_class = FrozenPositions
    norms_embeddings = False


class PegasusDecoder(Decoder):
    layer_class = NormsFirstDecoderLayer
    positions_class = FrozenPositions
    norms_embeddings = False

    def forward(self, ids, encoded):
        words = self.embed_tokens(ids)
        positions = torch.arange(words.shape[1], device=words.device) + 0
        ones = torch.ones(words.shape[0], words.shape[1], device=words.device)
        mask = padded_causal_mask(self.config, words, ones)
        places = self.embed_positions(words, positions)
        hidden = self.begun(words, places)
        for layer in self.layers:
            hidden = layer(hidden, mask, encoded)
        return self.ended(hidden)


class PegasusModel(Body):
    encoder_class, decoder_class = PegasusEncoder, PegasusDecoder


class PegasusForConditionalGeneration(ForConditionalGeneration):
    body_class = PegasusModel

    def decoder_inputs(self, labels):
        return shifted_right(labels, getattr(self.config, "decoder_start_token_id", 0), getattr(self.config, "pad_token_id", 0))
