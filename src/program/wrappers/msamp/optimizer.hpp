/// MS-AMP's LBAdamW and LBAdam, and its clip_grad_norm_. Sources: msamp/optim/{adamw_base,adamw,optimizer}.py, msamp/nn/clip_grad.py of
/// MS-AMP 0.4.
#pragma once

#include <memory>
#include <vector>

#include "program/optimizers/optimizer.hpp"
#include "program/wrappers/msamp/model.hpp"

namespace plimsoll::program::msamp {

/// What the moments are held in: fp32 under O1; 8 and 16 bits with scales under O2.
enum class States : std::uint8_t { fp32, scaled };

/// LBAdamW of `trained`, parameters of the model or masters of them; without `decays` LBAdam, whose weight decay is zero unless asked for.
std::unique_ptr<Optimizer> make_optimizer(Tape& tape, Model& model, std::vector<Trained> trained, States states, bool decays);

/// msamp.clip_grad_norm_ of these parameters: norms of gradients in fp32, one by one. MS-AMP's are clipped by their scales.
void clip_grad_norm(Tape& tape, const std::vector<Trained>& parameters);

}  // namespace plimsoll::program::msamp
