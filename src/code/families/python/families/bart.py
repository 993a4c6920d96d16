# BART: norms behind the branches. Its decoder's mask of ones has no name of its own.
import torch
from families.bart_parts import Body, Decoder, Encoder, ForConditionalGeneration
from families.seq2seq import padded_causal_mask, shifted_right


class BartDecoder(Decoder):
    def forward(self, ids, encoded):
        words = self.embed_tokens(ids)
        positions = torch.arange(words.shape[1], device=words.device) + 0
        mask = torch.ones(words.shape[0], words.shape[1], device=words.device)
        mask = padded_causal_mask(self.config, words, mask)
        places = self.embed_positions(words, positions)
        hidden = self.begun(words, places)
        for layer in self.layers:
            hidden = layer(hidden, mask, encoded)
        return self.ended(hidden)


class BartModel(Body):
    encoder_class, decoder_class = Encoder, BartDecoder


class BartForConditionalGeneration(ForConditionalGeneration):
    body_class = BartModel

    def decoder_inputs(self, labels):
        return shifted_right(labels, getattr(self.config, "decoder_start_token_id", 2), getattr(self.config, "pad_token_id", 1))
