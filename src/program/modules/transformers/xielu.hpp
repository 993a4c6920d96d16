/// The activation of Apertus (arXiv 2411.13010): transformers/activations.py, XIELUActivation._xielu_python.
#pragma once

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// `module` holds the slopes alpha_p and alpha_n and the constants beta and eps.
Tensor xielu(Module& module, Tape& tape, const Tensor& input);

}  // namespace plimsoll::program
