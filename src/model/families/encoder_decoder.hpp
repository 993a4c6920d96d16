// What sequence-to-sequence families share: a decoder layer with cross attention, and the wiring of the two stacks.
#pragma once

#include <string>

#include "model/families/encoder.hpp"

namespace plimsoll::model {

/// The second attention of a decoder layer: its queries are the decoder's, its keys and values the encoder's output.
struct CrossPlan {
  std::string attention = "encoder_attn", norm = "encoder_attn_layer_norm";
  AttentionSpec spec;
};

/// A decoder layer with self attention, cross attention and MLP, norms before or behind each (pre, post). It works on the second stream and
/// reads the output of block `encoder_output` from the side.
Block cross_layer(const LayerPlan& plan, const CrossPlan& cross, int encoder_output);

/// One of the two stacks of bart and whisper.
struct SequenceStack {
  std::string prefix, side;  ///< "model.", "encoder"
  Block::Stream stream;
  std::int64_t layers;

  std::string name() const { return prefix + side; }
};
/// A layer of a stack, as bart and whisper name and configure it; a decoder's is for cross_layer.
LayerPlan sequence_layer(const Model& model, const Config& config, const SequenceStack& stack, NormPlacement placement);

/// A model with the dimensions of a sequence-to-sequence config; head dimension and layers of the encoder.
Model seq2seq_model(const Config& config);

/// Looks token ids up in the table that the whole model shares: the first block registers it as `shared`, later ones follow it.
void append_shared_embedding(Model& model, const std::string& name, const std::string& tied_to, Block::Stream stream, bool scaled,
                             double dropout);

}  // namespace plimsoll::model
