# mBART: norms before the branches and behind each stack; the decoder's positions give their name to what stands for them.
import torch
from families.bart_parts import Body, Decoder, Encoder, ForConditionalGeneration, NormsFirstDecoderLayer, NormsFirstEncoderLayer
from families.seq2seq import padded_causal_mask, wrapped_right


class MBartEncoder(Encoder):
    layer_class = NormsFirstEncoderLayer


class MBartDecoder(Decoder):
    layer_class = NormsFirstDecoderLayer

    def forward(self, ids, encoded):
        words = self.embed_tokens(ids)
        places = torch.arange(words.shape[1], device=words.device) + 0
        ones = torch.ones(words.shape[0], words.shape[1], device=words.device)
        mask = padded_causal_mask(self.config, words, ones)
        places = self.embed_positions(words, places)
        hidden = self.begun(words, places)
        for layer in self.layers:
            hidden = layer(hidden, mask, encoded)
        return self.ended(hidden)


class MBartModel(Body):
    encoder_class, decoder_class = MBartEncoder, MBartDecoder


class MBartForConditionalGeneration(ForConditionalGeneration):
    body_class = MBartModel

    def decoder_inputs(self, labels):
        return wrapped_right(labels, getattr(self.config, "pad_token_id", 1))
