/// The networks by family: one file each mirrors the modeling file of transformers 5.23.
#pragma once

#include <memory>

#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Pre-norm, sandwich-norm and branch-norm decoders with rotary attention and a gated MLP: llama, mistral, qwen2, qwen3, phi3, gemma …
std::unique_ptr<Network> make_rotary_decoder(const Model& model, const RunOptions& options, Module& root, Tape& tape);

std::unique_ptr<Network> make_bert(const Model& model, const RunOptions& options, Module& root, Tape& tape);

/// Graph files, each operator a module of torch.nn, and transformers' resnet.
std::unique_ptr<Network> make_graph_network(const Model& model, const RunOptions& options, Module& root, Tape& tape);

/// Diffusion transformers of diffusers 0.42.
std::unique_ptr<Network> make_sd3(const Model& model, const RunOptions& options, Module& root, Tape& tape);
std::unique_ptr<Network> make_dit(const Model& model, const RunOptions& options, Module& root, Tape& tape);
std::unique_ptr<Network> make_pixart(const Model& model, const RunOptions& options, Module& root, Tape& tape);
std::unique_ptr<Network> make_flux(const Model& model, const RunOptions& options, Module& root, Tape& tape);

}  // namespace plimsoll::program
